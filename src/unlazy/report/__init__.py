"""Reports of panels and of your own runs: records, figures, one self-contained HTML file, and a page to watch runs."""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

# Names are imported when they are first used: `unlazy cite` must not wait for JAX.
if TYPE_CHECKING:
    from unlazy.report.citations import cite as cite
    from unlazy.report.contents import Contents as Contents, gather as gather
    from unlazy.report.figures import draw as draw, export as export
    from unlazy.report.html import write_report as write_report
    from unlazy.report.record import Record as Record, is_stored as is_stored, recipes as recipes, records as records
    from unlazy.report.record import reproduce as reproduce, run_panel as run_panel, stem as stem
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
