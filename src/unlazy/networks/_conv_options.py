"""Checks of the options of a convolutional network."""

import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError


def check_options(channels: tuple[int, ...], sides: tuple[int, ...], image: tuple[int, ...]) -> None:
    """Refuse options of which no network can be made."""
    if len(image) != 3:
        raise UserError(
            f"A convolutional network takes images (channel, height, width), not inputs of shape {tuple(image)}: "
            "read the data with flat = false."
        )
    if not channels or len(sides) != len(channels):
        raise UserError(
            f"{len(channels)} layers and {len(sides)} kernel sizes were given: write channels = [32] and kernel = 5, "
            "or one kernel size for each layer."
        )
    if sum(m - 1 for m in sides) >= min(image[1:]):
        raise UserError(
            f"Kernels of sides {list(sides)} leave nothing of images of {image[1]} x {image[2]}: take smaller kernels "
            "or fewer layers."
        )


def power(base: float, exponent: float) -> float:
    """Return a power, infinity where it overflows."""
    try:
        return base**exponent
    except OverflowError:
        return np.inf


def check_scales(scales: tuple[float, ...], rescaled: bool) -> None:
    """Refuse initial scales that would be stored as 0 or infinity, or whose learning rates 1/s² would."""
    limits = jnp.finfo(jnp.result_type(float))
    least = float(limits.max) ** -0.5 if rescaled else float(limits.tiny)
    for layer, s in enumerate(scales, start=1):
        if not least <= s <= float(limits.max):
            raise UserError(
                f"Layer {layer} would start from numbers of size {s:.3g}, where {limits.dtype} needs at least "
                f"{least:.0e}: take a larger `scale`, a smaller `gamma`, or float64."
            )
