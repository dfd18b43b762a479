"""The report: one HTML file that opens from a mail, with every figure, claim and recipe inside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from unlazy._errors import UserError
from unlazy.lab.store import reason, written_whole
from unlazy.report.record import Record


def write_report(records: Sequence[Record], path: Path) -> Path:
    """Write the report; it appears whole or not at all."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unlazy.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    claims = [claim for record in records for claim in record.claims]
    text = environment.get_template("report.html").render(
        records=records,
        figures=[Markup(_own_ids(record.figure, f"p{i}")) for i, record in enumerate(records)],
        held=sum(claim.holds for claim in claims),
        total=len(claims),
    )
    if path.is_dir():
        raise UserError(f"The report cannot be written to '{path}', which is a folder: give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"The report cannot be written to '{path}' ({reason(error)}): choose another file.") from None
    return path


def _own_ids(svg: str, prefix: str) -> str:
    """Make the ids of a figure its own: Matplotlib uses the same ones in every file, and a page has one name space."""

    def own(tag: re.Match[str]) -> str:
        return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", tag[0])

    return re.sub(r"<[^>]+>", own, svg)  # in tags only: a text may speak of ids too
