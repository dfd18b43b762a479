"""Random calls of the API work or raise a `UserError`; the long version is part of the chaos suite."""

import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent / "chaos"))

from calls import outcome, random_call


def test_random_calls_work_or_are_refused():
    random, counts = Random(0), {"fine": 0, "refused": 0, "nonsense": 0}
    for _ in range(150):
        description, call = random_call(random)
        try:
            found = outcome(call)
        except Exception as error:
            raise AssertionError(f"{description}: {type(error).__name__}: {error}") from error
        assert found != "nonsense", description
        counts[found] += 1
    assert min(counts["fine"], counts["refused"]) > 20  # both kinds are drawn
