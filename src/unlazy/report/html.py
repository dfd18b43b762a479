"""The report: one HTML file that opens from a mail, with every figure, claim and recipe inside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unlazy._errors import UserError
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
        seconds=sum(record.seconds for record in records),
    )
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"The report cannot be written to '{path}' ({error.strerror}): choose another --out.") from None
    return path


def _own_ids(svg: str, prefix: str) -> str:
    """Make the ids of a figure its own: Matplotlib uses the same ones in every file, and a page has one name space."""
    for mark in ('id="', 'xlink:href="#', 'href="#', "url(#"):
        svg = svg.replace(mark, mark + prefix + "-")
    return svg.replace(f'xlink:href="#{prefix}-{prefix}-', f'xlink:href="#{prefix}-')
