"""Θ from factors of single samples: inputs and backpropagated signals of layers, or Jacobians of leaves.

For a weight w_gdm with inputs a and signals s = ∂f/∂y, the Jacobian is Σ_p a_gpd s_gpm, so that its part of Θ is

    Σ_g Σ_pq (a_gp · a'_gq) (s_gp · s'_gq),

a product of two Gram matrices, and no Jacobian is built. With many places p it is cheaper to sum over them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._types import PyTree
from unlazy.kernels.structure import Choice, Leaf, Structure

HIGH = jax.lax.Precision.HIGHEST


def factors_of(structure: Structure, choice: Choice, leaves: Sequence[Any]) -> Callable[[PyTree, Array], list[Any]]:
    """Return a function from a block of samples and cotangents (c, k) to the factors of each leaf.

    They are inputs (b, G, P, D) and signals (b, c, G, P, M) for each class of a leaf that goes by Gram matrices, and
    the Jacobian (b, c, size) of any other leaf.
    """
    direct = [leaves[index] for index in structure.direct]

    def one(sample: PyTree, cotangents: Array) -> list[Any]:
        def outputs(direct: list[Array], taps: list[Array]) -> tuple[Array, list[Array]]:
            values = list(leaves)
            for index, value in zip(structure.direct, direct, strict=True):
                values[index] = value
            return structure.evaluate(values, taps, sample)

        taps = [jnp.zeros(site.shape, site.dtype) for site in structure.sites]
        _, back, inputs = jax.vjp(outputs, direct, taps, has_aux=True)
        slopes, raw = jax.vmap(back)(cotangents)
        by_index = dict(zip(structure.direct, slopes, strict=True))
        sites = structure.sites
        kinds = [leaves[site.leaf].dtype for site in sites]  # a product may be rounded, but not sums
        inputs = [one.astype(kind) for one, kind in zip(inputs, kinds, strict=True)]
        signals = [
            jax.vmap(site.form.outputs)(one).astype(kind) for site, one, kind in zip(sites, raw, kinds, strict=True)
        ]
        found: list[Any] = []
        for index, (leaf, gram) in enumerate(zip(structure.leaves, choice.gram, strict=True)):
            if gram:
                assert leaf.classes is not None
                found.append(
                    [
                        (
                            jnp.concatenate([inputs[place] for place in members], axis=1),
                            jnp.concatenate([signals[place] for place in members], axis=2),
                        )
                        for members in leaf.classes
                    ]
                )
                continue
            slope = by_index.get(index, jnp.zeros((cotangents.shape[0], *leaves[index].shape), leaves[index].dtype))
            for place in leaf.sites:
                site = sites[place]
                matrix = jnp.einsum("gpd,cgpm->cgdm", inputs[place], signals[place], precision=HIGH)
                part = jax.vmap(lambda m, site=site: site.form.as_weight(m, site.weight))(matrix)
                shape = jax.ShapeDtypeStruct(leaves[index].shape, slope.dtype)
                into = jax.linear_transpose(structure.cuts[place], shape)
                slope = slope + jax.vmap(lambda w, into=into: into(w)[0])(part)
            found.append(slope.reshape(cotangents.shape[0], -1))
        return found

    return jax.vmap(one, in_axes=(0, None))


def combined(
    structure: Structure,
    choice: Choice,
    rates: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    x: list[Any],
    z: list[Any],
    *,
    trace: bool,
) -> Float[Array, "..."]:
    """Sum Θ over the leaves, from the factors of two blocks: (b, c, b', c'), or (b, b') for the sum over outputs."""
    total: Any = 0.0
    for leaf, gram, rate, shape, a, b in zip(structure.leaves, choice.gram, rates, shapes, x, z, strict=True):
        if gram:
            part = jnp.asarray(rate, structure.dtype) * _gram(leaf, a, b, trace=trace).astype(structure.dtype)
        else:
            scaled = a * jnp.broadcast_to(jnp.asarray(rate, a.dtype), shape).reshape(1, 1, -1)
            rule = "bks,cks->bc" if trace else "bks,cls->bkcl"
            part = jnp.einsum(rule, scaled, b, precision=HIGH).astype(structure.dtype)
        total = total + part
    return total


def _gram(leaf: Leaf, x: list[Any], z: list[Any], *, trace: bool) -> Float[Array, "..."]:
    total: Any = 0.0
    for (a, s), (b, r) in zip(x, z, strict=True):
        inputs = jnp.einsum("bgpd,cgqd->gbpcq", a, b, precision=HIGH)
        if trace:
            signals = jnp.einsum("bkgpm,ckgqm->gbpcq", s, r, precision=HIGH)
            total = total + jnp.sum(inputs * signals, axis=(0, 2, 4))
        else:
            signals = jnp.einsum("bkgpm,clgqm->gbkpclq", s, r, precision=HIGH)
            total = total + jnp.sum(inputs[:, :, None, :, :, None, :] * signals, axis=(0, 3, 6))
    for left, right in leaf.swapped:
        for i, j in ((left, right), (right, left)):  # the inputs of one use stand against the signals of the other
            (a, s), (b, r) = x[i], z[j]
            letter = "k" if trace else "l"
            one = jnp.einsum(f"bgpd,c{letter}gqd->bpc{letter}q", a, r, precision=HIGH)
            other = jnp.einsum("bkgpm,cgqm->bkpcq", s, b, precision=HIGH)
            rule = "bpckq,bkpcq->bc" if trace else "bpclq,bkpcq->bkcl"
            total = total + jnp.einsum(rule, one, other, precision=HIGH)
    return total
