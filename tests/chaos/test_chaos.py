"""The short version of the chaos suite; `make chaos` runs the long one."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.chaos
def test_nothing_is_lost_and_nothing_is_wrong():
    done = subprocess.run([sys.executable, Path(__file__).parent], capture_output=True, text=True, timeout=1800)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
