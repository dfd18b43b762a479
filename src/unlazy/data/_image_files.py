"""Readers of the three published formats of labelled images: IDX, CIFAR's binary records, CIFAR's pickled batches.

The last files read are kept for the next data set drawn in the same process: a CIFAR-10 batch takes seconds to unpack.
"""

import functools
import gzip
import io
import lzma
import pickle
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from unlazy._errors import UserError
from unlazy.data._download import reading, stamp

Read = TypeVar("Read")


class Labelled(NamedTuple):
    """Images of shape (N, C, H, W) as stored, with their class numbers."""

    images: np.ndarray
    labels: np.ndarray


def _kept(read: Callable[[Path], Read]) -> Callable[[Path], Read]:
    """Remember the last few files read, as long as they do not change."""

    @functools.lru_cache(maxsize=4)
    def of_stamp(path: str, size: int, changed: int) -> Read:
        with reading(Path(path)):
            return read(Path(path))

    @functools.wraps(read)
    def wrapped(path: Path) -> Read:
        return of_stamp(*stamp(path))

    return wrapped


@_kept
def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of bytes: four magic bytes, one big-endian size per axis, then the entries."""
    with gzip.open(path) as file:
        raw = file.read()
    if raw[:3] != b"\0\0\x08" or len(raw) < 4:
        raise UserError(f"The file {path} does not begin like an IDX file of bytes: is it the right file?")
    shape = np.frombuffer(raw, ">u4", raw[3], 4).astype(int)
    entries = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if entries.size != np.prod(shape):
        raise UserError(
            f"The file {path} has {entries.size} entries, but its header promises {np.prod(shape)}: "
            "it is cut short. Copy it again or let it be downloaded."
        )
    return entries.reshape(shape)


@_kept
def read_records(path: Path) -> Labelled:
    """Read an xz-compressed batch of CIFAR-10's binary version: a label, then 3 x 32 x 32 bytes, for each image."""
    with lzma.open(path) as file:
        raw = np.frombuffer(file.read(), np.uint8)
    if raw.size == 0 or raw.size % 3073:
        raise UserError(
            f"The file {path} unpacks to {raw.size} bytes, which is no whole number of records of 3073 bytes: "
            "it is cut short. Copy it again."
        )
    records = raw.reshape(-1, 3073)
    return Labelled(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0])


@_kept
def read_archive(path: Path) -> tuple[Labelled, Labelled]:
    """Read CIFAR-10's python version: five pickled training batches and a test batch in one archive."""
    batches: dict[str, Labelled] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = Path(member.name).name
            file = archive.extractfile(member) if name.startswith("data_batch_") or name == "test_batch" else None
            if file is not None:
                with file:
                    batches[name] = _unpickle(file.read(), path)
    wanted = [f"data_batch_{i}" for i in range(1, 6)]
    if missing := {*wanted, "test_batch"} - batches.keys():
        raise UserError(f"The archive {path} lacks {', '.join(sorted(missing))}: is it CIFAR-10's python version?")
    train = Labelled(*(np.concatenate(parts) for parts in zip(*(batches[name] for name in wanted), strict=True)))
    return train, batches["test_batch"]


class _ArraysOnly(pickle.Unpickler):
    """Unpickles plain containers and NumPy arrays, and calls nothing else that a file may name."""

    allowed = frozenset({"_reconstruct", "ndarray", "dtype", "_frombuffer", "encode"})
    homes = frozenset({"numpy", "numpy.core.multiarray", "numpy._core.multiarray", "numpy._core.numeric", "_codecs"})

    def find_class(self, module_name: str, global_name: str) -> Any:
        if module_name in self.homes and global_name in self.allowed:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which no array needs")


def _unpickle(raw: bytes, path: Path) -> Labelled:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the batches were pickled by a NumPy of 2009, and a new one says so
        try:
            batch = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
            images, labels = np.asarray(batch[b"data"], np.uint8), np.asarray(batch[b"labels"], np.uint8)
        except (pickle.UnpicklingError, KeyError, TypeError) as error:
            raise UserError(f"A batch in {path} is not one of CIFAR-10 ({error}): is it the right archive?") from error
    return Labelled(images.reshape(-1, 3, 32, 32), labels)
