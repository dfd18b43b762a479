"""The short version of the chaos suite; `make chaos` runs the long one."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PARTS = [name for name in ("kills", "damages", "recipes", "sharing", "calls") if (HERE / f"{name}.py").exists()]


@pytest.mark.chaos
@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_lost_and_nothing_is_wrong(part):
    done = subprocess.run([sys.executable, str(HERE), part], capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
