"""The form in which data enter: what a ``Dataset`` refuses, and what its copies keep."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from unlazy._errors import UserError
from unlazy.data import Dataset, random_labels

# Under the shape-checking import hook the annotations refuse first what __check_init__ refuses in words.
REFUSED = (UserError, TypeCheckError)


def test_sizes():
    data = Dataset(jnp.zeros((4, 2, 3)), jnp.zeros((4, 5)))
    assert (data.n, data.inputs, data.outputs) == (4, 6, 5)
    assert Dataset(jnp.zeros((4, 2)), jnp.zeros(4)).outputs is None


def test_flat_reaches_every_part():
    images = jnp.arange(24.0).reshape(2, 3, 2, 2)
    labels = jnp.zeros(2)
    data = Dataset(images, labels, images, labels, held_out=Dataset(images, labels)).flat()
    assert data.held_out is not None
    for x in (data.x, data.x_test, data.held_out.x):
        assert np.array_equal(x, images.reshape(2, 12))
    assert Dataset(images, labels).flat().x_test is None


def test_astype_reaches_every_part(key):
    data = random_labels(3, 2, key=key).astype("float32")
    assert data.x.dtype == data.y.dtype == jnp.float32


def test_unequal_counts_are_refused():
    with pytest.raises(REFUSED):
        Dataset(jnp.zeros((4, 2)), jnp.zeros(3))
    with pytest.raises(REFUSED):
        Dataset(jnp.zeros((4, 2)), jnp.zeros(4), weight=jnp.zeros(3))


def test_half_a_test_set_is_refused():
    with pytest.raises(UserError, match="inputs or targets, but not both"):
        Dataset(jnp.zeros((4, 2)), jnp.zeros(4), x_test=jnp.zeros((1, 2)))


def test_check_names_what_is_not_finite():
    data = Dataset(jnp.zeros((4, 2)), jnp.array([0.0, jnp.nan, jnp.inf, 1.0]), name="broken")
    with pytest.raises(UserError, match="2 of the 4 entries of y in data set 'broken'"):
        data.check()
