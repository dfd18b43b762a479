"""Commands that show what was stored: reports, figures, a page to watch, and what to cite."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from unlazy._errors import UserError
from unlazy.cli._shared import CLAIM_FAILED, OK, Json, Out, app, begin, in_lab

Format = Literal["svg", "pdf", "csv"]
Remote = Annotated[bool, Parameter(negative="", show_default=False)]


@app.command
def report(*runs: Path, to: Path = Path("report.html"), json: Json = False) -> int:
    """Write one HTML file from stored panels and runs: figures, tables, claims, theorems, recipes.

    The file is self-contained and needs no network.

    The exit status is 0 only where every claim in it holds.

    Parameters
    ----------
    runs
        Folders in which results are kept, single runs (.nc) or records of panels (.json); `runs` if left out.
    to
        The HTML file to write.
    json
        Print JSON instead of a sentence.
    """
    from unlazy.report import gather, write_report
    from unlazy.report.terminal import print_report

    contents = gather(runs or (Path("runs"),))
    print_report(contents, write_report(contents, to), json)
    return OK if all(record.holds for record in contents.records) else CLAIM_FAILED


@app.command
def figure(
    *what: str,
    probe: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    scale: Literal["quick", "paper"] = "quick",
    style: Literal["screen", "paper"] = "screen",
    form: Annotated[tuple[Format, ...], Parameter(name="--format", negative="", show_default=False)] = (
        "svg",
        "pdf",
        "csv",
    ),
    to: Path = Path("figures"),
    out: Out = Path("runs"),
    json: Json = False,
) -> int:
    """Draw stored runs or panels as SVG and PDF, with the numbers drawn as CSV.

    Stored runs that are given together are drawn into one figure, grouped by the settings in which they differ. A panel
    that was reproduced before is not computed again.

    Parameters
    ----------
    what
        Stored runs (.nc) or folders of them; or panels such as `chen2022/fig1`, or papers such as `chen2022` for all
        of their panels.
    probe
        Of stored runs, draw this probe only; give the option more than once for several. All probes if left out.
    scale
        The scale at which a panel is reproduced.
    style
        `paper` gives figures of column or page width, with type to match, ready for LaTeX.
    form
        `svg`, `pdf` or `csv`; give the option more than once for several. All of them if left out.
    to
        Folder in which the figures are written.
    out
        Folder in which results are kept.
    json
        Print JSON instead of names of files.
    """
    if not what:
        raise UserError("There is nothing to draw: give stored runs (.nc), folders of runs, or panels.")
    from unlazy._files import writable
    from unlazy.report.figures import own_runs

    files, names = own_runs(what)
    if probe and names:
        raise UserError(f"'{names[0]}' is not a stored run, and --probe chooses among the probes of stored runs only.")
    written = _figures_of_runs(files, probe, style, form, to) if files else []
    if names:
        begin()
        from unlazy.papers import choose
        from unlazy.report import draw, export, run_panel, stem

        chosen = [one for name in names for one in choose(name)]
        writable(to, "Figures", "--to")
        with in_lab(out, fresh=False) as lab:
            for one in chosen:
                drawn = draw(one, run_panel(one, scale, lab), style)
                written += export(drawn, one.title, to / stem(one.key, scale), form, style)
    print(json_format.dumps([str(path) for path in written]) if json else "\n".join(map(str, written)))
    return OK


def _figures_of_runs(
    files: list[Path], probe: tuple[str, ...], style: Literal["screen", "paper"], form: tuple[Format, ...], to: Path
) -> list[Path]:
    from unlazy import figures
    from unlazy._files import writable
    from unlazy.lab import read_run
    from unlazy.report import export

    drawn = figures.curves([read_run(path) for path in files], probe or None, style)
    writable(to, "Figures", "--to")
    name = files[0].stem if len(files) == 1 else "runs"
    return export(drawn, name, to / "-".join([name, *(one.replace("/", "-") for one in probe)]), form, style)


@app.command
def watch(
    runs: Path = Path("runs"), /, *, host: str = "127.0.0.1", port: int = 0, remote: Remote = False, json: Json = False
) -> int:
    """Serve a page, to this machine only, that shows runs in progress: loss, probes, progress and time left.

    Parameters
    ----------
    runs
        Folder in which results are kept.
    host
        Address to listen on.
    port
        Port to listen on; any that is free if left out.
    remote
        Allow an address that other machines can reach: anyone who can reach it then sees your runs.
    json
        Print the state of all runs once, as JSON, and exit.
    """
    from unlazy.report.watch import jobs, plain, serve

    if json:
        print(json_format.dumps(plain(jobs(runs)), indent=2, ensure_ascii=False))
    else:
        serve(
            runs,
            host,
            port,
            remote,
            lambda address: print(f"Watching {runs} at {address} (Ctrl-C ends it)", flush=True),
        )
    return OK


@app.command
def cite(run: Path, /, *, json: Json = False) -> int:
    """Print BibTeX for the papers, data, methods and libraries that a run used.

    Parameters
    ----------
    run
        A stored run (.nc), a panel's record (.json) or a recipe (.toml).
    json
        Print JSON instead: entries by key.
    """
    from unlazy.report.citations import cite as entries

    found = entries(run)
    print(json_format.dumps(found, indent=2, ensure_ascii=False) if json else "\n\n".join(found.values()))
    return OK
