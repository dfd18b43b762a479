"""What every maker of a data set promises; a new one is held to it without being listed here."""

import inspect
import types
from typing import Literal, Union, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unlazy.data
from unlazy._errors import UserError
from unlazy._registry import members
from unlazy.activations import Activation
from unlazy.data import split
from unlazy.testing import check_data

MEMBERS = members("data")
SMALL = {"n": 12, "d": 5, "n_test": 9}


def parameters(make):
    return inspect.signature(make).parameters


def needs_no_file(make):
    return not hasattr(make, "files_read")


WITHOUT_FILES = {name: make for name, make in MEMBERS.items() if needs_no_file(make)}


def call(make, **options):
    if make.__name__ == "digits":
        pytest.importorskip("sklearn")
    known = parameters(make)
    given = {name: value for name, value in {**SMALL, "key": jax.random.key(1), **options}.items() if name in known}
    return make(**given)


def leaves(data):
    return jax.tree.leaves(eqx.filter(data, eqx.is_array))


def plain(hint) -> bool:
    """Whether a TOML file can hold a value of this type."""
    if get_origin(hint) is Literal:
        return all(isinstance(word, str) for word in get_args(hint))
    if get_origin(hint) in (tuple, Union, types.UnionType):
        return all(plain(part) for part in get_args(hint) if part is not Ellipsis)
    return hint in (int, float, str, bool, type(None), Activation)  # an activation is a name or a table


def test_the_room_is_not_empty():
    wanted = {"random-labels", "radial-quadrature", "mnist", "cifar10", "digits", "concrete", "energy", "plant"}
    assert wanted <= MEMBERS.keys()


@pytest.mark.parametrize("name", MEMBERS)
def test_signature_is_one_a_recipe_can_call(name):
    hints = get_type_hints(MEMBERS[name])
    assert MEMBERS[name].__doc__
    for parameter in parameters(MEMBERS[name]).values():
        if parameter.name == "key":
            assert parameter.kind is parameter.KEYWORD_ONLY
        else:
            assert plain(hints[parameter.name]), parameter


@pytest.mark.parametrize("name", MEMBERS)
def test_public_name_is_exported(name):
    member = MEMBERS[name]
    assert member.__name__ in unlazy.data.__all__ or member.__module__.startswith("unlazy.papers.")


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_shapes_dtype_and_finiteness(name):
    data = call(WITHOUT_FILES[name])
    known = parameters(WITHOUT_FILES[name])
    assert all(leaf.dtype == jnp.result_type(float) for leaf in leaves(data))
    assert data.y.ndim in (1, 2)
    assert data.x.ndim == 2
    if "n" in known:
        assert data.n == SMALL["n"]
    if "n_test" in known:
        assert data.x_test.shape == (SMALL["n_test"], data.inputs)
        assert data.y_test.shape[1:] == data.y.shape[1:]
    assert data.name
    data.check()


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_every_maker_keeps_the_contract(name):
    make = WITHOUT_FILES[name]
    if make.__name__ == "digits":
        pytest.importorskip("sklearn")
    check_data(make, **{option: value for option, value in SMALL.items() if option in parameters(make)})


@pytest.mark.parametrize(
    "name", [name for name, make in WITHOUT_FILES.items() if "n_test" in parameters(make) and name != "digits"]
)
def test_training_set_does_not_depend_on_the_test_set(name):
    one, other = call(WITHOUT_FILES[name], n_test=0), call(WITHOUT_FILES[name])
    assert one.x_test is None
    assert np.array_equal(one.x, other.x)
    assert np.array_equal(one.y, other.y)


@pytest.mark.parametrize("option", ["n", "n_test", "n_held", "d", "neurons", "order"])
@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_a_bad_count_is_refused_by_name(name, option):
    if option not in parameters(WITHOUT_FILES[name]):
        return
    with pytest.raises(UserError, match=rf"{option} = -3 .*at least"):
        call(WITHOUT_FILES[name], **{option: -3})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("option", ["noise", "scale", "delta", "bulk"])
@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_a_bad_quantity_is_refused_by_name(name, option, bad):
    if option not in parameters(WITHOUT_FILES[name]):
        return
    with pytest.raises(UserError, match=rf"{option} = {bad} is (out of range|not in range|not a finite number)"):
        call(WITHOUT_FILES[name], **{option: bad})


def test_split_is_a_partition(key):
    x = jnp.arange(50.0)[:, None]
    data = split(x, 2 * x[:, 0], (0.4, 0.2, 0.4), name="numbers", key=key)
    assert data.held_out is not None
    assert (data.n, len(data.y_test), data.held_out.n) == (20, 10, 20)
    everything = np.concatenate([data.x, data.x_test, data.held_out.x])[:, 0]
    assert np.array_equal(np.sort(everything), np.arange(50))
    for x, y in ((data.x, data.y), (data.x_test, data.y_test), (data.held_out.x, data.held_out.y)):
        assert np.array_equal(2 * x[:, 0], y)


def test_split_may_leave_parts_empty(key):
    data = split(jnp.ones((4, 1)), jnp.ones(4), (1.0, 0.0, 0.0), name="ones", key=key)
    assert data.x_test is None
    assert data.held_out is None


@pytest.mark.parametrize(
    "shares", [(0.5, 0.2, 0.2), (0.0, 0.5, 0.5), (1.2, -0.2, 0.0), (float("nan"), 0.5, 0.5), (0.01, 0.49, 0.5)]
)
def test_split_refuses_shares_that_do_not_cut(shares, key):
    with pytest.raises(UserError, match=r"[Ss]hare"):
        split(jnp.ones((10, 1)), jnp.ones(10), shares, name="ones", key=key)
