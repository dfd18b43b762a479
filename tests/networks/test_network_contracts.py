"""Contracts that every network found in the room must keep, on the examples that it gives of itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy import networks
from unlazy._catalogue import members
from unlazy._errors import UserError
from unlazy.networks import Network, divide, jacobian_kernel, trained_rates

MEMBERS = members(networks, Network)
EXAMPLES = [
    pytest.param(network, data, id=f"{name}-{index}")
    for name, member in MEMBERS.items()
    for index, (network, data) in enumerate(member.examples(key=jax.random.key(1)))
]
contract = pytest.mark.parametrize(("raw", "raw_data"), EXAMPLES)

# Compiled as wholes, as flows do; op by op, compiling all the small pieces takes several times as long.
outputs = eqx.filter_jit(lambda network, x: network(x))
hidden = eqx.filter_jit(lambda network, x: network.hidden(x))
tangent_kernel = eqx.filter_jit(lambda network, x, z: network.tangent_kernel(x, z))
by_jacobians = eqx.filter_jit(jacobian_kernel)


def brute_force_kernel(network, x, z):
    """J(x) R J(z)^T from full Jacobians, leaf by leaf: the definition."""
    trained, frozen = divide(network)
    rates = jax.tree.leaves(trained_rates(network))

    @eqx.filter_jit
    def full(points):
        return jax.jacobian(lambda leaves: eqx.combine(leaves, frozen)(points).reshape(-1))(trained)

    def jacobians(points):
        tree = full(points)
        return [np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)]

    pairs = zip(rates, jacobians(x), jacobians(z), strict=True)
    kernel = sum(rate * left @ right.T for rate, left, right in pairs)
    each = outputs(network, x).shape[1:]
    return kernel.reshape(x.shape[0], *each, z.shape[0], *each)


def test_the_room_is_found():
    assert {"two-layer", "tangent-model"} <= set(MEMBERS)


@contract
def test_preparing_changes_no_value(raw, raw_data):
    network, data = raw.on(raw_data)
    back = network.off()
    close(outputs(back, raw_data.x), outputs(network, data.x), rel=1e-06, abs=1e-09)
    if raw_data.x_test is not None:
        close(outputs(back, raw_data.x_test), outputs(network, data.x_test), rel=1e-06, abs=1e-09)
    again, twice = network.on(data)
    close(outputs(again, twice.x), outputs(network, data.x), rel=1e-12)
    assert outputs(network, data.x).shape == raw_data.y.shape


@contract
def test_batch_is_loop(raw, raw_data):
    network, data = raw.on(raw_data)
    loop = jnp.concatenate([outputs(network, data.x[i : i + 1]) for i in range(data.n)])
    vmapped = eqx.filter_jit(jax.vmap(lambda x: network(x[None])[0]))(data.x)
    close(outputs(network, data.x), loop, rel=1e-12, abs=1e-14)
    close(vmapped, loop, rel=1e-12, abs=1e-14)


@contract
def test_rates_match_the_tree(raw, raw_data):
    network, _ = raw.on(raw_data)
    rates = network.rates()
    assert jax.tree.structure(rates) == jax.tree.structure(eqx.filter(network, eqx.is_inexact_array))
    assert all(isinstance(rate, float) and rate >= 0 for rate in jax.tree.leaves(rates))
    assert max(jax.tree.leaves(rates)) > 0, "nothing is trained"
    trained, frozen = divide(network)
    assert jax.tree.structure(trained) == jax.tree.structure(trained_rates(network))
    assert len(jax.tree.leaves(trained)) + len(jax.tree.leaves(frozen)) == len(jax.tree.leaves(network))


@contract
def test_permuting_neurons_changes_nothing(raw, raw_data):
    network, data = raw.on(raw_data)
    for layer, h in hidden(network, data.x).items():
        order = jnp.roll(jnp.arange(h.shape[1])[::-1], 2)
        permuted = network.permute(layer, order)
        close(outputs(permuted, data.x), outputs(network, data.x), rel=1e-12, abs=1e-14)
        close(hidden(permuted, data.x)[layer], h[:, order], rel=1e-12)
        close(tangent_kernel(permuted, data.x, data.x), tangent_kernel(network, data.x, data.x), rel=1e-10, abs=1e-12)


@contract
def test_tangent_kernel_is_the_jacobians(raw, raw_data):
    network, data = raw.on(raw_data)
    other = data.x[:3] * 0.7
    exact = brute_force_kernel(network, data.x, other)
    close(tangent_kernel(network, data.x, other), exact, rel=1e-09, abs=1e-11)
    for memory in (2.0**28, 1.0):  # everything at once, and one sample at a time
        close(by_jacobians(network, data.x, other, memory), exact, rel=1e-09, abs=1e-11)


@contract
def test_movement_is_distance(raw, raw_data):
    network, _ = raw.on(raw_data)
    assert all(np.all(moved == 0) for moved in network.movement(network).values())
    trained, frozen = divide(network)
    shifted = eqx.combine(jax.tree.map(lambda leaf: leaf + 0.25, trained), frozen)
    assert all(np.all(moved > 0) for moved in shifted.movement(network).values())


@contract
def test_precision_is_kept(raw, raw_data):
    network, data = raw.on(raw_data)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, network)
    x = data.x.astype(jnp.float32)
    assert outputs(single, x).dtype == jnp.float32
    assert tangent_kernel(single, x, x).dtype == jnp.float32
    close(outputs(single, x), outputs(network, data.x), rel=0.001, abs=0.0001)


@contract
def test_the_kernel_of_one_output_is_cut_out_of_the_whole(raw, raw_data):
    network, data = raw.on(raw_data)
    if data.outputs is None:
        return
    whole = tangent_kernel(network, data.x, data.x)
    for output in range(data.outputs):
        close(network.output_kernel(data.x, data.x, output), whole[:, output, :, output], rel=1e-12, abs=1e-14)


@contract
def test_neurons_can_be_weighed_and_taken_away(raw, raw_data):
    """Networks with neurons keep this; another one says that it has none."""
    network, data = raw.on(raw_data)
    if type(network).importance is Network.importance:
        with pytest.raises(UserError, match="has no neurons"):
            network.importance()
        return
    weighed, answers = network.importance(), network.responses(data.x)
    inner = hidden(network, data.x)
    assert set(weighed) == set(answers) == set(inner)
    for layer, importance in weighed.items():
        m = inner[layer].shape[1]
        assert importance.shape == (m,)
        assert answers[layer].shape == inner[layer].shape
        assert np.all(np.asarray(importance) >= 0)
        order = jnp.argsort(-importance)
        close(network.permute(layer, order).importance()[layer], importance[order], rel=1e-10, abs=1e-14)
        close(network.permute(layer, order).responses(data.x)[layer], answers[layer][:, order], rel=1e-10, abs=1e-14)
        close(outputs(network.silenced(layer, jnp.ones(m)), data.x), outputs(network, data.x), rel=1e-12, abs=1e-14)
        nested = network.nested(data.x, layer, order, lambda f: f)
        assert nested.shape == (m + 1, *outputs(network, data.x).shape)
        for count in range(m + 1):
            kept = jnp.zeros(m).at[order[:count]].set(1.0)
            close(nested[count], outputs(network.silenced(layer, kept), data.x), rel=1e-10, abs=1e-12)
