"""Random patches, against loops over patches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu
from unlazy.networks import RandomPatches


@pytest.mark.parametrize(("channels", "side", "grid"), [(1, 5, 1), (3, 6, 2), (1, 8, 3)])
def test_features_are_means_of_rectified_answers(channels, side, grid):
    patches = RandomPatches(4, 2, grid).draw(channels * side**2, Relu(), key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, channels * side**2))
    assert patches.size(channels * side**2) == 4 * grid**2
    images, filters = np.asarray(x).reshape(3, channels, side, side), np.asarray(patches.weights)
    places = side - 1
    maps = np.zeros((3, 4, places, places))
    for row in range(places):
        for column in range(places):
            cut = images[:, :, row : row + 2, column : column + 2]
            maps[:, :, row, column] = np.maximum(np.einsum("nchw,fchw->nf", cut, filters), 0)
    edges = [round(i * places / grid) for i in range(grid + 1)]
    cells = [
        maps[:, :, edges[i] : edges[i + 1], edges[j] : edges[j + 1]].mean(axis=(2, 3))
        for i in range(grid)
        for j in range(grid)
    ]
    close(patches(x), np.concatenate(cells, axis=1), rel=1e-10, abs=1e-12)
    close(patches.kernel(x, x[:2]), patches(x) @ patches(x[:2]).T / (4 * grid**2), rel=1e-10)


def test_answers_have_the_size_of_pixels():
    patches = RandomPatches(2000, 3, 1).draw(3 * 36, Relu(), key=jax.random.key(0))
    assert float(jnp.var(patches.weights)) == pytest.approx(1 / 27, rel=0.02)


def test_what_is_no_image_is_refused():
    with pytest.raises(UserError, match="not a square image"):
        RandomPatches().draw(50, Relu(), key=jax.random.key(0))
    with pytest.raises(UserError, match="do not fit images of 4 x 4"):
        RandomPatches(patch=6).draw(16, Relu(), key=jax.random.key(0))
    with pytest.raises(UserError, match="filters = 0 is not in range: give a number of at least 1"):
        RandomPatches(filters=0)
    with pytest.raises(UserError, match="no filters yet"):
        RandomPatches()(jnp.ones((1, 64)))
