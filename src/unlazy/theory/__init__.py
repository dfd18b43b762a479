"""Theory: theorems as objects that look at your run and say whether they speak about it, and whether they hold."""
