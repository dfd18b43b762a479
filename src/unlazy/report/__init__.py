"""Reports of panels and of your own runs: records, figures, one self-contained HTML file, and a page to watch runs."""

from typing import TYPE_CHECKING

# Names are imported when they are first used: `unlazy cite` must not wait for JAX.
_NAMES = {
    "citations": "cite",
    "contents": "Contents gather",
    "figures": "draw export",
    "html": "write_report",
    "record": "Record is_stored recipes records reproduce run_panel stem",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from unlazy.report.citations import cite
    from unlazy.report.contents import Contents, gather
    from unlazy.report.figures import draw, export
    from unlazy.report.html import write_report
    from unlazy.report.record import Record, is_stored, recipes, records, reproduce, run_panel, stem

__all__ = [
    "Contents",
    "Record",
    "cite",
    "draw",
    "export",
    "gather",
    "is_stored",
    "recipes",
    "records",
    "reproduce",
    "run_panel",
    "stem",
    "write_report",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"unlazy.report.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'unlazy.report' has no attribute '{name}'")
