"""``python -m unlazy`` is the command ``unlazy``."""

from unlazy.cli import main

main()
