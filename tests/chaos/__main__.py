"""The chaos suite: `python tests/chaos [kills damages recipes calls sharing] [--long] [--seed 0] [--count N]`.

Each part prints a table of counted outcomes, and each one that should not be. The exit status is 1 if there are any.
"""

import os
import sys

sys.path[1:1] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import one_core  # noqa: E402, F401, I001  (before anything that compiles)
import argparse  # noqa: E402
import importlib  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

from forked import in_lanes  # noqa: E402

LONG = {"kills": 500, "damages": 2000, "recipes": 10_000, "calls": 2000, "sharing": 10}
SHORT = {"kills": 18, "damages": 200, "recipes": 200, "calls": 100, "sharing": 1}
CORES = len(os.sched_getaffinity(0))


def table(rows):
    """Print rows of counts under the names of the columns."""
    head = list(dict.fromkeys(name for row in rows for name in row))
    cells = [head, *[[str(row.get(name, 0)) for name in head] for row in rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for row in cells:
        print(
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[])
    parser.add_argument("--long", action="store_true", default=os.environ.get("CHAOS") == "long")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=CORES, help="the number of processes that divide the trials")
    given = parser.parse_args()
    failed = 0
    for part in given.parts or LONG:
        count = given.count or (LONG if given.long else SHORT)[part]
        trial = getattr(importlib.import_module(part), part)
        begun, before = time.monotonic(), os.times()
        with tempfile.TemporaryDirectory(prefix="unlazy-chaos-") as place:
            if part == "sharing":  # many processes on all cores
                rows, wrong = trial(range(count), given.seed, Path(place))
            else:
                rows, wrong = in_lanes(trial, count, given.seed, Path(place), given.lanes)
        done = sum(row.get("trials", 0) for row in rows)
        if done < count:
            wrong.append(f"{part}: only {done} trials of {count}")
        after = os.times()
        spent = sum(after[:4]) - sum(before[:4])
        print(f"\n{part}: {time.monotonic() - begun:.0f} s, of which {spent:.0f} s of computing on {CORES} cores")
        table(rows)
        for one in wrong[:20]:
            print(f"WRONG: {one}")
        if len(wrong) > 20:
            print(f"... {len(wrong)} in all")
        sys.stdout.flush()
        failed += len(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
