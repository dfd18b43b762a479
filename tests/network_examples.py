"""The small networks that contracts run on. They are drawn one kind at a time, and only where a test uses them."""

import functools

import equinox as eqx
import jax

from unlazy._registry import members

_KEY = jax.random.key(1)


@functools.cache
def of_kind(kind):
    """All examples of a kind of network, as pairs of a network and its data."""
    return members("network")[kind].examples(key=_KEY)


def _count(kind):
    # Tracing tells how many there are in a tenth of the time that drawing them takes.
    return len(eqx.filter_eval_shape(lambda key: members("network")[kind].examples(key=key), _KEY))


NETWORKS = [(kind, index) for kind in members("network") for index in range(_count(kind))]
