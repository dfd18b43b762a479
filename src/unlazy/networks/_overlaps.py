"""The tangent kernel of a trained layer with a read-out, from sums over its neurons."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def gate_overlap(
    slope_x: Float[Array, "m n"], slope_z: Float[Array, "m p"], readout: Float[Array, "m *k"]
) -> Float[Array, "..."]:
    """Σ_j c_j² σ'(h_j(x)) σ'(h_j(z)), of shape (n, p); with several outputs Σ_j c_jk c_jl ... (n, k, p, l)."""
    if readout.ndim == 1:
        return (slope_x * (readout**2)[:, None]).T @ slope_z
    return jnp.einsum("jn,jc,jd,jp->ncpd", slope_x, readout, readout, slope_z, optimize="optimal")


def assembled_kernel(
    gram: Float[Array, "n p"], gates: Float[Array, "..."], values: Float[Array, "n p"] | None, rate: float
) -> Float[Array, "..."]:
    """Θ from the features' kernel R e² Φ(x)·Φ(z), the overlap of gates, and that of a trained read-out's values."""
    several = gates.ndim == 4
    kernel = (gram[:, None, :, None] if several else gram) * gates
    if values is None:
        return kernel
    own = rate * values
    if several:  # each output has a read-out of its own: no part across outputs
        own = own[:, None, :, None] * jnp.eye(gates.shape[1], dtype=own.dtype)[None, :, None, :]
    return kernel + own
