"""The lab: recipes, the runs they describe, and the store that keeps what came of them."""

from unlazy.lab.certificates import Certificate, certify
from unlazy.lab.recipe import Experiment, Recipe, Times, bring_to_life, build, draw_data, parse, read
from unlazy.lab.runner import Interrupted, Lab
from unlazy.lab.store import Store, provenance, read_run

__all__ = [
    "Certificate",
    "Experiment",
    "Interrupted",
    "Lab",
    "Recipe",
    "Store",
    "Times",
    "bring_to_life",
    "build",
    "certify",
    "draw_data",
    "parse",
    "provenance",
    "read",
    "read_run",
]
