"""Options that choose where runs are computed, and scripts for job arrays."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from unlazy._errors import UserError

if TYPE_CHECKING:
    from unlazy.lab import Engine

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
