"""What drives the channels of a stack's first block: their values, what is sent back to them, and the loss's slope."""

from __future__ import annotations

import jax.numpy as jnp

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import MeanFieldStack, Network
from unlazy.probes._base import Probe
from unlazy.probes.channels import ByBlock


class ChannelDrive(Probe):
    """All that moves f_k of the first block by aiad2026 eq. 10, at the points of the data set.

    - ``channels``: f_k(x) at the training points, then at the test points: (points, D);
    - ``signals``: B_k(x_p) = ∂f/∂f_k at the training points: (n, D), or (n, D, outputs);
    - ``slope``: dL/df(x_p), that is π_p d_p: (n,), or (n, outputs).
    """

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> ByBlock:
        """Go forward and back once."""
        if not isinstance(now, MeanFieldStack):
            raise UserError(
                f"Channels are those of a MeanFieldStack; {type(now).__name__} has none: leave this probe out."
            )
        channels, signals = now.channels(data.x)[0], now.signals(data.x)[0]
        if data.x_test is not None:
            channels = jnp.concatenate([channels, now.channels(data.x_test)[0]])
        return {
            "channels": channels,
            "signals": signals[0].T if now.scalar else jnp.transpose(signals, (2, 1, 0)),
            "slope": loss.slope(now(data.x), data.y, data.weight),
        }
