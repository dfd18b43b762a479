"""What is kept of a reproduced panel: its claims, figure and provenance, as a small JSON file and an SVG beside it."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec

from unlazy._errors import UserError
from unlazy.lab import Lab, provenance
from unlazy.lab.store import reason, written_whole
from unlazy.papers import Claim, Panel, Results, Scale
from unlazy.papers._figure import STYLE


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A panel that was run."""

    panel: str
    title: str
    scale: Scale
    settings: str
    caption: str
    seconds: float  # what its runs took, when they were run
    claims: list[Claim]
    recipes: dict[str, str]  # the recipe of every run, by label
    made_by: dict[str, str]
    figure: str = ""  # SVG, kept in a file of its own

    @property
    def holds(self) -> bool:
        """Whether every claim held."""
        return all(claim.holds for claim in self.claims)

    def summary(self) -> dict[str, object]:
        """Give what the command line prints as JSON."""
        names = ("text", "paper", "measured", "holds")
        claims = [{name: getattr(claim, name) for name in names} for claim in self.claims]
        return {"panel": self.panel, "scale": self.scale, "seconds": round(self.seconds, 2), "claims": claims}


def reproduce(panel: Panel, scale: Scale, lab: Lab, seeds: int | None = None) -> Record:
    """Run a panel, check its claims, draw it, and keep the record in the lab's folder."""
    results = panel.run(scale, lab, seeds)
    record = Record(
        panel=panel.key,
        title=panel.title,
        scale=scale,
        settings=panel.scales[scale] if seeds is None else f"{panel.scales[scale]} (run with seeds = {seeds})",
        caption=panel.caption,
        seconds=sum(float(run.attrs["seconds"]) for run in results.values()),
        claims=panel.claims(results),
        recipes={label: str(run.attrs["recipe"]) for label, run in results.items()},
        made_by=_made_by(results),
        figure=_svg(panel, results),
    )
    _write(record, lab.store.folder)
    return record


def _made_by(results: Results) -> dict[str, str]:
    """Say what made the runs, which may have been stored long ago; of several, the first."""
    attributes = next(iter(results.values())).attrs
    return {name: str(attributes[name]) if name in attributes else value for name, value in provenance().items()}


def _svg(panel: Panel, results: Results) -> str:
    import matplotlib as mpl

    buffer = io.StringIO()
    # No date, so that the same results give the same file, and no addresses of the web.
    metadata = {"Title": panel.title} | dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context(STYLE):
        panel.draw(results).savefig(buffer, format="svg", metadata=metadata)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _write(record: Record, folder: Path) -> None:
    base = folder / "panels" / f"{record.panel.replace('/', '-')}-{record.scale}"
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        for suffix, content in (
            (".svg", record.figure.encode()),
            (".json", msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(record, figure="")))),
        ):
            with written_whole(base.with_name(base.name + suffix)) as temporary:
                temporary.write_bytes(content)
    except OSError as error:
        where = f"The record of {record.panel} cannot be written to '{base.parent}'"
        raise UserError(f"{where} ({reason(error)}): choose another --out.") from None


def records(folder: Path) -> list[Record]:
    """Read all records kept in ``folder``."""
    found = []
    for path in sorted((folder / "panels").glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
            figure = path.with_name(path.stem + ".svg").read_text(encoding="utf-8")
            found.append(msgspec.structs.replace(record, figure=figure))
        except (msgspec.DecodeError, OSError) as error:
            raise UserError(
                f"'{path}' is not a whole record ({type(error).__name__}): delete it and reproduce again."
            ) from None
    return found
