"""Commands that run things: panels, recipes, theorems, benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from unlazy.cli._shared import CLAIM_FAILED, OK, Fresh, Json, Out, app, begin, count, in_lab, must_exist, screen


@app.command
def demo(*, out: Out = Path("runs"), report: Path = Path("report.html"), json: Json = False) -> int:
    """Run one quick panel of each paper and write a report.

    Parameters
    ----------
    out
        Folder in which results are kept.
    report
        The HTML file to write.
    json
        Print one JSON object a panel instead of a table.
    """
    begin()
    from unlazy.papers import panels
    from unlazy.report import gather, reproduce, write_report
    from unlazy.report.html import find_place
    from unlazy.report.terminal import print_records

    find_place(report, "--report")
    with in_lab(out, fresh=False) as lab:
        done = [reproduce(panel, "quick", lab) for panel in panels().values() if panel.demo]
    write_report(gather([out], only={(record.panel, record.scale) for record in done}), report)
    print_records(done, json)
    if not json:
        print(f"Report: {report}")
    return OK if all(record.holds for record in done) else CLAIM_FAILED


@app.command
def reproduce(
    panel: str,
    /,
    *,
    scale: Literal["quick", "paper"] = "quick",
    seeds: Annotated[int | None, Parameter(converter=count)] = None,
    out: Out = Path("runs"),
    fresh: Fresh = False,
    json: Json = False,
) -> int:
    """Run a figure of a paper and check its claims.

    The figure and its record go to OUT/panels. The exit status is 0 only where every claim holds.

    Parameters
    ----------
    panel
        A panel such as `chen2022/fig1`, or a paper such as `chen2022` for all of its panels.
    scale
        `quick` takes up to two minutes; `paper` uses the paper's own sizes.
    seeds
        Number of seeds, if not that of the scale.
    out
        Folder in which results are kept; what is there already is not computed again.
    fresh
        Compute everything again.
    json
        Print one JSON object a panel instead of a table.
    """
    begin()
    from unlazy.papers import choose
    from unlazy.report import reproduce as run
    from unlazy.report.terminal import print_records

    chosen = choose(panel)
    with in_lab(out, fresh) as lab:
        done = [run(one, scale, lab, seeds) for one in chosen]
    print_records(done, json)
    if not json:
        for record in done:
            print(f"Figure: {out / 'panels' / record.panel.replace('/', '-')}-{record.scale}.svg")
    return OK if all(record.holds for record in done) else CLAIM_FAILED


@app.command
def panels(*, out: Out = Path("runs"), json: Json = False) -> int:
    """List what can be reproduced, at which scales, and how it went last time.

    Parameters
    ----------
    out
        Folder in which results are kept.
    json
        Print JSON instead of a table.
    """
    from unlazy.report.terminal import print_panels

    print_panels(out, json)
    return OK


@app.command
def run(recipe: Path, /, *, out: Out = Path("runs"), fresh: Fresh = False, json: Json = False) -> int:
    """Run a recipe (a TOML file) and keep the result as netCDF.

    The exit status is 0 if every seed reached the end, 1 if one did not.

    Parameters
    ----------
    recipe
        The file; `examples/` holds some to start from.
    out
        Folder in which results are kept; a result that is there already is not computed again.
    fresh
        Compute it again.
    json
        Print JSON instead of a table.
    """
    must_exist(recipe)
    from unlazy.lab import read
    from unlazy.report.terminal import print_run

    wanted = read(recipe)
    begin()
    with in_lab(out, fresh) as lab:
        result = lab.run(wanted)
    print_run(result, wanted.name, lab.store.path(wanted), json)
    return OK if result.attrs["finished"] else CLAIM_FAILED


@app.command
def theorems(*, json: Json = False) -> int:
    """List the theorems that can look at a run.

    Parameters
    ----------
    json
        Print JSON instead of a table.
    """
    from unlazy.report.terminal import print_rows
    from unlazy.theory import theorems as known

    rows = [
        {"theorem": key, "source": one.source, "statement": one.statement, "feasible": one.feasible}
        for key, one in known().items()
    ]
    print_rows(rows, {"theorem": "theorem", "source": "source", "statement": "says"}, json)
    return OK


@app.command
def certify(recipe: Path, /, *, theorem: str | None = None, out: Out = Path("runs"), json: Json = False) -> int:
    """Run a recipe and say which theorems speak about it, and whether they hold.

    The run is made anew, with all that the theorems have to look at, and is not kept; what they say is, for reports.
    The exit status is 1 if a theorem fails, else 0: to be silent is no failure.

    Parameters
    ----------
    recipe
        The file (.toml; `examples/` holds some), or what was made of recipes: a stored run (.nc) or the record of a
        panel (.json), whose recipes are then certified one by one.
    theorem
        One theorem such as `chen2022/theorem-1`, or a paper such as `chen2022`; all of them if left out.
    out
        Folder in which results are kept.
    json
        Print JSON, with every hypothesis and its numbers, instead of a table.
    """
    must_exist(recipe)
    from unlazy.lab import certify as ask
    from unlazy.lab import keep
    from unlazy.report import recipes
    from unlazy.report.terminal import print_certificates, telling
    from unlazy.theory import Verdict, choose

    wanted, asked = recipes(recipe), choose(theorem)
    begin()
    found = {}
    with telling(screen) as tell:
        for label, one in wanted.items():
            found[label] = ask(one, asked, tell)
            keep(out, one, found[label])
    print_certificates(found, json)
    failed = any(one.finding.verdict is Verdict.FAILS for some in found.values() for one in some)
    return CLAIM_FAILED if failed else OK


@app.command
def bench(name: str | None = None, /, *, json: Json = False) -> int:
    """Measure speed against a named baseline, side by side in one run.

    Run it on an otherwise idle machine. Benchmarks live in the source tree's folder `benchmarks`.

    Parameters
    ----------
    name
        One benchmark; all of them if left out.
    json
        Print JSON instead of a table.
    """
    from unlazy.lab.benchmarks import measured
    from unlazy.report.terminal import print_benchmarks

    print_benchmarks(list(measured(name, lambda stem: screen.print(f"Measuring {stem} ..."))), json)
    return OK
