"""Commands that list what is available. They answer without importing JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unlazy._errors import UserError, skip, suggest
from unlazy._listing import describe_one, listing
from unlazy._plain import parse_json, read_text
from unlazy._registry import KINDS, kebab
from unlazy._terminal import print_json, print_rows
from unlazy.cli.application import OK, app
from unlazy.cli.options import AsJson, Runs


@app.command(name="list")
def list_(kind: str | None = None, name: str | None = None, /, *, json: AsJson = False) -> int:
    """List what a recipe can name: kinds of objects, the members of a kind, or the options of a member.

    For example, all kinds, all activations, and the options of one:

        unlazy list

        unlazy list activation

        unlazy list activation leaky-relu

    This includes members of installed plug-ins, and of packages that the environment variable UNLAZY_PLUGINS names.

    Parameters
    ----------
    kind
        A kind such as `activation`; all kinds if omitted.
    name
        A member such as `leaky-relu`, or `package.module:Thing`; all members of the kind if omitted.
    """
    if kind is None:
        rows: list[dict[str, Any]] = [
            {"kind": one, "members": len(found), "summary": KINDS[one].summary} for one, found in listing().items()
        ]
        print_rows(rows, {"kind": "kind", "members": "members", "summary": "what they are"}, json)
        return OK
    chosen = kebab(kind) if kebab(kind) in KINDS else kebab(kind).removesuffix("s")
    if chosen not in KINDS:
        raise UserError(f"There is no kind '{kind}'. {suggest(kind, KINDS)}")
    if name is None:
        shown = ("name", "summary", "module")
        rows = [{part: one[part] for part in shown} for one in listing()[chosen].values()]
        print_rows(rows, {"name": chosen, "summary": "what it is"}, json)
        return OK
    found = describe_one(chosen, name)
    if json:
        print_json(found)
        return OK
    print(f"{found['name']}: {found['summary']}\n")
    if not found["options"]:
        print("It takes no options.")
    else:
        print_rows(found["options"], {"name": "option", "type": "type", "default": "default", "doc": "meaning"}, False)
    return OK


@app.command
def panels(*, out: Runs = Path("runs"), json: AsJson = False) -> int:
    """List the figures that can be reproduced, their scales, and the outcome of the last run.

    `unlazy reproduce PANEL --scale SCALE` runs one of them.
    """
    last, rows = _verdicts(out), []
    for key, one in listing()["panel"].items():
        for scale, settings in one["scales"].items():
            verdict = last.get((key, scale), "not run")
            rows.append({"panel": key, "title": one["summary"], "scale": scale, "settings": settings, "last": verdict})
    print_rows(rows, {"panel": "panel", "scale": "scale", "settings": "what is run", "last": "last verdict"}, json)
    return OK


def _verdicts(out: Path) -> dict[tuple[str, str], str]:
    """Read from the records of panels how many claims hold."""
    found = {}
    for path in sorted((out / "panels").glob("*.json")):
        try:
            record = parse_json(read_text(path))
            # Outcomes are only compared as words here, as listing has to be quick.
            held = [one["holds"] if "holds" in one else one["judged"]["outcome"] == "holds" for one in record["claims"]]
            found[record["panel"], record["scale"]] = f"{sum(held)} of {len(held)} claims hold"
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"'{path}' is not a complete record ({type(error).__name__})"
            skip(UserError(f"{why}: delete it and reproduce the panel again."))
    return found


@app.command
def theorems(*, json: AsJson = False) -> int:
    """List the theorems that can be checked on a run, with their sources.

    `unlazy certify FILE.toml` checks them on the run of a recipe.
    """
    rows = [
        {"theorem": key, "source": one["source"], "statement": one["statement"], "feasible": one["feasible"]}
        for key, one in sorted(listing()["theorem"].items())
    ]
    print_rows(rows, {"theorem": "theorem", "source": "source", "statement": "says"}, json)
    return OK
