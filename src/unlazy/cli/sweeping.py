"""The commands that run many variants of one recipe."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from unlazy._errors import UserError
from unlazy._files import writable
from unlazy.cli.application import CLAIM_FAILED, OK, app, begin, in_lab, interruptible, must_exist, screen
from unlazy.cli.options import AsJson, Count, Flag, Fresh, Runs, Set, Snapshots, Workers

if TYPE_CHECKING:
    from unlazy.lab import Engine, Sweep

DryRun = Annotated[Flag, Parameter(name=["--dry-run", "-n"])]
_SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --output={name}-%A-%a.log
# Two minutes before the time is over the runs save their state: submit the script again, and they continue.

cd {folder}
exec {command} --part "$SLURM_ARRAY_TASK_ID/{jobs}"
"""


@app.command
@interruptible
def sweep(
    file: Path,
    /,
    *,
    set: Set = (),
    dry_run: DryRun = False,
    workers: Workers = 1,
    cluster: str | None = None,
    slurm: Path | None = None,
    pbs: Path | None = None,
    part: str | None = None,
    print_array: Count = None,
    limit: Count = None,
    out: Runs = Path("runs"),
    fresh: Fresh = False,
    snapshots: Snapshots = 16.0,
    json: AsJson = False,
) -> int:
    """Run a recipe for several values of its fields.

    A list where a recipe has one value is swept over: with `width = [64, 128, 256]` and `scaling = ["ntk",
    "mean-field"]` in `[network]` there are six runs. The section `[sweep]` says the same for any field:

        [sweep]
        network.width = [64, 128, 256]
        flow.rate = { from = 0.01, to = 1.0, count = 5, spacing = "log" }

    Lists in `[sweep.zip]` advance together; `[sweep.random]` draws `count` points from distributions such as
    `flow.rate = { log-uniform = [1e-3, 1.0] }`; `[[sweep.points]]` gives points one by one. Each point of one of these
    is combined with each point of the others.
    `[sweep.derived]` computes fields from others, as in `flow.rate = "0.1 / network.width"`.

    Only what is not stored yet is computed, and after Ctrl-C the same command continues. The list of runs is written to
    OUT as NAME-DIGEST.sweep.json. The exit status is 0 if every run reached its last time and 1 otherwise.

    Parameters
    ----------
    file
        The TOML file: a recipe with lists, or with a section `sweep`.
    dry_run
        Compute nothing: list the runs, say which are stored, and estimate time and memory.
    cluster
        Compute on a running Dask cluster with this address of its scheduler, such as `tcp://10.0.0.1:8786`.
    slurm
        Compute in SLURM jobs, which are started as Dask workers, with options from this TOML file, such as `jobs = 10`,
        `cores = 4`, `memory = "8GB"` and `walltime = "04:00:00"`.
    pbs
        The same in PBS jobs.
    part
        Compute only one part of the runs, `i/N` with i from 0 to N - 1, so that N processes, for example on N machines,
        share the work without a scheduler.
    print_array
        Print a script for `sbatch` that runs this number of parts as a job array, and do nothing else.
    limit
        The largest number of runs; 10000 unless the file says otherwise.
    """
    must_exist(file)
    from unlazy.lab import Sweep, parse_setting
    from unlazy.report.terminal import print_sweep

    begin()
    wanted = Sweep.read(file, [parse_setting(one) for one in set], limit)
    if dry_run:
        return _preview(wanted, out, fresh, workers, json)
    if print_array is not None:
        print(array_script(print_array, wanted.name), end="")
        return OK
    chosen = engine(workers, cluster, slurm, pbs)
    with in_lab(out, fresh, snapshots=snapshots) as lab:
        results = lab.sweep(wanted, workers, chosen, part)
    print_sweep(wanted, results, lab.store, json)
    return OK if all(result.attrs["finished"] for result in results.values()) else CLAIM_FAILED


@app.command
@interruptible
def phase(
    file: Path,
    /,
    *,
    set: Set = (),
    dry_run: DryRun = False,
    workers: Workers = 1,
    limit: Count = None,
    out: Runs = Path("runs"),
    figure: Path | None = None,
    fresh: Fresh = False,
    json: AsJson = False,
) -> int:
    """Draw a phase diagram: where runs change from one regime to another, over two fields of a recipe.

    The file is a sweep over two fields, with a section `[phase]` that says what is measured:

        [sweep]
        network.readout = { from = 0.1, to = 100.0, count = 17, spacing = "log" }
        network.width = { from = 16, to = 1024, count = 13, spacing = "log" }

        [phase]
        measure = "kernel.drift"
        threshold = 0.1
        names = ["lazy", "rich"]
        theory = "network.readout = 10"

    `measure` is a quantity of a probe (`value` chooses "last", "ratio" of last and first, "largest" or "smallest"),
    "diverged", "diagnosis", or a function of your own from a run to a number or a word, as "mymodule:function". With
    `y = "time"` the observed times are the second axis. `theory`, an equation in the two fields, is drawn beside the
    measured boundary.

    A coarse grid is run first (`coarse = 5` values along each axis), then only cells with different regimes in them.
    All runs are stored like those of `unlazy sweep`, and after Ctrl-C the same command continues. The map and its
    numbers are written to OUT/diagnoses, where `unlazy report` finds them.

    Parameters
    ----------
    file
        The TOML file: a recipe with sections `sweep` and `phase`.
    dry_run
        Compute nothing: list the runs of the full grid, say which are stored, and estimate time and memory.
    limit
        The largest number of points of the grid; 10000 unless the file says otherwise.
    figure
        Another file to draw the map to (.png, .pdf or .svg).
    """
    must_exist(file)
    from unlazy.lab import Phase, parse_setting, phase_diagram
    from unlazy.report.terminal import print_phase

    begin()
    wanted = Phase.read(file, settings=[parse_setting(one) for one in set], limit=limit)
    if dry_run:
        return _preview(wanted.sweep, out, fresh, workers, json)
    writable(out / "diagnoses", "The map", "--out")
    if figure is not None:
        writable(figure.absolute().parent, "The map", "--figure")
    with in_lab(out, fresh) as lab:
        found = phase_diagram(wanted, lab, workers)
    path = found.save(out / "diagnoses" / wanted.file_name())
    if figure is not None:
        found.plot().savefig(figure)
    print_phase(found, path, json)
    return OK


def _preview(sweep: Sweep, out: Path, fresh: bool, workers: int, json: bool) -> int:
    from unlazy.lab import Lab
    from unlazy.lab.estimates import preview
    from unlazy.report.terminal import print_preview

    points = sweep.points()
    with screen.status(f"Looking for {len(points)} runs ..."):
        found = preview(Lab(out, fresh=fresh), points)
    print_preview(found, sweep.fields, workers, json)
    return OK


def engine(workers: int, cluster: str | None, slurm: Path | None, pbs: Path | None) -> Engine | None:
    """Return the engine that the options choose; None for processes on this machine."""
    given = [name for name, one in (("--cluster", cluster), ("--slurm", slurm), ("--pbs", pbs)) if one is not None]
    if len(given) > 1 or (given and workers > 1):
        both = " and ".join([*given, "--workers"][:2])
        raise UserError(f"{both} exclude each other, as each says where runs are computed: give only one of them.")
    from unlazy.lab import BatchSystem, Dask

    if cluster is not None:
        return Dask(cluster)
    if slurm is not None:
        return BatchSystem.read("slurm", slurm)
    return None if pbs is None else BatchSystem.read("pbs", pbs)


def array_script(jobs: int, name: str) -> str:
    """Return a script that runs this command as an array of SLURM jobs, each with its part of the runs."""
    given = sys.argv[1:]
    place = next(index for index, one in enumerate(given) if one.partition("=")[0] == "--print-array")
    kept = given[:place] + given[place + (1 if "=" in given[place] else 2) :]
    readable = "".join(letter if letter.isalnum() else "-" for letter in name).strip("-") or "unlazy"
    command = shlex.join([sys.executable, "-m", "unlazy", *kept])
    return _SCRIPT.format(name=readable, last=jobs - 1, jobs=jobs, folder=shlex.quote(str(Path.cwd())), command=command)
