"""Convolutions as matrix products: what a CPU does fastest, forwards and backwards."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_BLOCK = 20  # samples at a time: what is made on the way stays in the cache


def patches(x: Float[Array, "n channels height width"], side: int) -> Float[Array, "n places size"]:
    """Cut images into all their patches: (n, place, channel x row x column + 1), the last entry 1, for the bias.

    A convolution of the images is then one product with the kernels, as a layer of neurons on vectors. Places go row by
    row.
    """
    n, channels, height, width = x.shape
    high, wide = height - side + 1, width - side + 1
    shifts = [x[:, :, p : p + high, q : q + wide] for p in range(side) for q in range(side)]
    cut = jnp.stack(shifts, axis=2).reshape(n, channels * side**2, high * wide)
    return jnp.concatenate([jnp.swapaxes(cut, 1, 2), jnp.ones((n, high * wide, 1), x.dtype)], axis=2)


def convolve(
    x: Float[Array, "n height width channels"], kernel: Float[Array, "out channels side side"]
) -> Float[Array, "n high wide out"]:
    """Σ_(p,q,α) x_(u+p,v+q,α) W_(β,α,p,q), channels last.

    Patches along a row are cut, multiplied with all rows of the kernel at once, and the products added up row by row:
    memory grows by the side of the kernel, not by its square, and nothing but matrix products and shifts is left for
    the backward pass. Samples go through it a few at a time, which keeps what is made on the way in the cache.
    """
    n, height, width, channels = x.shape
    out, _, side, _ = kernel.shape
    high, wide = height - side + 1, width - side + 1
    matrix = jnp.transpose(kernel, (3, 1, 2, 0)).reshape(side * channels, side * out)

    def some(x: Float[Array, "b height width channels"]) -> Float[Array, "b high wide out"]:
        rows = jnp.concatenate([x[:, :, q : q + wide] for q in range(side)], axis=-1)
        products = (rows.reshape(-1, side * channels) @ matrix).reshape(-1, height, wide, side, out)
        return jnp.sum(jnp.stack([products[:, p : p + high, :, p] for p in range(side)]), axis=0)

    if n <= _BLOCK:
        return some(x)
    one = jax.checkpoint(lambda sample: some(sample[None])[0])  # patches are cut again rather than kept
    return jax.lax.map(one, x, batch_size=_BLOCK)
