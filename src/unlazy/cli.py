"""The command line. Heavy libraries are imported inside the commands, so that help comes at once."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import cyclopts
from cyclopts import Parameter
from rich.console import Console

import unlazy
from unlazy._errors import UserError

if TYPE_CHECKING:
    from unlazy.lab import Lab, Recipe
    from unlazy.lab.runner import Told

app = cyclopts.App(
    name="unlazy",
    version=lambda: unlazy.__version__,
    help=(
        "Study how neural networks learn features: run networks, reproduce papers, check their claims.\n\n"
        "Start with 'unlazy demo', then 'unlazy panels' to see what can be reproduced. Results are kept in the folder "
        "'runs', so that nothing is computed twice; Ctrl-C stops any command, and the same command goes on from there. "
        "Add --debug to any command for a full traceback."
    ),
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # what an interrupted run says is said in `main`
)


def _count(_: object, tokens: Sequence[cyclopts.Token]) -> int:
    text = tokens[0].value
    if not (text.isdecimal() and int(text) >= 1):  # Cyclopts would make 2 of 1.5
        raise UserError(f"a whole number of at least 1 was wanted, not {text}.")
    return int(text)


Out = Annotated[Path, Parameter(name=["--out", "-o"])]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Fresh = Annotated[bool, Parameter(name="--fresh", negative="")]

_OK, _CLAIM_FAILED, _BAD_CALL, _BROKEN, _INTERRUPTED = 0, 1, 2, 3, 130
_screen = Console(stderr=True)  # progress and errors; standard output carries results only


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
    _begin()
    from unlazy.papers import panels
    from unlazy.report import reproduce, write_report
    from unlazy.report.terminal import print_records

    with _lab(out, fresh=False) as lab:
        done = [reproduce(panel, "quick", lab) for panel in panels().values() if panel.demo]
    write_report(done, report)
    print_records(done, json)
    if not json:
        print(f"Report: {report}")
    return _OK if all(record.holds for record in done) else _CLAIM_FAILED


@app.command
def reproduce(
    panel: str,
    /,
    *,
    scale: Literal["quick", "paper"] = "quick",
    seeds: Annotated[int | None, Parameter(converter=_count)] = None,
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
    _begin()
    from unlazy.papers import choose
    from unlazy.report import reproduce as run
    from unlazy.report.terminal import print_records

    chosen = choose(panel)
    with _lab(out, fresh) as lab:
        done = [run(one, scale, lab, seeds) for one in chosen]
    print_records(done, json)
    if not json:
        for record in done:
            print(f"Figure: {out / 'panels' / record.panel.replace('/', '-')}-{record.scale}.svg")
    return _OK if all(record.holds for record in done) else _CLAIM_FAILED


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
    from unlazy.papers import panels as known
    from unlazy.report import records
    from unlazy.report.terminal import print_table

    last = {(record.panel, record.scale): record for record in records(out)}

    def verdict(key: str, scale: Any) -> str:
        record = last.get((key, scale))
        if record is None:
            return "not run"
        return f"{sum(claim.holds for claim in record.claims)} of {len(record.claims)} claims hold"

    rows = [
        {"panel": key, "title": panel.title, "scale": scale, "settings": settings, "last": verdict(key, scale)}
        for key, panel in known().items()
        for scale, settings in panel.scales.items()
    ]
    if json:
        print(json_format.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print_table(
            ["panel", "scale", "what is run", "last verdict"],
            [[r["panel"], r["scale"], r["settings"], r["last"]] for r in rows],
        )
    return _OK


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
    _must_exist(recipe)
    from unlazy.flows import Status
    from unlazy.lab import read
    from unlazy.report.terminal import print_table

    wanted = read(recipe)
    _begin()
    with _lab(out, fresh) as lab:
        result = lab.run(wanted)
    path = lab.store.path(wanted)
    ends = result.isel(time=-1).data_vars  # what was seen at the end only has no time
    last = {str(name): float(values.mean()) for name, values in ends.items()}
    status = [str(one) for one in _listed(result.attrs["status"])]
    if json:
        seconds = round(float(result.attrs["seconds"]), 2)
        finite = {name: value if isfinite(value) else None for name, value in last.items()}  # JSON knows no NaN
        print(json_format.dumps({"run": str(path), "status": status, "seconds": seconds, "last": finite}, indent=2))
    else:
        print_table(
            ["probe", "last value, mean over seeds and all else"],
            [[name, f"{value:.6g}"] for name, value in last.items()],
        )
        for name in sorted(set(status) - {"finished"}):
            print(f"{wanted.name} stopped at t = {float(result['time'][-1]):g}: {Status[name].value}")
        seconds, written = float(result.attrs["seconds"]), result.attrs["written"]
        print(f"{wanted.name}: {', '.join(sorted(set(status)))}, {seconds:.1f} s. Kept since {written} in {path}")
        if "method" in result.attrs:  # older files do not say
            print(f"Method: {result.attrs['method']}; {_total(result.attrs['evaluations']):,} gradients.")
    return _OK if result.attrs["finished"] else _CLAIM_FAILED


@app.command
def theorems(*, json: Json = False) -> int:
    """List the theorems that can look at a run.

    Parameters
    ----------
    json
        Print JSON instead of a table.
    """
    from unlazy.report.terminal import print_table
    from unlazy.theory import theorems as known

    rows = [
        {"theorem": key, "source": one.source, "statement": one.statement, "feasible": one.feasible}
        for key, one in known().items()
    ]
    if json:
        print(json_format.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print_table(["theorem", "source", "says"], [[r["theorem"], r["source"], r["statement"]] for r in rows])
    return _OK


@app.command
def certify(recipe: Path, /, *, theorem: str | None = None, json: Json = False) -> int:
    """Run a recipe and say which theorems speak about it, and whether they hold.

    The run is made anew, with all that the theorems have to look at, and is not kept. The exit status is 1 if a theorem
    fails, else 0: to be silent is no failure.

    Parameters
    ----------
    recipe
        The file; `examples/` holds some to start from.
    theorem
        One theorem such as `chen2022/theorem-1`, or a paper such as `chen2022`; all of them if left out.
    json
        Print JSON, with every hypothesis and its numbers, instead of a table.
    """
    _must_exist(recipe)
    from unlazy.lab import certify as ask
    from unlazy.lab import read
    from unlazy.report.terminal import print_certificates
    from unlazy.theory import Verdict, choose

    wanted, asked = read(recipe), choose(theorem)
    _begin()
    with _telling() as tell:
        found = ask(wanted, asked, tell)
    if json:
        print(json_format.dumps([one.summary() for one in found], indent=2, ensure_ascii=False))
    else:
        print_certificates(found)
    return _CLAIM_FAILED if any(one.finding.verdict is Verdict.FAILS for one in found) else _OK


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
    from unlazy.report.terminal import print_table

    tables = list(measured(name, lambda stem: _screen.print(f"Measuring {stem} ...")))
    if json:
        print(json_format.dumps([row for table in tables for row in table], indent=2))
    else:
        for table in tables:
            columns = list(dict.fromkeys(key for row in table for key in row))
            cells = [[_cell(row.get(column, "")) for column in columns] for row in table]
            print_table([column.replace("_", " ") for column in columns], cells)
    return _OK


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _begin() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)


def _total(value: Any) -> int:
    return int(sum(value)) if hasattr(value, "__len__") else int(value)


def _must_exist(recipe: Path) -> None:
    if not recipe.is_file():  # said before the libraries are loaded
        raise UserError(f"There is no recipe at '{recipe}': give the path of a TOML file.")


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


@contextmanager
def _lab(out: Path, fresh: bool) -> Iterator[Lab]:
    """Give a lab that shows its progress."""
    from unlazy.lab import Lab

    with _telling() as tell:
        yield Lab(out, tell, fresh)


@contextmanager
def _telling() -> Iterator[Told]:
    """Show, on a terminal, one line of progress for each recipe."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    name, note = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[note]}", style="dim")
    columns = (name, BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), note)
    with Progress(*columns, *times, console=_screen, disable=not _screen.is_terminal) as progress:
        tasks: dict[str, Any] = {}

        def tell(recipe: Recipe, share: float, note: str) -> None:
            if recipe.digest not in tasks:
                tasks[recipe.digest] = progress.add_task(recipe.name, total=1.0, note=note)
            progress.update(tasks[recipe.digest], completed=share, note=note)

        yield tell


def main(arguments: list[str] | None = None) -> None:
    """Run a command; bad input ends in one sentence and status 2, a traceback only with --debug."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        status = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except BrokenPipeError:  # say, piped into head
        sys.stdout = None
        sys.exit(_OK)
    except KeyboardInterrupt as stop:
        _end(str(stop) or "Interrupted.", _INTERRUPTED)
    except UserError as error:
        if debug:
            raise
        _end(f"unlazy: {error}", _BAD_CALL)
    except cyclopts.CycloptsError as error:
        if debug:
            raise
        _end(f"unlazy: {error} Try --help.", _BAD_CALL)
    except Exception as error:
        if debug:
            raise
        _end(
            f"unlazy: this should not have happened ({type(error).__name__}: {error}). See where with --debug.", _BROKEN
        )
    sys.exit(status or _OK)


def _end(sentence: str, status: int) -> NoReturn:
    """Say one last sentence, on one line, and leave."""
    _screen.print(" ".join(sentence.split()), markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
