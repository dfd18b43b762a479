"""Gives each test worker a core to itself, where there are several workers, and lets XLA compile in haste and once.

Workers that all run threads on all cores wait for one another more than they work, and most of their work is compiling:
what a test compiles it runs once or twice. Workers and the commands they start share what they compile, for as long as
the tests run. Where Python is told to write no bytecode, it goes to the cache of pytest instead of the source tree.
Import this before anything that counts cores or compiles: JAX, NumPy.
"""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

gc.disable()  # until tests are collected (tests/conftest.py): imports leave nothing to collect

_worker = os.environ.get("PYTEST_XDIST_WORKER", "")

if _worker and hasattr(os, "sched_setaffinity"):
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_worker.removeprefix("gw")) % len(_cores)]})

# XLA aborts on flags that it does not know: only the release gets them that has been seen to take them.
if "XLA_FLAGS" not in os.environ and version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_use_fusion_emitters=false "
        "--xla_backend_optimization_level=0 "
        "--xla_cpu_parallel_codegen_split_count=1"
    )

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers find it set
    _compiled = tempfile.mkdtemp(prefix="unlazy-tests-")
    atexit.register(shutil.rmtree, _compiled, ignore_errors=True)
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": _compiled,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

if sys.dont_write_bytecode:  # otherwise every worker and every command that a test starts compiles JAX from its source
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
