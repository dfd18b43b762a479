"""Workers and the command itself are killed during a sweep: all runs are there at the end, with the same bits."""

import importlib.util
from pathlib import Path

import pytest
import tomli_w

FILE = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.fixture(scope="module")
def kills():
    spec = importlib.util.spec_from_file_location("kills", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_kills_of_workers_and_client_change_no_bit(kills, tmp_path):
    path = tmp_path / "killed.toml"
    table = kills.TABLE | {"times": {"end": 5000.0, "count": 51}, "sweep": {"seed": [0, 1, 2]}}
    path.write_text(tomli_w.dumps(table))
    with kills.start(path, tmp_path / "whole") as whole:
        assert whole.wait() == 0
    killed, stopped, message = kills.disturbed(path, tmp_path / "killed", 2, 1, 0, 2.0)
    assert (killed, stopped) == (2, 1), message
    assert len(list((tmp_path / "killed").glob("*.nc"))) == 6
    assert kills.differences(tmp_path / "whole", tmp_path / "killed") == []
