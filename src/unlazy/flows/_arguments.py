"""Arguments of a run that a driver checks before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError, article, short
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network, split_trained

if TYPE_CHECKING:
    from unlazy.flows.method import Flow

Times = Sequence[float] | np.ndarray


def check_types(flow: Flow, network: Network, data: Dataset) -> None:
    """Reject what is not a network, data set or loss, and data that are not finite."""
    for what, given, wanted, advice in (
        ("network", network, Network, "make one of unlazy.networks, or wrap your own model by unlazy.wrap(model)"),
        ("data set", data, Dataset, "make one with unlazy.Dataset(x, y)"),
        ("loss", flow.loss, Loss, "give one of unlazy.losses, its name, or a function of outputs and targets"),
    ):
        if not isinstance(given, wanted):
            raise UserError(
                f"The {what} must be {article(wanted.__name__)}, not {article(type(given).__name__)}: {advice}."
            )
    for leaf in jax.tree.leaves(split_trained(network)[0]):
        if leaf.dtype not in (jnp.float32, jnp.float64):
            raise UserError(
                f"The {type(network).__name__} has trained parameters of type {leaf.dtype}, and flows compute in "
                "float32 and float64: convert the model to one of these."
            )
    data.check()


def checked_times(times: Times, since: float) -> np.ndarray:
    """Return save times as an array; reject times that do not increase, or lie before the present one."""
    try:
        asked = np.asarray(times, dtype=float)
    except (TypeError, ValueError):
        raise UserError(
            f"times = {short(times)} is not a list of numbers: give increasing times, as [0, 1, 10]."
        ) from None
    if asked.ndim != 1 or asked.size == 0 or not np.isfinite(asked).all() or (np.diff(asked) <= 0).any():
        raise UserError(f"Times must be a list of finite, increasing numbers, not {short(times)}.")
    if asked[0] < since:
        raise UserError(f"The run is at t = {since:g} and cannot go back to t = {asked[0]:g}: ask for later times.")
    return asked
