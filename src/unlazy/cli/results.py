"""Commands that show what was stored: reports, figures, a page to watch, and what to cite."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from unlazy.cli._shared import CLAIM_FAILED, OK, Json, Out, app, begin, in_lab

Format = Literal["svg", "pdf", "csv"]
Remote = Annotated[bool, Parameter(negative="", show_default=False)]


@app.command
def report(*runs: Path, to: Path = Path("report.html"), json: Json = False) -> int:
    """Write one HTML file from stored panels and runs: figures, claims, theorems, recipes. It needs no network.

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
    panel: str,
    /,
    *,
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
    """Write figures as SVG and PDF, and the numbers drawn as CSV; what was reproduced is not computed again.

    Parameters
    ----------
    panel
        A panel such as `chen2022/fig1`, or a paper such as `chen2022` for all of its panels.
    scale
        The scale at which it was, or will be, reproduced.
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
    begin()
    from unlazy.lab.store import writable
    from unlazy.papers import choose
    from unlazy.report import export, stem

    chosen, written = choose(panel), []
    writable(to, "Figures", "--to")
    with in_lab(out, fresh=False) as lab:
        for one in chosen:
            written += export(one, one.run(scale, lab), to / stem(one.key, scale), form, style)
    print(json_format.dumps([str(path) for path in written]) if json else "\n".join(map(str, written)))
    return OK


@app.command
def watch(
    runs: Path = Path("runs"), /, *, host: str = "127.0.0.1", port: int = 0, remote: Remote = False, json: Json = False
) -> int:
    """Serve a page, to this machine only, that follows runs: loss, probes, progress and time left. It only reads.

    Parameters
    ----------
    runs
        Folder in which results are kept.
    host
        Address to listen on.
    port
        Port to listen on; any that is free if left out.
    remote
        Allow an address that other machines can reach: whoever asks then sees your runs.
    json
        Print once how runs stand, as JSON, and serve nothing.
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
