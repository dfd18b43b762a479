"""The lab: recipes, the runs they describe, and the store that keeps what came of them."""

from unlazy.lab.build import build
from unlazy.lab.certificates import Certificate, Kept, certify, keep, kept
from unlazy.lab.identity import canonical, identify
from unlazy.lab.live import Note, notes
from unlazy.lab.made_by import OtherCode, provenance
from unlazy.lab.recipe import Experiment, Recipe, Times, draw_data, instantiate, parse, read
from unlazy.lab.runner import Interrupted, Lab
from unlazy.lab.store import Store, read_run

__all__ = [
    "Certificate",
    "Experiment",
    "Interrupted",
    "Kept",
    "Lab",
    "Note",
    "OtherCode",
    "Recipe",
    "Store",
    "Times",
    "build",
    "canonical",
    "certify",
    "draw_data",
    "identify",
    "instantiate",
    "keep",
    "kept",
    "notes",
    "parse",
    "provenance",
    "read",
    "read_run",
]
