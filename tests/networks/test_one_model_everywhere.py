"""Models of several libraries with the same weights: the same kernel, drift, sizes and directions from each."""

import functools

import jax
import numpy as np
import pytest

import foreign_models as foreign
import unlazy
from unlazy.losses import Squared
from unlazy.networks import layers_on
from unlazy.probes import Condensation, FeatureMovement, Kernel, LayerSizes

MADE = [pytest.param(make, id=make.__name__) for make in (*foreign.JAX[1:], foreign.torch)]
PROBES = {"kernel": Kernel(), "sizes": LayerSizes(), "features": FeatureMovement(), "lines": Condensation()}


@functools.cache
def seen(make):
    """What probes see of a model whose weights have moved, in the order of its layers, and the kernel at the start."""
    data, start, now = foreign.samples(), unlazy.wrap(make()), unlazy.wrap(make(0.1))
    names = [*layers_on(now, data.x), "outputs"]
    found = {"tangent kernel": np.asarray(start.tangent_kernel(data.x)), "layers": len(names) - 1}
    for name, probe in PROBES.items():
        values = probe.of(now, start, data, Squared())
        if name != "kernel":
            values = [values[layer] for layer in names if layer in values]
        found[name] = jax.tree.map(np.asarray, values)
    return found


@pytest.mark.parametrize("make", MADE)
def test_every_library_gives_the_same_numbers(make):
    one, other = seen(foreign.equinox), seen(make)
    assert one["layers"] == 3
    assert 0.01 < one["kernel"]["drift"] < 10
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), other, one)
