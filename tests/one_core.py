"""Gives each test worker a core to itself, where there are several workers.

Workers that all run threads on all cores wait for one another more than they work. Import this before anything that
counts cores: JAX, NumPy.
"""

import os

_worker = os.environ.get("PYTEST_XDIST_WORKER", "")

if _worker and hasattr(os, "sched_setaffinity"):
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_worker.removeprefix("gw")) % len(_cores)]})
