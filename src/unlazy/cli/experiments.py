"""Commands that run things: panels, recipes, theorems, benchmarks."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Literal

from unlazy._errors import Notice, UserError, suggest
from unlazy.cli.application import CLAIM_FAILED, OK, app, begin, in_lab, interruptible, must_exist, screen
from unlazy.cli.options import AsJson, Count, Flag, Fresh, Json, Runs, Set, Snapshots, Workers

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"  # never that of the current folder, which may be anybody's


@app.command
@interruptible
def demo(*, out: Runs = Path("runs"), report: Path = Path("report.html"), json: Json = False) -> int:
    """Run one quick panel of each paper, and write a report.

    A panel is a figure of a paper, together with the claims that the paper makes about it. Each is drawn at a small
    size, and its claims are checked on the results; `unlazy reproduce` runs individual panels, also at the size of the
    paper. A panel that cannot be run here, for example because its data are not available, is left out with a notice.
    The exit status is 0 even if a claim does not hold.

    Parameters
    ----------
    report
        The HTML file to write.
    json
        Print one JSON object per panel instead of a table.
    """
    begin()
    from unlazy.papers import panels
    from unlazy.report import gather, reproduce, write_report
    from unlazy.report.html import find_place
    from unlazy.report.terminal import print_records

    find_place(report, "--report")
    done, missing = [], {}
    with in_lab(out, fresh=False) as lab:
        for panel in (panel for panel in panels().values() if panel.demo):
            try:
                done.append(reproduce(panel, "quick", lab))
            except UserError as error:
                missing[panel.key] = error
    for name, error in missing.items():
        if not done:
            raise error
        warnings.warn(f"{name} is left out of the report: {error}", Notice, stacklevel=1)
    write_report(gather([out], only={(record.panel, record.scale) for record in done}), report)
    print_records(done, json)
    if not json:
        print(f"Report: {report}")
    return OK


@app.command
@interruptible
def reproduce(
    panel: str,
    /,
    *,
    scale: Literal["quick", "paper"] = "quick",
    seeds: Count = None,
    workers: Workers = 1,
    out: Runs = Path("runs"),
    fresh: Fresh = False,
    stored: Flag = False,
    json: Json = False,
) -> int:
    """Reproduce a figure of a paper, and check the paper's claims about it.

    `unlazy panels` lists the figures. The drawing and a record of the claims are written to OUT/panels, where `unlazy
    report` finds them. A claim holds, does not hold, is undecided by these runs, or is vacuous: nothing could have
    contradicted it. The exit status is 1 if a claim does not hold and 0 otherwise.

    Parameters
    ----------
    panel
        A panel such as `chen2022/fig1`, a paper such as `chen2022` for all of its panels, or a panel of your own as
        `mypackage.module:Name`.
    scale
        `quick` takes at most about two minutes; `paper` uses the sizes of the paper.
    seeds
        Number of seeds; that of the scale if omitted.
    stored
        Compute nothing: check the claims on stored results, and draw them again. Panels whose results are not all
        stored are left out.
    json
        Print one JSON object per panel instead of a table.
    """
    if stored and fresh:
        raise UserError("--stored computes nothing and --fresh everything: choose one of them.")
    begin()
    from unlazy.papers import choose
    from unlazy.report import is_stored, stem
    from unlazy.report import reproduce as run
    from unlazy.report.terminal import print_records

    chosen = choose(panel)
    with in_lab(out, fresh) as lab:
        if stored:
            missing = [one.key for one in chosen if not is_stored(one, scale, lab, seeds)]
            chosen = [one for one in chosen if one.key not in missing]
            if not chosen:
                raise UserError(f"The results of {', '.join(missing)} at {scale} scale are not all in '{out}'.")
            if missing:
                screen.print(f"Not all results are in '{out}', left out: {', '.join(missing)}.")
        done = [run(one, scale, lab, seeds, workers) for one in chosen]
    print_records(done, json)
    if not json:
        for record in done:
            print(f"Figure: {out / 'panels' / stem(record.panel, record.scale)}.svg")
    return CLAIM_FAILED if any(record.fails for record in done) else OK


@app.command
@interruptible
def run(
    recipe: Path,
    /,
    *more: Path,
    set: Set = (),
    workers: Workers = 1,
    out: Runs = Path("runs"),
    fresh: Fresh = False,
    snapshots: Snapshots = 16.0,
    json: Json = False,
) -> int:
    """Run recipes (TOML files), and store the results as netCDF files.

    A recipe names data, a network, a flow that trains it, the times at which it is observed, and the probes that
    observe it; `unlazy list` shows what can be named. Results are written to OUT/NAME-DIGEST.nc.

    Only what is not stored yet is computed: nothing for a recipe with another name, one seed for an additional seed,
    the remaining time for later times. New probes are evaluated on stored networks. The exit status is 0 if every seed
    reached the last time and 1 otherwise.

    Parameters
    ----------
    recipe
        The TOML file of the recipe. The folder `examples` has some to start from.
    more
        Further recipes.
    json
        Print JSON instead of tables: an object for one recipe, a list of objects for several.
    """
    files = list(dict.fromkeys((recipe, *more)))  # a file that is given twice is run once
    for path in files:
        must_exist(path)
    from unlazy.lab import parse_setting, read
    from unlazy.report.terminal import print_runs

    settings = [parse_setting(one) for one in set]
    wanted = [read(path, settings) for path in files]
    begin()
    with in_lab(out, fresh, snapshots=snapshots) as lab:
        if len(wanted) == 1:
            results = {"": lab.run(wanted[0])}
        else:
            results = lab.run_all({str(path): one for path, one in zip(files, wanted, strict=True)}, workers)
    runs = [(result, one.name, lab.store.path(one)) for result, one in zip(results.values(), wanted, strict=True)]
    print_runs(runs, json)
    return OK if all(result.attrs["finished"] for result in results.values()) else CLAIM_FAILED


@app.command
@interruptible
def certify(recipe: Path, /, *, theorem: str | None = None, out: Runs = Path("runs"), json: Json = False) -> int:
    """Run a recipe, and say which theorems apply to the run and whether they hold.

    The verdict of a theorem is HOLDS; FAILS; SILENT, if one of its hypotheses is not met; or VACUOUS, if its bound is
    trivial here. `unlazy theorems` lists the theorems. A stored run is used if there is one, and probes that the
    theorems need are evaluated on its stored networks. The verdicts are stored for reports. The exit status is 1 if a
    theorem fails and 0 otherwise.

    Parameters
    ----------
    recipe
        A recipe (.toml), a stored run (.nc), or the record of a panel (.json), all of whose recipes are taken.
    theorem
        One theorem such as `chen2022/theorem-1`, a paper such as `chen2022`, or one of your own as
        `package.module:Name`; all theorems if omitted.
    json
        Print JSON, with every hypothesis and its numbers, instead of a table.
    """
    must_exist(recipe)
    from unlazy.lab import certify as check
    from unlazy.lab import store_certificates
    from unlazy.report import recipes
    from unlazy.report.terminal import print_certificates
    from unlazy.theory import Verdict, choose

    wanted, chosen = recipes(recipe), choose(theorem)
    begin()
    found = {}
    with in_lab(out, fresh=False) as lab:
        for label, one in wanted.items():
            found[label] = check(one, chosen, lab)
            store_certificates(out, one, found[label])
    print_certificates(found, json)
    failed = any(one.finding.verdict is Verdict.FAILS for some in found.values() for one in some)
    return CLAIM_FAILED if failed else OK


@app.command
def bench(name: str | None = None, /, *, json: AsJson = False) -> int:
    """Measure how fast unlazy is compared with a baseline, such as PyTorch, timed in the same run.

    The benchmarks are the files in the folder `benchmarks` of a clone of the repository; the installed package does not
    contain them. Use an otherwise idle machine.

    Parameters
    ----------
    name
        Name of a benchmark; all of them if omitted.
    """
    from unlazy.report.terminal import print_benchmarks

    if not BENCHMARKS.is_dir():
        advice = "install unlazy from a clone of the source by `pip install -e .`, and call this command again"
        raise UserError(f"The benchmarks are not part of the installed package: {advice}.")
    known = {path.stem: path for path in sorted(BENCHMARKS.glob("*.py")) if not path.stem.startswith("_")}
    if name is not None and name not in known:
        raise UserError(f"There is no benchmark called '{name}'. {suggest(name, known)}")
    tables = []
    for stem in [name] if name else known:
        screen.print(f"Measuring {stem} ...")
        tables.append(runpy.run_path(str(known[stem]), run_name=f"benchmarks_{stem}")["measure"]())
    print_benchmarks(tables, json)
    return OK
