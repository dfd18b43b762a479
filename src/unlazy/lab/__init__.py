"""The lab: recipes, the runs that they describe, and the store of their results."""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

# Names are imported when they are first used: a table of stored runs must not wait for JAX.
if TYPE_CHECKING:
    from unlazy.lab.answers import Answer as Answer, Diagnosis as Diagnosis, Part as Part, Saved as Saved
    from unlazy.lab.certificates import Certificate as Certificate, StoredCertificates as StoredCertificates
    from unlazy.lab.certificates import certify as certify, store_certificates as store_certificates
    from unlazy.lab.certificates import stored_certificates as stored_certificates
    from unlazy.lab.clusters import BatchSystem as BatchSystem, Dask as Dask
    from unlazy.lab.coordinates import CoordinateCheck as CoordinateCheck, coordinate_check as coordinate_check
    from unlazy.lab.diagnosis import diagnose as diagnose, diagnose_checkpoints as diagnose_checkpoints
    from unlazy.lab.diagnosis import diagnose_widths as diagnose_widths
    from unlazy.lab.engines import Engine as Engine, Local as Local, Serial as Serial, decode as decode
    from unlazy.lab.fields import parse_setting as parse_setting, with_field as with_field
    from unlazy.lab.gathering import gather as gather
    from unlazy.lab.identity import canonical as canonical, identify as identify
    from unlazy.lab.layer_checks import LayerCheck as LayerCheck
    from unlazy.lab.live import Note as Note, notes as notes
    from unlazy.lab.made_by import OtherCode as OtherCode, provenance as provenance
    from unlazy.lab.manifest import Entry as Entry, Manifest as Manifest
    from unlazy.lab.measures import Measure as Measure
    from unlazy.lab.phase import Phase as Phase, PhaseDiagram as PhaseDiagram, phase_diagram as phase_diagram
    from unlazy.lab.rates import RateTransfer as RateTransfer, rate_transfer as rate_transfer
    from unlazy.lab.recipe import Experiment as Experiment, Recipe as Recipe, Times as Times, draw_data as draw_data
    from unlazy.lab.recipe import instantiate as instantiate, parse as parse, read as read
    from unlazy.lab.runner import Interrupted as Interrupted, Lab as Lab
    from unlazy.lab.sections import build as build
    from unlazy._slopes import Slope as Slope, fit_slope as fit_slope
    from unlazy.lab.store import Store as Store
    from unlazy.lab.stored import read_run as read_run
    from unlazy.lab.sweep import Point as Point, Sweep as Sweep
    from unlazy.lab.tasks import Lost as Lost, Report as Report, Task as Task, part_of as part_of, perform as perform
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
