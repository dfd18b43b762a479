"""Commands that present stored results: reports, figures, a page that shows runs in progress, and citations."""

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
    """Write a report on stored panels and runs: figures, tables, claims, theorems and recipes in one HTML file.

    The file is self-contained: it can be sent by mail and opened offline. The exit status is 0 if every claim in it
    holds and 1 otherwise.

    Parameters
    ----------
    runs
        Folders of stored results, stored runs (.nc) or records of panels (.json); the folder `runs` if omitted.
    to
        The HTML file to write.
    json
        Print JSON instead of text.
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
    """Draw stored runs or panels as SVG and PDF files, with the plotted numbers as CSV.

    Stored runs that are given together share one figure, grouped by the settings in which they differ. A panel that
    was reproduced before is not computed again.

    Parameters
    ----------
    what
        Stored runs (.nc) or folders of them; or panels such as `chen2022/fig1`, or papers such as `chen2022` for all
        of their panels.
    probe
        The probe to draw, for stored runs; repeat the option for several. All probes if omitted.
    scale
        The scale of a panel.
    style
        `paper` gives figures of column or page width, with fonts that match LaTeX.
    form
        The format of a file; repeat the option for several. All formats if omitted.
    to
        Folder to which the figures are written.
    out
        Folder of stored results.
    json
        Print the file names as JSON.
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
    """Serve a local web page that shows runs in progress: losses, probes, progress and remaining time.

    Parameters
    ----------
    runs
        Folder of stored results.
    host
        Address to listen on.
    port
        Port to listen on; 0 chooses a free one.
    remote
        Allow a host address that other machines can reach. Anyone who can reach it can see your runs.
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
        Print JSON instead: the entries by key.
    """
    from unlazy.report.citations import cite as entries

    found = entries(run)
    print(json_format.dumps(found, indent=2, ensure_ascii=False) if json else "\n\n".join(found.values()))
    return OK
