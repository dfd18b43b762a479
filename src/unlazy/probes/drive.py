"""What drives the channels of a stack's first block: their values, what is sent back to them, and the loss's slope."""

from __future__ import annotations

import jax.numpy as jnp

from unlazy._errors import UserError
from unlazy._observation import Observation
from unlazy.networks import MeanFieldStack
from unlazy.probes._base import Probe
from unlazy.probes.channels import ByBlock


class ChannelDrive(Probe):
    """All that moves f_k of the first block by aiad2026 eq. 10, at the points of the data set.

    - ``channels``: f_k(x) at the training points, then at the test points: (points, D);
    - ``signals``: B_k(x_p) = ∂f/∂f_k at the training points: (n, D), or (n, D, outputs);
    - ``slope``: dL/df(x_p), that is π_p d_p: (n,), or (n, outputs).
    """

    def __call__(self, obs: Observation) -> ByBlock:
        """Go forward and back once."""
        now, data = obs.network, obs.data
        if not isinstance(now, MeanFieldStack):
            raise UserError(
                f"Channels are those of a MeanFieldStack; {type(now).__name__} has none: leave this probe out."
            )
        channels, signals = now.channels(obs.x)[0], now.signals(obs.x)[0]
        if data.x_test is not None:
            channels = jnp.concatenate([channels, now.channels(obs.x_test)[0]])
        return {
            "channels": channels,
            "signals": signals[0].T if now.scalar else jnp.transpose(signals, (2, 1, 0)),
            "slope": obs.loss.slope(obs.outputs, data.y, data.weight),
        }
