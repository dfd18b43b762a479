"""The form in which data enter: what a ``Dataset`` refuses, and what its copies keep."""

import jax
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


def test_masked_entries_are_not_taken_for_numbers():
    x = np.ma.masked_array(np.ones((3, 2)), [[False, False], [True, False], [False, False]])
    x.data[1, 0] = -999.0
    with pytest.raises(UserError, match="x of data set 'mine' has masked entries"):
        Dataset(x, np.ones(3), name="mine")
    assert np.array_equal(Dataset(np.ma.masked_array(np.ones((3, 2))), np.ones(3)).x, np.ones((3, 2)))


def test_numbers_that_the_precision_cannot_hold_are_refused():
    """Python's floats have 64 bits, JAX's usual ones 32: inputs of 1e-50 became 0 without a word."""
    x, y = np.ones((3, 2)), np.ones(3)
    with jax.enable_x64(False):
        for size in (1e-50, 1e50):
            with pytest.raises(UserError, match=r"x of data set 'data' has numbers of the size 1e[-+]50"):
                Dataset(size * x, y)
            with pytest.raises(UserError, match="y of data set 'data' has numbers of the size"):
                Dataset(x, size * y)
        assert Dataset(1e-30 * x, y).x.dtype == jnp.float32
        assert Dataset(np.asarray([[1.0], [1e-50]]), np.ones(2)).n == 2  # 0 next to 1 is rounding
    assert Dataset(1e-50 * x, y).x[0, 0] == 1e-50


def test_long_floats_become_usual_ones():
    assert Dataset(np.ones((3, 2), np.longdouble), np.ones(3)).x.dtype == jnp.float64


@pytest.mark.parametrize("weight", [np.zeros(3), np.asarray([1.0, -1.0, 0.0]), -np.ones(3)])
def test_weights_need_a_positive_sum(weight):
    """Divided by their sum, weights of -1 were the same as weights of 1; those of sum 0 gave NaN."""
    with pytest.raises(UserError, match="weights of data set 'data' do not sum to a number above 0"):
        Dataset(np.ones((3, 2)), np.ones(3), weight=weight).check()
    Dataset(np.ones((3, 2)), np.ones(3), weight=np.asarray([2.0, -0.5, 0.5])).check()


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4"])
def test_the_order_of_bytes_does_not_matter(dtype):
    x = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(Dataset(x.astype(dtype), x[:, 0].astype(dtype)).x, x)
