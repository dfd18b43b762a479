"""The lab: recipes, the runs that they describe, and the store of their results."""

from typing import TYPE_CHECKING

# Names are imported when they are first used: a table of stored runs must not wait for JAX.
_NAMES = {
    "answers": "Answer Diagnosis Part Saved",
    "certificates": "Certificate Kept certify keep kept",
    "clusters": "BatchSystem Dask",
    "coordinates": "CoordinateCheck coordinate_check",
    "diagnosis": "diagnose diagnose_checkpoints diagnose_widths",
    "engines": "Engine Local Serial decode",
    "fields": "parse_setting with_field",
    "gathering": "gather",
    "identity": "canonical identify",
    "layer_checks": "LayerCheck",
    "live": "Note notes",
    "made_by": "OtherCode provenance",
    "manifest": "Entry Manifest",
    "measures": "Measure",
    "phase": "Phase PhaseDiagram phase_diagram",
    "rates": "RateTransfer rate_transfer",
    "recipe": "Experiment Recipe Times draw_data instantiate parse read",
    "runner": "Interrupted Lab",
    "sections": "build",
    "slopes": "Slope fit_slope",
    "store": "Store",
    "stored": "read_run",
    "sweep": "Point Sweep",
    "tasks": "Lost Report Task part_of perform",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from unlazy.lab.answers import Answer, Diagnosis, Part, Saved
    from unlazy.lab.certificates import Certificate, Kept, certify, keep, kept
    from unlazy.lab.clusters import BatchSystem, Dask
    from unlazy.lab.coordinates import CoordinateCheck, coordinate_check
    from unlazy.lab.diagnosis import diagnose, diagnose_checkpoints, diagnose_widths
    from unlazy.lab.engines import Engine, Local, Serial, decode
    from unlazy.lab.fields import parse_setting, with_field
    from unlazy.lab.gathering import gather
    from unlazy.lab.identity import canonical, identify
    from unlazy.lab.layer_checks import LayerCheck
    from unlazy.lab.live import Note, notes
    from unlazy.lab.made_by import OtherCode, provenance
    from unlazy.lab.manifest import Entry, Manifest
    from unlazy.lab.measures import Measure
    from unlazy.lab.phase import Phase, PhaseDiagram, phase_diagram
    from unlazy.lab.rates import RateTransfer, rate_transfer
    from unlazy.lab.recipe import Experiment, Recipe, Times, draw_data, instantiate, parse, read
    from unlazy.lab.runner import Interrupted, Lab
    from unlazy.lab.sections import build
    from unlazy.lab.slopes import Slope, fit_slope
    from unlazy.lab.store import Store
    from unlazy.lab.stored import read_run
    from unlazy.lab.sweep import Point, Sweep
    from unlazy.lab.tasks import Lost, Report, Task, part_of, perform

__all__ = [
    "Answer",
    "BatchSystem",
    "Certificate",
    "CoordinateCheck",
    "Dask",
    "Diagnosis",
    "Engine",
    "Entry",
    "Experiment",
    "Interrupted",
    "Kept",
    "Lab",
    "LayerCheck",
    "Local",
    "Lost",
    "Manifest",
    "Measure",
    "Note",
    "OtherCode",
    "Part",
    "Phase",
    "PhaseDiagram",
    "Point",
    "RateTransfer",
    "Recipe",
    "Report",
    "Saved",
    "Serial",
    "Slope",
    "Store",
    "Sweep",
    "Task",
    "Times",
    "build",
    "canonical",
    "certify",
    "coordinate_check",
    "decode",
    "diagnose",
    "diagnose_checkpoints",
    "diagnose_widths",
    "draw_data",
    "fit_slope",
    "gather",
    "identify",
    "instantiate",
    "keep",
    "kept",
    "notes",
    "parse",
    "parse_setting",
    "part_of",
    "perform",
    "phase_diagram",
    "provenance",
    "rate_transfer",
    "read",
    "read_run",
    "with_field",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"unlazy.lab.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'unlazy.lab' has no attribute '{name}'")
