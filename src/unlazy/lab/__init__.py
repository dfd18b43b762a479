"""The lab: recipes, the runs they describe, and the store that keeps what came of them."""

from unlazy.lab.certificates import Certificate, Kept, certify, keep, kept
from unlazy.lab.live import Note, notes
from unlazy.lab.recipe import Experiment, Recipe, Times, bring_to_life, build, draw_data, parse, read
from unlazy.lab.runner import Interrupted, Lab
from unlazy.lab.store import Store, provenance, read_run

__all__ = [
    "Certificate",
    "Experiment",
    "Interrupted",
    "Kept",
    "Lab",
    "Note",
    "Recipe",
    "Store",
    "Times",
    "bring_to_life",
    "build",
    "certify",
    "draw_data",
    "keep",
    "kept",
    "notes",
    "parse",
    "provenance",
    "read",
    "read_run",
]
