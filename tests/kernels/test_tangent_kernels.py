"""Tangent kernels of any function: every way to compute them gives the contraction of full Jacobians."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small_models
from close import close
from small_models import MODELS, drawn
from unlazy._errors import UserError
from unlazy.kernels import kernel_costs, leading_eigenvalues, tangent_kernel, tangent_product

METHODS = ("auto", "layers", "jacobian", "products")


@eqx.filter_jit
def contracted(apply, params, x, z, rates=None):
    """Θ by full Jacobians, sample by sample in batches of one: (n, k, n', k)."""
    trained, rest = eqx.partition(params, eqx.is_inexact_array)

    def rows(points):
        def one(sample):
            return jax.jacrev(lambda leaves: apply(eqx.combine(leaves, rest), sample[None])[0].reshape(-1))(trained)

        return jax.vmap(one)(points)

    def part(a, b, rate=1.0):
        a = a * jnp.broadcast_to(rate, a.shape)
        return jnp.einsum("iks,jls->ikjl", a.reshape(*a.shape[:2], -1), b.reshape(*b.shape[:2], -1))

    several = (rows(x), rows(z)) if rates is None else (rows(x), rows(z), rates)
    return sum(jax.tree.leaves(jax.tree.map(part, *several)))


def scaled(actual, desired, tolerance):
    """Entries of a kernel are sums of products: they are compared on the scale of the whole."""
    close(actual, desired, rel=0, abs=tolerance * float(np.max(np.abs(desired))))


@pytest.mark.parametrize("name", MODELS)
def test_all_methods_agree_with_full_jacobians(name):
    apply, params, x = drawn(name)
    exact = contracted(apply, params, x, x[:3])
    several = apply(params, x).ndim == 2
    for method in METHODS:
        theta = tangent_kernel(apply, params, x, x[:3], method=method)
        scaled(theta, exact if several else exact[:, 0, :, 0], 1e-12)


@pytest.mark.parametrize("name", ["mlp", "cnn", "attention", "tied"])
def test_float32_is_kept_and_accurate(name):
    apply, params, x = drawn(name, dtype=jnp.float32)
    exact = contracted(*drawn(name), drawn(name)[2])
    for method in METHODS:
        theta = tangent_kernel(apply, params, x, method=method)
        assert theta.dtype == jnp.float32
        scaled(theta, exact, 1e-6)


@pytest.mark.parametrize("name", ["mlp", "cnn", "tied", "tied autoencoder", "attention"])
@pytest.mark.parametrize("method", ["layers", "jacobian", "products"])
def test_one_output_and_the_trace_are_cut_out_of_the_whole(name, method):
    apply, params, x = drawn(name)
    exact = contracted(apply, params, x, x[:3])
    scaled(tangent_kernel(apply, params, x, x[:3], method=method, outputs=1), exact[:, 1, :, 1], 1e-12)
    summed = tangent_kernel(apply, params, x, x[:3], method=method, outputs="trace")
    scaled(summed, np.einsum("ikjk->ij", exact), 1e-12)


@pytest.mark.parametrize("outputs", ["all", "trace"])
@pytest.mark.parametrize("method", ["layers", "jacobian", "products"])
def test_blocks_of_samples_and_outputs_change_nothing(method, outputs):
    apply, params, x = drawn("mlp", n=7)
    exact = contracted(apply, params, x, x[:5])
    exact = exact if outputs == "all" else np.einsum("ikjk->ij", exact)
    bounds = {costs.bytes for costs in kernel_costs(apply, params, x, x[:5], outputs=outputs).values()}
    smallest = least(apply, params, x, method)
    assert smallest < min(bounds)
    counts = set()
    for memory in (smallest, 3 * smallest, 10 * smallest):
        costs = kernel_costs(apply, params, x, x[:5], outputs=outputs, memory=memory)[method]
        counts.add(costs.blocks)
        assert costs.bytes <= memory
        scaled(tangent_kernel(apply, params, x, x[:5], method=method, outputs=outputs, memory=memory), exact, 1e-12)
    assert len(counts) == 3


def least(apply, params, x, method):
    """The memory that one sample and one output need."""
    return kernel_costs(apply, params, x[:1], outputs=0)[method].bytes


def test_too_little_memory_is_refused():
    apply, params, x = drawn("mlp")
    with pytest.raises(UserError, match="`memory` is"):
        tangent_kernel(apply, params, x, memory=100.0)


def test_working_memory_stays_within_the_bound():
    apply, params = (
        small_models.mlp,
        {"layers": [{"w": jnp.ones((50, 200)), "b": jnp.ones(200)}, {"w": jnp.ones((200, 10))}]},
    )
    x, memory = jnp.ones((40, 50)), 2.0**22
    for method in ("layers", "jacobian"):

        def whole(params, x, bound, method=method):
            return tangent_kernel(apply, params, x, method=method, memory=bound)

        def used(bound, whole=whole):
            lowered = jax.jit(lambda params, x: whole(params, x, bound)).lower(params, x)
            found = lowered.compile().memory_analysis()
            return found.temp_size_in_bytes

        result = (40 * 10) ** 2 * 8
        assert used(memory) <= memory + 2 * result, method
        if method == "jacobian":  # the bound is what makes the difference
            assert used(2.0**40) > 2 * (memory + 2 * result)


@pytest.mark.parametrize("method", METHODS)
def test_rates_weigh_leaves_and_zero_freezes_them(method):
    apply, params, x = drawn("mlp")
    rates = jax.tree.map(lambda leaf: 0.5 + leaf.size, params)
    rates["layers"][0]["w"] = 0.0
    rates["layers"][1]["w"] = jnp.linspace(0.1, 2.0, 30).reshape(6, 5)  # one for each entry
    exact = contracted(apply, params, x, x, rates)
    scaled(tangent_kernel(apply, params, x, rates=rates, method=method), exact, 1e-12)


def test_a_frozen_weight_is_no_layer():
    apply, params, x = drawn("mlp")
    rates = jax.tree.map(lambda _: 1.0, params)
    rates["layers"][0]["w"] = 0.0
    found = kernel_costs(apply, params, x, rates=rates)["layers"]
    assert found.gram == ("layers.1.w", "layers.2.w")


def test_each_parameter_goes_the_cheapest_way():
    keys = jax.random.split(jax.random.key(0))
    wide = {"layers": [{"w": jax.random.normal(keys[0], (300, 200)), "b": jnp.zeros(200)}, {"w": jnp.ones((200, 10))}]}
    costs = kernel_costs(small_models.mlp, wide, jnp.ones((8, 300)))
    assert costs["auto"].gram == ("layers.0.w", "layers.1.w")
    assert costs["auto"].operations * 5 < costs["jacobian"].operations
    apply, params, x = drawn("cnn")
    images = kernel_costs(apply, params, jnp.ones((8, 2, 6, 6)))
    assert "first" in images["layers"].gram
    assert "first" not in images["auto"].gram
    assert images["auto"].operations <= min(one.operations for one in images.values())
    del x


def test_which_uses_of_a_weight_gram_matrices_can_express():
    def gram(name):
        apply, params, x = drawn(name)
        return kernel_costs(apply, params, x)["layers"].gram

    assert gram("tied") == ("out", "w")
    assert gram("tied autoencoder") == ("w",)
    assert gram("tied otherwise") == ()  # its uses overlap in part
    assert gram("scan") == gram("stacked by hand") == ("w",)
    assert gram("recurrent") == ("u", "w")
    assert gram("long scan") == ()
    assert gram("attention") == ("down", "k", "o", "q", "up", "v")
    assert gram("own derivatives") == ()  # the rules of `odd` and `linear` must be respected
    assert gram("equinox") == ("conv.weight", "mlp.layers.0.weight", "mlp.layers.1.weight")


def test_tokens_and_shared_embeddings():
    params = {
        "table": small_models.normal(7, 4, seed=1),
        "w": small_models.normal(4, 4, seed=2),
        "where": jnp.ones((5, 4)),
    }
    x = jax.random.randint(jax.random.key(0), (6, 5), 0, 7)
    exact = contracted(small_models.tokens, params, x, x)
    for method in METHODS:
        scaled(tangent_kernel(small_models.tokens, params, x, method=method), exact, 1e-12)


def test_new_numbers_are_not_compiled_again(compilations):
    apply, params, x = drawn("attention")
    tangent_kernel(apply, params, x, rates=jax.tree.map(lambda _: 2.0, params))
    again = jax.tree.map(lambda leaf: leaf + 1, params)
    rates, y = jax.tree.map(lambda _: 3.0, params), x + 1
    jax.block_until_ready(jax.tree.map(jnp.asarray, rates))
    compilations.count = 0
    tangent_kernel(apply, again, y, rates=rates)
    assert compilations.count == 0


def test_products_are_those_of_the_matrix():
    apply, params, x = drawn("mlp", n=6)
    rates = jax.tree.map(lambda leaf: 1.0 + leaf.size, params)
    theta = contracted(apply, params, x, x, rates)
    signal = np.random.default_rng(0).standard_normal((6, 3))
    exact = np.einsum("ikjl,jl->ik", theta, signal)
    for block in (None, 1, 4):
        scaled(tangent_product(apply, params, x, signal, rates=rates, block=block), exact, 1e-12)
        scaled(tangent_product(apply, params, x, signal, x[:5], rates=rates, block=block), exact[:5], 1e-12)


def test_leading_eigenvalues_are_those_of_the_matrix():
    apply, params, x = drawn("mlp", n=8)
    theta = contracted(apply, params, x, x).reshape(24, 24)
    values, vectors = leading_eigenvalues(apply, params, x, 4)
    exact = np.linalg.eigvalsh(theta)[::-1][:4]
    close(values, exact, rel=1e-10)
    vectors = vectors.reshape(4, 24)
    scaled(vectors @ theta, exact[:, None] * vectors, 1e-9)


def test_mistakes_are_explained():
    apply, params, x = drawn("mlp")
    with pytest.raises(UserError, match="There is no output 3"):
        tangent_kernel(apply, params, x, outputs=3)
    with pytest.raises(UserError, match="no trained parameter"):
        tangent_kernel(apply, params, x, rates=jax.tree.map(lambda _: 0.0, params))
    with pytest.raises(UserError, match="`rates` must be a tree"):
        tangent_kernel(apply, params, x, rates={"w": 1.0})
    with pytest.raises(UserError, match="reshape or choose outputs"):
        tangent_kernel(lambda p, x: jnp.tile(apply(p, x)[:, :, None], 2), params, x)
    with pytest.raises(UserError, match="for a batch of one it returned"):
        tangent_kernel(lambda p, x: jnp.tile(apply(p, x).T, (2, 1)), params, x)
    with pytest.raises(UserError, match="A while loop uses the parameter 'w'"):
        tangent_kernel(while_loop, {"w": jnp.eye(4)}, x)
    with pytest.raises(UserError, match="out of range"):
        leading_eigenvalues(apply, params, x, 15)
    with pytest.raises(UserError, match="The signal has shape"):
        tangent_product(apply, params, x, jnp.ones(5))


def while_loop(p, x):
    return jax.lax.while_loop(lambda h: jnp.sum(h) < 10, lambda h: h @ p["w"] + 1, x)
