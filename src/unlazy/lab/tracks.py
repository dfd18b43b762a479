"""Tracks: what is stored of one trajectory that was observed along one list of times.

A track holds what probes observed, by digest of the probe and time; snapshots of the trained parameters at observed
times; and the state at its end, from which later times continue. It is one NumPy archive (.npz) whose entry ``header``
is JSON. The header has the SHA-256 digest of each entry, and there is a digest of the header; reading checks them all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from unlazy._errors import UserError
from unlazy._files import atomic_write
from unlazy._plain import parse_json

Parts = dict[tuple[str, ...], np.ndarray]  # what one probe observed at one time: the leaves of nested dictionaries

COUNTERS = ("steps", "rejected", "evaluations", "error")
_FORM = 1  # of the file
_PLAIN = ("merged", "counters", "status", "last", "method", "seconds", "made_by")  # fields that the header holds
_SAME = 1e-12  # relative distance within which two times are one


@dataclasses.dataclass
class Track:
    """What is stored of one trajectory."""

    asked: np.ndarray  # the requested times that were observed
    reached: np.ndarray  # the times that were reached (whole steps of descent)
    merged: list[tuple[float, int]]  # requested times on the same step as another, each with the index of the other
    counters: dict[str, list[float]]  # steps, rejected steps, evaluations and estimated error up to each observed time
    status: str  # the name of the `Status`; after the last time no other can be reached, unless `finished`
    last: dict[str, float]  # the counters where the run ended
    method: str
    seconds: float  # of computing
    made_by: dict[str, str]  # versions and machine
    observed: dict[str, dict[int, Parts]]  # by digest of the probe and index of the time
    snapshots: dict[int, list[np.ndarray] | Lazy]  # leaves of the trained parameters, by index of the time
    state: list[np.ndarray] | Lazy  # leaves of the flow's state at the last time
    path: Path | None = None  # the file, if the track is stored

    @property
    def finished(self) -> bool:
        """Whether the flow reached the last time, or stopped at a loss and stays there at all later times."""
        return self.status in ("finished", "loss_reached")

    def find(self, time: float) -> int | None:
        """Return the index of an observed time, or None."""
        near = np.flatnonzero(np.abs(self.asked - time) <= _SAME * abs(time))
        if near.size:
            return int(near[0])
        return next((index for one, index in self.merged if abs(one - time) <= _SAME * abs(time)), None)

    def select(self, times: Iterable[float]) -> tuple[list[int], bool]:
        """Return the indices of those ``times`` that were observed, and whether that is all of them."""
        places = [self.find(t) for t in times]
        return sorted({place for place in places if place is not None}), None not in places

    def stacked(self, digest: str, indices: list[int]) -> Parts:
        """Return what a probe observed at some times, stacked along a first axis; empty if there are no times."""
        values = [self.observed.get(digest, {})[index] for index in indices]
        return {part: np.stack([one[part] for one in values]) for part in values[0]} if values else {}

    def available(self, index: int) -> bool:
        """Whether the parameters at an observed time are known: stored, or those at the end or at the start."""
        return index in self.snapshots or index == len(self.asked) - 1 or self.asked[index] == 0


class Lazy(list):
    """Names of arrays in an archive, which are read when they are needed."""


def thinned(indices: Iterable[int], size: int, limit: float) -> list[int]:
    """Choose, evenly, as many times as there is room for snapshots of ``size`` bytes in ``limit`` MiB."""
    indices = sorted(indices)
    room = int(limit * 2**20 // max(size, 1))
    if len(indices) <= room:
        return indices
    chosen = np.linspace(0, len(indices) - 1, room + 2)[1:-1] if room else np.zeros(0)
    return [indices[int(place)] for place in np.round(chosen)]


def save(track: Track, path: Path, trajectory: str) -> None:
    """Write a track of a ``trajectory``, named by its digest, atomically."""
    arrays: dict[str, np.ndarray] = {"asked": track.asked, "reached": track.reached}
    probes = []
    for digest, by_index in track.observed.items():
        indices = sorted(by_index)
        parts = list(by_index[indices[0]]) if indices else []
        names = [f"observed-{len(arrays) + number}" for number in range(len(parts))]
        arrays |= {
            name: np.stack([by_index[index][part] for index in indices])
            for name, part in zip(names, parts, strict=True)
        }
        probes.append({"probe": digest, "times": indices, "parts": [list(part) for part in parts], "arrays": names})

    def put(name: str, leaves: list[np.ndarray] | Lazy) -> list[str]:
        named = {f"{name}-{number}": leaf for number, leaf in enumerate(leaves_of(track, leaves))}
        arrays.update(named)
        return list(named)

    header = {name: getattr(track, name) for name in _PLAIN} | {"form": _FORM, "observed": probes}
    header["trajectory"] = trajectory
    header["snapshots"] = {str(index): put(f"snapshot-{index}", leaves) for index, leaves in track.snapshots.items()}
    header["state"] = put("state", track.state)
    header["sha256"] = {name: array_digest(values) for name, values in arrays.items()}
    text = json.dumps(header, sort_keys=True).encode()
    arrays["header"] = np.frombuffer(text, np.uint8)
    arrays["header-sha256"] = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def load(path: Path, trajectory: str | None = None) -> Track:
    """Read a track, except its snapshots and state, which are read when they are needed.

    A file that holds another ``trajectory`` than the one that is asked for is refused.
    """
    header = _header(path)
    if header.get("form") != _FORM:
        raise UserError(f"'{path}' was written by another version of unlazy: move it away or choose another folder.")
    if trajectory is not None and header.get("trajectory", trajectory) != trajectory:  # older files do not name it
        raise UserError(f"'{path}' holds another trajectory: delete it, and the same command computes it again.")
    try:
        return _from_header(path, header)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise _damaged(path, type(error).__name__) from None


def check(path: Path) -> None:
    """Read everything in the file of a track; raise a `UserError` if anything is damaged."""
    track = load(path)
    for leaves in (*track.snapshots.values(), track.state):
        leaves_of(track, leaves)


def _header(path: Path) -> dict[str, Any]:
    head = _read(path, ["header", "header-sha256"])
    text = head["header"].tobytes()
    if hashlib.sha256(text).digest() != head["header-sha256"].tobytes():
        raise _damaged(path, "its header")
    try:
        header = parse_json(text)
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header")
    return header


def _from_header(path: Path, header: dict[str, Any]) -> Track:
    needed = [name for probe in header["observed"] for name in probe["arrays"]]
    arrays = _read(path, ["asked", "reached", *needed], header["sha256"])
    observed: dict[str, dict[int, Parts]] = {}
    for probe in header["observed"]:
        parts = [tuple(part) for part in probe["parts"]]
        observed[probe["probe"]] = {
            index: {part: arrays[name][row] for part, name in zip(parts, probe["arrays"], strict=True)}
            for row, index in enumerate(probe["times"])
        }
    return Track(
        asked=arrays["asked"],
        reached=arrays["reached"],
        observed=observed,
        snapshots={int(index): Lazy(names) for index, names in header["snapshots"].items()},
        state=Lazy(header["state"]),
        path=path,
        **{name: header[name] for name in _PLAIN},
    )


def leaves_of(track: Track, leaves: list[np.ndarray] | Lazy) -> list[np.ndarray]:
    """Return arrays, and read them from the archive if they have not been read yet."""
    if not isinstance(leaves, Lazy):
        return leaves
    assert track.path is not None
    found = _read(track.path, leaves, _header(track.path)["sha256"])
    return [found[name] for name in leaves]


def _read(path: Path, names: list[str], checksums: dict[str, str] | None = None) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            found = {name: _array(archive, name) for name in names}
    except FileNotFoundError:
        raise UserError(f"'{path}' has just been removed: give the same command again.") from None
    except Exception as error:  # whatever the libraries raise on a damaged file
        raise _damaged(path, type(error).__name__) from None
    for name, values in found.items():
        if checksums is not None and array_digest(values) != checksums.get(name):
            raise _damaged(path, f"the checksum of {name} is wrong")
    return found


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read an array. What it takes in memory is what it takes in the file, whatever the file says."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"version {version} of NumPy's format")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        member = archive.getinfo(f"{name}.npy")
        size = math.prod(shape) * dtype.itemsize
        if member.compress_type != zipfile.ZIP_STORED or dtype.hasobject or size > member.compress_size:
            raise ValueError(f"an array of {size} bytes is not stored as it is")
        values = np.frombuffer(bytearray(file.read()), dtype)  # to the end, where the archive compares its checksum
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


def _damaged(path: Path, what: str) -> UserError:
    return UserError(f"'{path}' is damaged ({what}): delete it, and the same command computes it again.")


def array_digest(values: np.ndarray) -> str:
    """Return the SHA-256 digest of the type, shape and contents of an array."""
    head = f"{values.dtype.str}{list(values.shape)}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(values).tobytes()).hexdigest()
