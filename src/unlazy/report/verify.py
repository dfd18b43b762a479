"""`unlazy verify`: every file in a folder of results is read and compared with its checksums; nothing is changed."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unlazy._errors import UserError
from unlazy._plain import parse_json, read_sealed, read_text
from unlazy._terminal import print_json, print_table
from unlazy.flows import read_checkpoint
from unlazy.lab import read_run, tracks
from unlazy.lab.certificates import read_certificates
from unlazy.lab.claims import ended
from unlazy.lab.store import LIVE
from unlazy.report.diagnoses import read_diagnosis
from unlazy.report.record import read_record

OK, NOT_SEALED, LEFT, DAMAGED = "in order", "not sealed", "left behind", "damaged"

Check = Callable[[Path], tuple[str, str]]  # of a file: its state, and why


@dataclass(frozen=True)
class Checked:
    """The state of one file."""

    file: str  # relative to the folder
    kind: str
    state: str  # OK, NOT_SEALED if an older version wrote no checksum, LEFT by a process that was killed, or DAMAGED
    why: str = ""  # what is wrong

    @property
    def damaged(self) -> bool:
        """Whether the file is damaged."""
        return self.state == DAMAGED


def verify(folder: Path) -> list[Checked]:
    """Check all files in a folder of results."""
    if not folder.is_dir():
        raise UserError(f"There is no folder '{folder}' to verify: give a folder of results.")
    found = []
    for kind, pattern, check in _KINDS:
        for path in sorted(folder.glob(pattern)):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                path.lstat()
                found.append(Checked(str(path.relative_to(folder)), kind, *_state(path, check)))
    return found


def _state(path: Path, check: Check) -> tuple[str, str]:
    try:
        return check(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever libraries raise on a damaged file
        return DAMAGED, str(error) or type(error).__name__


def _readable(read: Callable[[Path], object], sealed: bool = False) -> Check:
    """Return a check that reads a file and verifies its checksums; JSON files of older versions are not sealed."""

    def check(path: Path) -> tuple[str, str]:
        read(path)
        if sealed and not read_sealed(path)[1]:
            return NOT_SEALED, "written by an older version, without a checksum"
        return OK, ""

    return check


def _checkpoint(path: Path) -> tuple[str, str]:
    header, _ = read_checkpoint(path)
    return OK, f"on the way to t = {float(header['target']):g}"


def _in_use(why: str, process: Callable[[Any], Any] = lambda content: content) -> Check:
    """Return a check of files that a running process owns; ``process`` finds it in their content."""

    def check(path: Path) -> tuple[str, str]:
        left = ended(process(parse_json(read_text(path))), path.stat().st_mtime)
        return (LEFT, f"its process has ended, and {why}") if left else (OK, "")

    return check


_CONTINUES = "the same command continues from its last checkpoint"
_PART = "a file that was being written when its process was killed; the next run removes it"
_KINDS: tuple[tuple[str, str, Check], ...] = (
    ("run", "*.nc", _readable(read_run)),
    ("track", "trajectories/*.npz", _readable(tracks.check)),
    ("checkpoint", "*.checkpoint", _checkpoint),
    ("progress", f"*{LIVE}", _in_use(_CONTINUES, lambda content: content.get("process"))),
    ("claim", "**/*.claim", _in_use("the next one that needs it takes it over")),
    ("sweep", "*.sweep.json", _readable(read_text, sealed=True)),
    ("certificates", "certificates/*.json", _readable(read_certificates, sealed=True)),
    ("record", "panels/*.json", _readable(read_record, sealed=True)),
    ("diagnosis", "diagnoses/*.json", _readable(read_diagnosis, sealed=True)),
    ("temporary file", "**/.*.part", lambda path: (LEFT, _PART)),
)


def print_checks(found: Sequence[Checked], as_json: bool) -> None:
    """Print those of the files that `verify` found not in order, and counts of all; or all of them as JSON."""
    if as_json:
        print_json([asdict(one) for one in found])
        return
    odd = [one for one in found if one.state != OK]
    if odd:
        print_table(["file", "is", "why"], [[one.file, one.state, one.why] for one in odd], least=3)
    print(". ".join(_sentences(found)) + ".")


def _sentences(found: Sequence[Checked]) -> Iterator[str]:
    kinds = Counter(one.kind for one in found)
    yield f"{len(found)} files" + (f" ({json.dumps(kinds)[1:-1]})".replace('"', "") if kinds else "")
    states = Counter(one.state for one in found)
    yield ", ".join(f"{states[state]} {state}" for state in (OK, NOT_SEALED, LEFT, DAMAGED) if states[state]) or "none"
