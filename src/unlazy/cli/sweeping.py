"""The commands that run many variants of one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unlazy.cli.application import CLAIM_FAILED, OK, Fresh, Json, Out, Set, app, begin, count, in_lab, must_exist


@app.command
def sweep(
    file: Path,
    /,
    *,
    set: Set = (),
    dry_run: Annotated[bool, Parameter(name=["--dry-run", "-n"], negative="", show_default=False)] = False,
    workers: Annotated[int, Parameter(converter=count)] = 1,
    limit: Annotated[int | None, Parameter(converter=count)] = None,
    out: Out = Path("runs"),
    fresh: Fresh = False,
    snapshots: float = 16.0,
    json: Json = False,
) -> int:
    """Run a recipe for several values of its fields.

    A list where a recipe has one value is swept over: with `width = [64, 128, 256]` and `scaling = ["ntk",
    "mean-field"]` in `[network]` there are six runs. The section `[sweep]` says the same for any field:

        [sweep]
        network.width = [64, 128, 256]
        flow.rate = { from = 0.01, to = 1.0, count = 5, spacing = "log" }

    Lists in `[sweep.zip]` advance together; `[sweep.random]` draws `count` points from laws such as `flow.rate = {
    log-uniform = [1e-3, 1.0] }`; `[[sweep.points]]` gives points one by one; all of these are combined with each other.
    `[sweep.derived]` computes fields from others, as in `flow.rate = "0.1 / network.width"`.

    Only what is not stored yet is computed, and after Ctrl-C the same command goes on. The list of runs is written to
    OUT as NAME-DIGEST.sweep.json. The exit status is 0 if every run reached its last time and 1 otherwise.

    Parameters
    ----------
    file
        The TOML file: a recipe with lists, or with a section `sweep`.
    set
        Set a field first, as in `--set network.width=512` or `--set "seed=[0, 1]"`; may be repeated.
    dry_run
        Only list the runs, which of them are stored, and an estimate of time and memory.
    workers
        Number of processes that share the work; each gets an equal share of the cores.
    limit
        The largest number of runs; 10000 unless the file says otherwise.
    out
        Folder of stored results. Several commands can use it at the same time.
    fresh
        Compute everything again.
    snapshots
        Space, in MiB per seed, for snapshots of the trained parameters, on which new probes can be evaluated later.
    json
        Print JSON instead of a table.
    """
    must_exist(file)
    from unlazy.lab import Sweep, parse_setting
    from unlazy.report.terminal import print_sweep

    begin()
    wanted = Sweep.read(file, [parse_setting(one) for one in set], limit)
    with in_lab(out, fresh, len(wanted.points()), snapshots=snapshots) as lab:
        results = lab.sweep(wanted, workers)
    print_sweep(wanted, results, lab.store, json)
    return OK if all(result.attrs["finished"] for result in results.values()) else CLAIM_FAILED
