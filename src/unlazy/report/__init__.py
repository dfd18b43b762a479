"""Reports: what was reproduced, as records on disk and as one self-contained HTML file."""

from unlazy.report.html import write_report
from unlazy.report.record import Record, records, reproduce

__all__ = ["Record", "records", "reproduce", "write_report"]
