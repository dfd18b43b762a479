"""Commands that present stored results: reports, figures, a page that shows runs in progress, and citations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from unlazy._errors import UserError
from unlazy._files import replace, writable, writing
from unlazy._signals import deferred
from unlazy._terminal import print_json, print_settings
from unlazy.cli.application import CLAIM_FAILED, OK, app, begin, in_lab, printed_notices
from unlazy.cli.options import Flag, Json, Many, Runs

Format = Literal["svg", "pdf", "csv"]
FORMATS: tuple[Format, ...] = ("svg", "pdf", "csv")


@app.command
def report(*runs: Path, to: Path = Path("report.html"), json: Json = False) -> int:
    """Write a report on stored results as one HTML file: figures, tables, claims, theorems and recipes.

    It covers runs of your own, sweeps, diagnoses and panels. The file is self-contained: it can be sent by mail and
    opened offline. The exit status is 1 if a claim in it does not hold and 0 otherwise.

    Parameters
    ----------
    runs
        Folders of stored results, stored runs (.nc), sweeps (.sweep.json) or records of panels (.json); the folder
        `runs` if omitted.
    to
        The HTML file to write.
    json
        Print JSON instead of text.
    """
    from unlazy.report import gather, write_report
    from unlazy.report.terminal import print_report

    with printed_notices():
        contents = gather(runs or (Path("runs"),))
    print_report(contents, write_report(contents, to), json)
    return CLAIM_FAILED if any(record.fails for record in contents.records) else OK


@app.command
def table(
    *runs: Path,
    csv: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    each_seed: Flag = False,
    differing: Flag = False,
    probe: Many = (),
    json: Json = False,
) -> int:
    """List stored runs in a table: their settings, how they ended, and the last value of every probe.

    Nothing is computed. The table on the terminal has a row for each run, with the settings in which the runs differ;
    what they have in common is above it. Files have all settings and all digits:

        unlazy table runs --csv runs.csv

        unlazy table runs/widths-0123456789ab.sweep.json --probe train-loss --each-seed --csv - | head

    A run that cannot be read is named and left out. A value is the mean over the seeds of a run, unless --each-seed is
    given, and nan if any of them is not finite. In Python, `Lab("runs").table()` returns the same rows, and
    `Lab("runs").gather(...)` returns all times of a sweep.

    Parameters
    ----------
    runs
        Stored runs (.nc), folders of them, or sweeps (.sweep.json); the folder `runs` if omitted.
    csv
        Write the table to this file as comma-separated values; `-` is standard output.
    each_seed
        Write a row for each seed instead of each run.
    differing
        Show only those settings in which the runs differ.
    probe
        A probe to list, such as `train-loss`, or `kernel` for all its parts; repeat the option for several. If omitted,
        all that have one number per seed.
    json
        Print JSON instead: a list of objects, in which null is a value that is missing or not finite.
    """
    if csv is not None and json:
        raise UserError("--csv and --json are two forms of the same table: give one of them.")
    if csv is not None and str(csv).startswith("--"):
        raise UserError(f"--csv needs the name of a file, or - for standard output, before {csv}.")
    if csv is not None and csv.is_dir():
        raise UserError(f"The table cannot be written to '{csv}', which is a folder: give the name of a file, or -.")
    from unlazy.lab.table import as_csv, as_plain, files
    from unlazy.lab.table import table as make

    with printed_notices():
        rows = make(files(runs or (Path("runs"),)), each_seed=each_seed, differing=differing, probes=probe)
    if json:
        print_json(as_plain(rows))
    elif csv is None:
        print_settings(rows, hide=differing)
    elif str(csv) == "-":
        print(as_csv(rows), end="")
    else:
        with writing("The table", csv, "choose another file"):
            replace(csv, as_csv(rows).encode())
        print(f"{len(rows)} rows of {len(rows[0])} columns: {csv}")
    return OK


@app.command
def figure(
    *what: str,
    probe: Many = (),
    scale: Literal["quick", "paper"] = "quick",
    style: Literal["screen", "paper"] = "screen",
    form: Annotated[tuple[Format, ...], Parameter(name="--format", negative="", show_default=False)] = FORMATS,
    to: Path = Path("figures"),
    out: Runs = Path("runs"),
    json: Json = False,
) -> int:
    """Draw stored runs or panels as SVG and PDF files, with the plotted numbers as CSV.

    Stored runs that are given together share one figure, grouped by the settings in which they differ. A panel that
    was reproduced before is not computed again.

    Parameters
    ----------
    what
        Stored runs (.nc), folders of them, or sweeps (.sweep.json); or panels such as `chen2022/fig1`, or papers such
        as `chen2022` for all of their panels.
    probe
        The probe to draw, for stored runs; repeat the option for several. All probes if omitted.
    scale
        The scale of a panel, as for `unlazy reproduce`.
    style
        `screen`, or `paper` for figures of column or page width with fonts that match LaTeX.
    form
        The format of a file; repeat the option for several. All formats if omitted.
    to
        Folder to which the figures are written.
    json
        Print the file names as JSON.
    """
    if not what:
        raise UserError("There is nothing to draw: give stored runs (.nc), folders of runs, or panels.")
    from unlazy.report.figures import own_runs

    files, names = own_runs(what)
    if probe and names:
        raise UserError(f"'{names[0]}' is not a stored run, and --probe chooses among the probes of stored runs only.")
    from unlazy.report import draw, export, run_panel, stem

    written: list[Path] = []
    if files:
        from unlazy.figures import curves
        from unlazy.lab import read_run

        drawn = curves([read_run(path) for path in files], probe or None, style)
        writable(to, "Figures", "--to")
        name = files[0].stem if len(files) == 1 else "runs"
        target = to / "-".join([name, *(one.replace("/", "-") for one in probe)])
        written += export(drawn, name, target, form, style)
    if names:
        begin()
        from unlazy.papers import choose

        chosen = [one for name in names for one in choose(name)]
        writable(to, "Figures", "--to")
        with deferred(), in_lab(out, fresh=False) as lab:
            for one in chosen:
                drawn = draw(one, run_panel(one, scale, lab), style)
                written += export(drawn, one.title, to / stem(one.key, scale), form, style)
    print_json(list(map(str, written))) if json else print(*written, sep="\n")
    return OK


@app.command
def watch(
    runs: Path = Path("runs"), /, *, host: str = "127.0.0.1", port: int = 0, remote: Flag = False, json: Json = False
) -> int:
    """Serve a local web page that shows runs in progress: losses, probes, progress and remaining time.

    Start it in a second terminal, while `unlazy run` or another command is computing. It changes nothing in the folder.

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

    def announce(address: str) -> None:
        print(f"Watching {runs} at {address} (Ctrl-C ends it)", flush=True)

    print_json(plain(jobs(runs))) if json else serve(runs, host, port, remote, announce)
    return OK


@app.command
def cite(run: Path, /, *more: Path, json: Json = False) -> int:
    """Print BibTeX for the papers, data sets, methods and libraries that runs used.

    Parameters
    ----------
    run
        A stored run (.nc), the record of a panel (.json), a recipe (.toml) or a folder of results.
    more
        More of these. Files that cannot be used are named and left out.
    json
        Print JSON instead: the entries by key.
    """
    from unlazy.report.citations import cite as entries

    found = entries(run, *more)
    print_json(found) if json else print(*found.values(), sep="\n\n")
    return OK


@app.command
def verify(runs: Path = Path("runs"), /, *, json: Json = False) -> int:
    """Check all files in a folder of results against their checksums, and name those that are damaged.

    Everything in stored runs, checkpoints, sweeps, certificates, diagnoses and records of panels is read. Nothing is
    changed: delete a damaged file, and the command that wrote it writes it again. The exit status is 1 if a file is
    damaged and 0 otherwise. Files that older versions wrote without a checksum are counted, but are not an error.

    Parameters
    ----------
    runs
        Folder of results.
    json
        Print one object for each file as JSON, instead of a table of those with a problem.
    """
    from unlazy.report.verify import print_checks
    from unlazy.report.verify import verify as check

    found = check(runs)
    print_checks(found, json)
    return CLAIM_FAILED if any(one.damaged for one in found) else OK
