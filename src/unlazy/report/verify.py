"""`unlazy verify`: every file in a folder of results is read and compared with its checksums; nothing is changed."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from unlazy._errors import UserError
from unlazy._plain import parse_json, read_text, unseal
from unlazy._terminal import print_json, print_table
from unlazy.flows import read_checkpoint
from unlazy.lab import read_run, tracks
from unlazy.lab.certificates import read_certificates
from unlazy.lab.claims import ended
from unlazy.lab.store import LIVE
from unlazy.report.diagnoses import read_diagnosis
from unlazy.report.record import read_record

OK, NOT_SEALED, LEFT, DAMAGED = "in order", "not sealed", "left behind", "damaged"
_OLD = "written by an older version, without a checksum"


@dataclass(frozen=True)
class Checked:
    """What was found out about one file.

    Attributes
    ----------
    file, kind
        The file, relative to the folder, and what it is.
    state
        "in order"; "not sealed", where an older version wrote no checksum; "left behind", by a process that was killed;
        or "damaged".
    why
        What is wrong, in a sentence.
    """

    file: str
    kind: str
    state: str
    why: str = ""

    @property
    def damaged(self) -> bool:
        """Whether the file is damaged."""
        return self.state == DAMAGED


def verify(folder: Path) -> list[Checked]:
    """Check all files in a folder of results.

    Parameters
    ----------
    folder
        The folder.
    """
    if not folder.is_dir():
        raise UserError(f"There is no folder '{folder}' to verify: give a folder of results.")
    found = []
    for kind, pattern, check in _KINDS:
        for path in sorted(folder.glob(pattern)):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                path.lstat()
                found.append(Checked(str(path.relative_to(folder)), kind, *_state(path, check)))
    return found


def _state(path: Path, check: Callable[[Path], tuple[str, str]]) -> tuple[str, str]:
    try:
        return check(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever libraries raise on a damaged file
        return DAMAGED, str(error) or type(error).__name__


def _run(path: Path) -> tuple[str, str]:
    read_run(path)
    return OK, ""


def _track(path: Path) -> tuple[str, str]:
    tracks.check(path)
    return OK, ""


def _checkpoint(path: Path) -> tuple[str, str]:
    header, _ = read_checkpoint(path)
    return OK, f"on the way to t = {float(header['target']):g}"


def _claim(path: Path) -> tuple[str, str]:
    if ended(parse_json(read_text(path)), path.stat().st_mtime):
        return LEFT, "its process has ended, and the next one that needs it takes it over"
    return OK, ""


def _live(path: Path) -> tuple[str, str]:
    content = parse_json(read_text(path))
    if ended(content.get("process"), path.stat().st_mtime):
        return LEFT, "its process has ended, and the same command goes on from its last checkpoint"
    return OK, ""


def _part(path: Path) -> tuple[str, str]:
    return LEFT, "a file that was being written when its process was killed; the next run removes it"


def _sealed(read: Callable[[Path], object] | None) -> Callable[[Path], tuple[str, str]]:
    def check(path: Path) -> tuple[str, str]:
        if read is not None:
            read(path)
        sealed = unseal(parse_json(read_text(path)))[1]
        return (OK, "") if sealed else (NOT_SEALED, _OLD)

    return check


_KINDS: tuple[tuple[str, str, Callable[[Path], tuple[str, str]]], ...] = (
    ("run", "*.nc", _run),
    ("track", "trajectories/*.npz", _track),
    ("checkpoint", "*.checkpoint", _checkpoint),
    ("progress", f"*{LIVE}", _live),
    ("claim", "**/*.claim", _claim),
    ("sweep", "*.sweep.json", _sealed(None)),
    ("certificates", "certificates/*.json", _sealed(read_certificates)),
    ("record", "panels/*.json", _sealed(read_record)),
    ("diagnosis", "diagnoses/*.json", _sealed(read_diagnosis)),
    ("temporary file", "**/.*.part", _part),
)


def print_checks(found: Sequence[Checked], as_json: bool) -> None:
    """Print the files that are not in order, and counts of all; or all of them as JSON.

    Parameters
    ----------
    found
        What `verify` returned.
    as_json
        Whether to print JSON.
    """
    if as_json:
        print_json([asdict(one) for one in found])
        return
    odd = [one for one in found if one.state != OK]
    if odd:
        print_table(["file", "is", "why"], [[one.file, one.state, one.why] for one in odd])
    print(". ".join(_sentences(found)) + ".")


def _sentences(found: Sequence[Checked]) -> Iterator[str]:
    kinds = Counter(one.kind for one in found)
    yield f"{len(found)} files" + (f" ({json.dumps(kinds)[1:-1]})".replace('"', "") if kinds else "")
    states = Counter(one.state for one in found)
    yield ", ".join(f"{states[state]} {state}" for state in (OK, NOT_SEALED, LEFT, DAMAGED) if states[state]) or "none"
