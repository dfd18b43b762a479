"""Checks for networks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy.data import Dataset
from unlazy.networks import Layout, Network, Prepared, generic_kernel, raw_inputs, split_trained, trained_rates
from unlazy.testing.members import close

# Compiled as a whole, as in flows: operation by operation, compilation takes several times as long.
outputs = eqx.filter_jit(lambda network, x: network(x))
kernel = eqx.filter_jit(lambda network, x, z: network.tangent_kernel(x, z))
_prepared = eqx.filter_jit(lambda network, data: network.prepare(data))


def check_network(network: Network, data: Dataset) -> None:
    """Check everything that flows and probes rely on.

    Parameters
    ----------
    network
        A small network (the checks build full Jacobians) on raw inputs.
    data
        Data with matching inputs and outputs and at least four training samples; a test set is checked as well.
    """
    for check in NETWORK_CHECKS.values():
        check(network, data)


def forms(network: Network, data: Dataset) -> dict[str, Prepared]:
    """Return the network as flows train it: in weights and, where it can be, in Gram coordinates."""
    form = network.gram_form(data)
    found = {"weights": _prepared(network, data)}
    return found if form is None else found | {"gram": form.prepare(Layout())}


def values_are_the_same_in_all_forms(network: Network, data: Dataset) -> None:
    """Check that values are the same prepared or restored, on handles, their slices or raw inputs."""
    for name, (prepared, x, x_test) in forms(network, data).items():
        restored = prepared.restore()
        for handle, raw in ((x, data.x), (x_test, data.x_test)):
            if handle is None or raw is None:
                continue
            what = f"{name}: the network on a handle is not the network on raw inputs"
            assert np.array_equal(raw_inputs(handle), raw), f"{name}: a handle does not contain the raw points."
            exact = outputs(restored, raw)
            assert exact.shape == raw.shape[:1] + data.y.shape[1:], "Outputs must have the shape of the targets."
            close(outputs(prepared, handle), exact, 1e-6, 1e-9, what)
            close(outputs(prepared, raw), exact, 1e-6, 1e-9, f"{name}: a prepared network is wrong on raw inputs")
            close(outputs(restored, handle), exact, 1e-6, 1e-9, what)
            order = jnp.asarray([2, 0, 1])
            for part in (slice(-2, None), slice(1, 3), slice(None, None, 2), order):
                close(outputs(prepared, handle[part]), exact[part], 1e-6, 1e-9, f"{name}: {part} of a handle is wrong")
    once = _prepared(network, data)
    twice, what = _prepared(once.network.restore(), data), "Preparing a restored network changes its values"
    close(outputs(twice.network, twice.x), outputs(once.network, once.x), 1e-9, 1e-11, what)


def batches_are_loops(network: Network, data: Dataset) -> None:
    """Check that the output of a sample does not depend on the other samples."""
    for name, (prepared, x, _) in forms(network, data).items():
        loop = jnp.concatenate([outputs(prepared, x[i : i + 1]) for i in range(data.n)])
        close(outputs(prepared, x), loop, 1e-11, 1e-13, f"{name}: a batch is not its samples one by one")


def rates_match_the_tree(network: Network, data: Dataset) -> None:
    """Check that rates are floats >= 0, one for each floating-point leaf, and that something is trained."""
    for name, (prepared, _, _) in forms(network, data).items():
        rates = prepared.rates()
        wanted = jax.tree.structure(eqx.filter(prepared, eqx.is_inexact_array))
        assert jax.tree.structure(rates) == wanted, f"{name}: `rates` is not the tree of the floating-point leaves."
        leaves = jax.tree.leaves(rates)
        assert all(isinstance(rate, float) and rate >= 0 for rate in leaves), f"{name}: rates are Python floats >= 0."
        assert max(leaves) > 0, f"{name}: nothing is trained."
        trained, frozen = split_trained(prepared)
        assert jax.tree.structure(trained) == jax.tree.structure(trained_rates(prepared))
        both = len(jax.tree.leaves(trained)) + len(jax.tree.leaves(frozen))
        assert both == len(jax.tree.leaves(prepared)), f"{name}: `split_trained` loses leaves."


def brute_force_kernel(network: Network, x: Any, z: Any) -> np.ndarray:
    """J(x) R J(z)^T from full Jacobians, leaf by leaf: the definition."""
    trained, frozen = split_trained(network)
    rates = jax.tree.leaves(trained_rates(network))

    @eqx.filter_jit
    def full(points: Any) -> Any:
        return jax.jacobian(lambda leaves: eqx.combine(leaves, frozen)(points).reshape(-1))(trained)

    def jacobians(points: Any) -> list[np.ndarray]:
        return [np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(full(points))]

    pairs = zip(rates, jacobians(x), jacobians(z), strict=True)
    product = sum(rate * left @ right.T for rate, left, right in pairs)
    each = outputs(network, x).shape[1:]
    return np.asarray(product).reshape(x.shape[0], *each, z.shape[0], *each)


def kernels_are_jacobians(network: Network, data: Dataset) -> None:
    """The tangent kernel is J R J^T, on handles and on raw inputs, and in Gram coordinates the same."""
    for name, (prepared, x, x_test) in forms(network, data).items():
        other = x[:3] if x_test is None else x_test[:3]
        # In Gram coordinates autodiff gives a velocity; handles of another form serve as raw inputs.
        exact = brute_force_kernel(_prepared(network, data).network if name == "gram" else prepared, x, other)
        close(kernel(prepared, x, other), exact, 1e-8, 1e-10, f"{name}: the tangent kernel is not J R J^T")
        close(kernel(prepared, x, None), kernel(prepared, x, x), 1e-12, 1e-14, f"{name}: Θ(x) is not Θ(x, x)")
        raw = kernel(prepared, raw_inputs(x), raw_inputs(other))
        close(raw, exact, 1e-6, 1e-9, f"{name}: the tangent kernel on raw inputs is wrong")
        if name == "weights":
            for method in ("layers", "jacobian"):
                generic = generic_kernel(prepared, x, other, method=method)
                close(generic, exact, 1e-8, 1e-10, f"The kernel by automatic differentiation ({method}) is wrong")
        if data.outputs is not None:
            whole = kernel(prepared, x, x)
            for output in range(data.outputs):
                cut = prepared.output_kernel(x, x, output)
                close(cut, whole[:, output, :, output], 1e-11, 1e-13, f"{name}: `output_kernel` is not cut out of Θ")


def movement_is_distance(network: Network, data: Dataset) -> None:
    """Nothing has moved at the start, and everything has after a shift of all trained parameters."""
    for name, (prepared, _, _) in forms(network, data).items():
        still = prepared.movement(prepared)
        assert all(np.all(np.asarray(moved) == 0) for moved in still.values()), f"{name}: at the start movement is 0."
        trained, frozen = split_trained(prepared)
        shifted = eqx.combine(jax.tree.map(lambda leaf: leaf + 0.25, trained), frozen)
        there = shifted.movement(prepared)
        assert all(np.all(np.asarray(moved) > 0) for moved in there.values()), f"{name}: a shift is a movement."
        restored = shifted.restore().movement(prepared.restore())
        assert set(there) == set(restored), f"{name}: the names of moving layers differ on raw inputs."
        for layer, moved in there.items():
            close(moved, restored[layer], 1e-6, 1e-9, f"{name}: movement differs from that of the restored network")


def precision_is_kept(network: Network, data: Dataset) -> None:
    """Check that a float32 network computes in float32."""

    def single(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, tree)

    for name, (prepared, x, _) in forms(network, data).items():
        f = outputs(single(prepared), single(x))
        assert f.dtype == jnp.float32, f"{name}: outputs of a float32 network are {f.dtype}."
        theta = kernel(single(prepared), single(x), None)
        assert theta.dtype == jnp.float32, f"{name}: the tangent kernel of a float32 network is {theta.dtype}."
        close(f, outputs(prepared, x), 1e-3, 1e-4, f"{name}: float32 is not close to float64")


def neurons_can_be_handled(network: Network, data: Dataset) -> None:
    """Layers have the same neurons in all forms, which can be permuted, weighted, silenced, merged and nested."""
    for name, (prepared, x, _) in forms(network, data).items():
        f, restored = outputs(prepared, x), prepared.restore()
        assert set(prepared.layers()) == set(restored.layers()), f"{name}: the layers differ on raw inputs."
        for layer_name in prepared.layers():
            _neurons(f"{name}, {layer_name}", prepared, restored, layer_name, x, f)


def _neurons(what: str, prepared: Network, restored: Network, name: str, x: Any, f: Any) -> None:
    layer, raw_layer = prepared.layers()[name], restored.layers()[name]
    h = eqx.filter_jit(lambda net, points: net.layers()[name].preactivations(points))(prepared, x)
    close(h, raw_layer.preactivations(raw_inputs(x)), 1e-6, 1e-9, f"{what}: pre-activations differ on raw inputs")
    m = h.shape[1]
    weights = layer.weights()
    assert weights.shape[0] == m, f"{what}: {weights.shape[0]} rows of weights for {m} neurons."
    close(weights, raw_layer.weights(), 1e-6, 1e-9, f"{what}: weights differ from those on raw inputs")
    order = jnp.roll(jnp.arange(m)[::-1], 2)
    permuted = layer.permute(order)
    close(outputs(permuted, x), f, 1e-6, 1e-9, f"{what}: permuting neurons changes the function")
    moved = permuted.layers()[name]
    close(moved.preactivations(x), h[:, order], 1e-6, 1e-9, f"{what}: pre-activations are not permuted")
    close(kernel(permuted, x, None), kernel(prepared, x, None), 1e-6, 1e-8, f"{what}: permuting changes the kernel")
    importance = layer.importance()
    assert importance.shape == (m,), f"{what}: importance has shape {importance.shape}, not {(m,)}."
    assert np.all(np.asarray(importance) >= 0), f"{what}: importance is negative."
    close(moved.importance(), importance[order], 1e-6, 1e-9, f"{what}: importance is not permuted")
    close(moved.responses(x), layer.responses(x)[:, order], 1e-6, 1e-9, f"{what}: responses are not permuted")
    close(outputs(layer.silence(jnp.ones(m)), x), f, 1e-6, 1e-9, f"{what}: keeping all neurons changes the function")
    eye = jnp.eye(m)
    close(outputs(layer.merge(eye, eye), x), f, 1e-6, 1e-9, f"{what}: merging nothing changes the function")
    halves = jnp.concatenate([eye.at[0].mul(0.25), 0.75 * eye[:1]])
    split = layer.merge(jnp.concatenate([eye, eye[:1]]), halves)
    close(outputs(split, x), f, 1e-6, 1e-9, f"{what}: splitting one neuron into two changes the function")
    ranked = jnp.argsort(-importance)
    nested = layer.nested(x, ranked, lambda values: values)
    assert nested.shape == (m + 1, *f.shape), f"{what}: `nested` has shape {nested.shape}."
    for count in (0, 1, m // 2, m):
        kept = jnp.zeros(m).at[ranked[:count]].set(1.0)
        close(nested[count], outputs(layer.silence(kept), x), 1e-6, 1e-9, f"{what}: `nested` at {count} neurons")


NETWORK_CHECKS: dict[str, Callable[[Network, Dataset], None]] = {
    check.__name__: check
    for check in (
        values_are_the_same_in_all_forms,
        batches_are_loops,
        rates_match_the_tree,
        kernels_are_jacobians,
        movement_is_distance,
        precision_is_kept,
        neurons_can_be_handled,
    )
}
