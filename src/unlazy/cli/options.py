"""Types of options that several commands have, with their names and help."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

from unlazy._errors import UserError


def count(_: object, tokens: Sequence[Token]) -> int:
    """Convert an option to a whole number of at least 1."""
    text = tokens[0].value
    if not (text.isdecimal() and int(text) >= 1):  # Cyclopts would round 1.5 to 2
        raise UserError(f"expected a whole number of at least 1, not {text}.")
    return int(text)


_SET = "Replace a field of the recipe, as in `--set network.width=512` or `--set network.scaling=ntk`; may be repeated."
_WORKERS = "Number of processes that share the work; each gets an equal share of the cores."
_SNAPSHOTS = "Space in MiB per seed for snapshots of the trained parameters. Probes added later are evaluated on them."
Count = Annotated[int | None, Parameter(converter=count)]
Workers = Annotated[int, Parameter(converter=count, help=_WORKERS)]
_OUT = "Folder of stored results. What it holds is not computed again; several commands can use it at the same time."
Out = Annotated[Path, Parameter(name=["--out", "-o"])]
Runs = Annotated[Out, Parameter(help=_OUT)]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Json = Annotated[Flag, Parameter(name="--json")]
AsJson = Annotated[Json, Parameter(help="Print JSON instead of a table.")]
Fresh = Annotated[Flag, Parameter(name="--fresh", help="Compute everything again, even what is stored.")]
Many = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
Set = Annotated[Many, Parameter(name="--set", consume_multiple=False, help=_SET)]
Snapshots = Annotated[float, Parameter(help=_SNAPSHOTS)]
