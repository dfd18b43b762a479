"""Probes of users that fail: one sentence, in Python and on the command line."""

import jax
import numpy as np
import pytest

import unlazy
from unlazy._errors import UserError

DATA = unlazy.Dataset(np.ones((3, 2)), np.ones(3))


def misspelt(obs):
    return obs.outptus


def test_a_probe_that_fails_is_named_with_the_error():
    with pytest.raises(UserError, match=r"The probe 'misspelt' fails \(AttributeError: .*outptus") as caught:
        unlazy.Descent(rate=0.1)(unlazy.TwoLayer(4, 2, key=0), DATA, [0, 1.0], [misspelt])
    assert isinstance(caught.value.__cause__, AttributeError)


@pytest.mark.parametrize("made", ["some text", {"part": object()}, jax.random.key(0)])
def test_a_probe_that_returns_no_numbers_is_named(made):
    with pytest.raises(UserError, match=r"The probe 'mine' fails \(TypeError: "):
        unlazy.Descent(rate=0.1)(unlazy.TwoLayer(4, 2, key=0), DATA, [0, 1.0], {"mine": lambda obs: made})


def test_a_long_name_is_shortened():
    with pytest.raises(UserError) as caught:
        unlazy.TwoLayer(4, 2, activation="a" * 1000, key=0)
    assert len(str(caught.value)) < 500
