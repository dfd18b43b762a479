"""Reports: what was reproduced, as records on disk, figures, one self-contained HTML file, and a page to watch runs."""

from unlazy.report.citations import cite
from unlazy.report.contents import Contents, gather
from unlazy.report.figures import export
from unlazy.report.html import write_report
from unlazy.report.record import Record, recipes, records, reproduce, stem

__all__ = ["Contents", "Record", "cite", "export", "gather", "recipes", "records", "reproduce", "stem", "write_report"]
