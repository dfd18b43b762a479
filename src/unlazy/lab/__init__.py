"""The lab: recipes, the runs that they describe, and the store of their results."""

from unlazy.lab.answers import Answer, Diagnosis, Part, Saved
from unlazy.lab.certificates import Certificate, Kept, certify, keep, kept
from unlazy.lab.clusters import BatchSystem, Dask
from unlazy.lab.coordinates import CoordinateCheck, LayerCheck, coordinate_check
from unlazy.lab.diagnosis import diagnose, diagnose_checkpoints, diagnose_widths
from unlazy.lab.engines import Engine, Local, Serial, decode
from unlazy.lab.fields import parse_setting, with_field
from unlazy.lab.identity import canonical, identify
from unlazy.lab.live import Note, notes
from unlazy.lab.made_by import OtherCode, provenance
from unlazy.lab.measures import Measure
from unlazy.lab.phase import Phase, PhaseDiagram, phase_diagram
from unlazy.lab.rates import RateTransfer, rate_transfer
from unlazy.lab.recipe import Experiment, Recipe, Times, draw_data, instantiate, parse, read
from unlazy.lab.runner import Interrupted, Lab
from unlazy.lab.sections import build
from unlazy.lab.slopes import Slope, fit_slope
from unlazy.lab.store import Store, read_run
from unlazy.lab.sweep import Entry, Manifest, Point, Sweep
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
