"""A tiny recipe that all tests of the lab share, so that its shapes are compiled once."""

import contextlib
import copy
import resource

import pytest

TABLE = {
    "name": "tiny",
    "seeds": 2,
    "data": {"kind": "random-labels", "n": 6, "d": 3},
    "network": {"kind": "two-layer", "width": 8},
    "flow": {"kind": "descent", "rate": 0.25},
    "times": [0.0, 0.5, 1.0, 2.0],
    "probes": ["train-loss", "weight-movement"],
}


@pytest.fixture
def table():
    """The tiny recipe as a table that the test may change."""
    return copy.deepcopy(TABLE)


@pytest.fixture
def full_disk():
    """A context in which no file can grow, as on a full disk: the system itself refuses."""

    @contextlib.contextmanager
    def full():
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return full
