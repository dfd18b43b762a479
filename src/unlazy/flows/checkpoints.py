"""Checkpoints of drivers: the state and records of all runs, or of some of them as if there were no others.

A checkpoint is a line of JSON, the leaves of state and records, and a checksum of all that.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy._files import atomic_write
from unlazy._inputs import leaf_like, plain_leaf
from unlazy._types import PyTree
from unlazy.flows._finite import kept
from unlazy.flows.state import State
from unlazy.flows.trajectory import COUNTERS, Recorded
from unlazy.networks import with_fields

if TYPE_CHECKING:
    from unlazy.flows.driver import Driver


class OtherRunError(UserError):
    """A checkpoint belongs to another run."""


class Checkpoint(NamedTuple):
    """A file, the identifier of the runs in it, and the rows of these runs in a driver, as `Driver.save` took them."""

    path: Path
    run: str
    rows: list[int]


def save(driver: Driver, path: Path, run: str, rows: Sequence[int] | None) -> None:
    """Write a checkpoint; see `Driver.save`."""
    state, records = _part(driver, (driver.state, driver.records), rows)
    header = {
        "run": run,
        "target": driver.at_stop(rows[0] if rows else 0),
        "seconds": driver.seconds,
        "snapshots": [one.trained is not None for one in records],
        "leaves": _described((state, records)),
    }
    with atomic_write(path) as temporary, open(temporary, "wb+") as file:
        file.write(json.dumps(header).encode() + b"\n")
        eqx.tree_serialise_leaves(
            file, (state, records), filter_spec=lambda file, leaf: np.save(file, plain_leaf(leaf))
        )
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()  # reads to the end, where the digest goes
        file.write(digest)


def load(driver: Driver, path: Path, run: str) -> None:
    """Continue from a checkpoint of all runs; see `Driver.load`."""
    header, state, records = _loaded(driver, path, run, None)
    _put(driver, state, records, header["target"], header["seconds"])


def load_several(driver: Driver, checkpoints: Sequence[Checkpoint]) -> None:
    """Continue several runs from checkpoints of their own, which were written at the same save time.

    Rows of the driver that no checkpoint has become copies of the first.
    """
    loaded = [_loaded(driver, *one) for one in checkpoints]
    order = np.zeros(len(driver.stops), int)  # of each row, its place among those that were loaded
    for place, row in enumerate([row for one in checkpoints for row in one.rows]):
        order[row] = place

    def joined(*leaves: Any) -> Any:
        each = [leaf[None] if len(one.rows) == 1 else leaf for leaf, one in zip(leaves, checkpoints, strict=True)]
        return jnp.concatenate(each)[order]

    state, records = jax.tree.map(joined, *((state, records) for _, state, records in loaded))
    header, first = loaded[0][0], driver.stops[checkpoints[0].rows[0]]
    place = np.flatnonzero(first.asked == header["target"])
    target = float(driver.asked[place[0]]) if len(place) else header["target"]
    _put(driver, state, records, target, max(header["seconds"] for header, _, _ in loaded))


def read_checkpoint(path: Path) -> tuple[dict[str, Any], io.BytesIO]:
    """Return the header of a checkpoint and the rest of the file; raise a ValueError if its checksum is wrong.

    Parameters
    ----------
    path
        The file that `Driver.save` wrote.
    """
    content = path.read_bytes()
    body, digest = content[:-32], content[-32:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"The checksum of '{path}' is wrong.")
    file = io.BytesIO(body)
    return json.loads(file.readline()), file


def _put(driver: Driver, state: State, records: list[Recorded], target: float, seconds: float) -> None:
    driver.records, driver.seconds = jax.tree.map(np.asarray, records), seconds
    driver.run_state = with_fields(driver.run_state, state=state, target=target)
    driver.before, driver.recorded = state, kept(state)


def _part(driver: Driver, tree: PyTree, rows: Sequence[int] | None) -> PyTree:
    """Return the part of some runs, in the form that it has if there are no others."""
    if rows is None or driver.batching == "one":
        return tree
    chosen: Any = rows[0] if len(rows) == 1 else np.asarray(rows)
    return jax.tree.map(lambda leaf: leaf[chosen], tree)


def _loaded(
    driver: Driver, path: Path, run: str, rows: Sequence[int] | None
) -> tuple[dict[str, Any], State, list[Recorded]]:
    header, file = read_checkpoint(path)
    counters = {name: getattr(driver.state, name) for name in ("code", *COUNTERS)}
    leaves = jax.tree.leaves(driver.state.trained)
    shapes = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), driver.shapes)
    whole = [Recorded(shapes, counters, leaves if some else None) for some in header["snapshots"]]
    state, records = _part(driver, (driver.state, whole), rows)
    if header["run"] != run or header["leaves"] != _described((state, records)):
        raise OtherRunError(f"The checkpoint {path.name} belongs to another run: delete it to start again.")
    return header, *eqx.tree_deserialise_leaves(
        file, (state, records), filter_spec=lambda file, leaf: leaf_like(leaf, np.load(file))
    )


def _described(tree: PyTree) -> list[list[Any]]:
    return [[str(leaf.dtype), list(leaf.shape)] for leaf in jax.tree.leaves(tree)]
