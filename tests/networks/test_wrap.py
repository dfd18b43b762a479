"""Models of other libraries as networks: the same numbers from each, frozen parts, state, recipes, and plain errors."""

import functools
import json
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import foreign_models as foreign
import unlazy
from unlazy import GradientFlow, Linearised, TwoLayer
from unlazy._errors import UserError
from unlazy._registry import choose, members
from unlazy.data import Dataset
from unlazy.lab import Lab, instantiate, parse, read_run
from unlazy.lab.identity import _SESSION, Description
from unlazy.networks import Network, as_network, split_trained
from unlazy.testing import check_network
from unlazy.theory import Verdict

MODELS = [pytest.param(make, id=make.__name__) for make in foreign.JAX]


@pytest.mark.parametrize("make", MODELS)
def test_outputs_are_those_of_the_model(make):
    data = foreign.samples()
    network = unlazy.wrap(make())
    np.testing.assert_allclose(network(data.x), foreign.by_hand(np.asarray(data.x)), rtol=1e-12)


@pytest.mark.parametrize("make", MODELS)
def test_wrapped_models_keep_the_contract_of_networks(make):
    check_network(unlazy.wrap(make()), foreign.samples())


@functools.cache
def run_of(make):
    return GradientFlow(tolerance=1e-3)(
        unlazy.wrap(make()), foreign.samples(), [0, 0.5], ["train-loss", "test-loss", "kernel"]
    )


@pytest.mark.parametrize("make", MODELS[1:])
def test_all_libraries_give_the_same_flow(make):
    one, other = run_of(foreign.equinox), run_of(make)
    for name in ("train-loss", "test-loss"):
        np.testing.assert_allclose(other.observed[name], one.observed[name], rtol=1e-9)
    for part in ("drift", "smallest", "largest"):
        np.testing.assert_allclose(other.observed["kernel"][part], one.observed["kernel"][part], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make", MODELS)
def test_the_trained_model_comes_back_as_it_was_given(make):
    given, run, x = make(), run_of(make), foreign.samples().x
    model = run.final.model
    assert type(model) is type(given)
    again = unlazy.wrap(model)
    np.testing.assert_array_equal(again(x), run.final(x))
    assert not np.array_equal(again(x), run.start(x))
    np.testing.assert_array_equal(run.start.with_model(model)(x), run.final(x))


def test_the_same_flow_as_that_of_our_own_network(key):
    """f(x) = Σ_j a_j tanh(w_j·x / √d) / m: `TwoLayer`, and the same function with the same rates."""
    own = TwoLayer(8, 3, activation="tanh", key=key)

    def apply(params, x):
        return jnp.tanh(x @ params["w"].T / 3**0.5) @ params["a"]

    rates = {"w": 8.0, "a": False}
    mine = unlazy.wrap(apply, {"w": own.w, "a": own.readout()}, rates=rates)
    x = foreign.samples().x
    data = Dataset(x, jnp.sin(x[:, 0]))
    np.testing.assert_allclose(mine(x), own(x), rtol=1e-12)
    flow = GradientFlow(tolerance=1e-6, method="stabilised", coordinates="weights")
    runs = [flow(network, data, [0, 1, 10], ["train-loss", "kernel"]) for network in (own, mine)]
    for name in ("train-loss", "kernel"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12), *(run.observed[name] for run in runs)
        )
    np.testing.assert_allclose(runs[1].final.parameters["w"], runs[0].final.w, rtol=1e-8)


# ---------------------------------------------------------------- what is trained

FROZEN = [
    lambda name: not name.startswith("0"),
    lambda name: 0 if name in ("0.0", "0.1") else 1,
    [(False, False), (True, True), (1.0, 1), (True, 1)],
    [False, True, True, True],
]


@pytest.mark.parametrize("rates", FROZEN)
def test_parameters_are_frozen(rates):
    network = unlazy.wrap(foreign.function(), rates=rates)
    assert network.factors == (0.0, 0.0, *(1.0,) * 6)
    check_rates = split_trained(network)[0].parameters
    assert [leaf is None for pair in check_rates for leaf in pair] == [True, True, *[False] * 6]
    run = GradientFlow(tolerance=1e-2)(network, foreign.samples(), [0, 0.1], ["weight-movement"])
    assert set(run.observed["weight-movement"]) == {"1.0", "1.1", "2.0", "2.1", "3.0", "3.1"}
    np.testing.assert_array_equal(run.final.parameters[0][0], run.start.parameters[0][0])
    assert np.all(run.observed["weight-movement"]["1.0"][-1] > 0)


def test_rates_of_an_equinox_module_may_be_a_tree_like_the_module():
    module = foreign.equinox()
    everything = jax.tree.map(lambda _: False, module)
    only_last = eqx.tree_at(lambda one: one.layers[-1].weight, everything, True)
    network = unlazy.wrap(module, rates=only_last)
    assert network.factors == (*(0.0,) * 6, 1.0, 0.0)
    arrays = jax.tree.map(lambda _: 2.0, eqx.filter(module, eqx.is_inexact_array))
    assert unlazy.wrap(module, rates=arrays).factors == (2.0,) * 8


def test_a_rate_scales_the_kernel():
    x, model = foreign.samples().x, foreign.function()
    once, thrice = (unlazy.wrap(model, rates=lambda _, rate=rate: rate).tangent_kernel(x) for rate in (1.0, 3.0))
    np.testing.assert_allclose(thrice, 3 * np.asarray(once), rtol=1e-12)


def test_whole_numbers_and_keys_are_not_trained():
    def apply(params, x):
        return x @ params["w"] * params["scale"] + jax.random.uniform(params["key"])

    params = {"w": np.ones(3), "scale": 2, "count": np.arange(3), "key": jax.random.key(0), "none": None}
    network = unlazy.wrap(apply, params)
    assert len(network.factors) == 1
    run = GradientFlow(tolerance=1e-2)(network, Dataset(np.eye(3), np.ones(3)), [0, 1.0], ["train-loss"])
    assert run.observed["train-loss"][-1] < run.observed["train-loss"][0]
    assert run.final.model[1]["scale"] == 2


# ---------------------------------------------------------------- how models are called


class Sum(eqx.Module):
    """A module of batches, whose sum over the last axis would also work on one sample."""

    w: jax.Array

    def __call__(self, x):
        return jnp.einsum("nd,d->n", x, self.w)


def per_sample(params, x):
    return params @ x  # on a batch of as many samples as there are inputs it would not fail


def test_batches_and_samples_are_told_apart(key):
    x = jax.random.normal(key, (3, 3))
    w = jnp.asarray([1.0, 2.0, 3.0])
    wanted = np.asarray(x) @ np.asarray(w)
    for network in (unlazy.wrap(Sum(w)), unlazy.wrap(per_sample, w), unlazy.wrap(per_sample, w, batched=False)):
        np.testing.assert_allclose(network(x), wanted, rtol=1e-12)
    assert unlazy.wrap(lambda w, x: x @ w, w)(x).shape == (3,)
    with pytest.raises(UserError, match=r"per_sample (cannot be called on|gives outputs of shape .* on) a batch"):
        unlazy.wrap(per_sample, w, batched=True)(x[:2])


def test_one_output_is_a_vector_unless_it_shall_not():
    x, w = foreign.samples().x, np.ones((3, 1))
    assert unlazy.wrap(lambda w, x: x @ w, w)(x).shape == (6,)
    assert unlazy.wrap(lambda w, x: x @ w, w, squeeze=False)(x).shape == (6, 1)


def test_samples_are_brought_into_shape(key):
    images = jax.random.normal(key, (4, 1, 6, 6))
    conv = eqx.nn.Conv2d(1, 2, 3, key=key)
    model = eqx.nn.Sequential([conv, eqx.nn.Lambda(jnp.tanh), eqx.nn.Lambda(jnp.ravel)])
    flat, whole = unlazy.wrap(model, input_shape=(1, 6, 6)), unlazy.wrap(model)
    np.testing.assert_array_equal(flat(images.reshape(4, 36)), whole(images))
    with pytest.raises(UserError, match=r"input_shape = \(1, 6, 6\) does not hold a sample of shape \(35,\)"):
        flat(images.reshape(4, 36)[:, :35])


def test_tokens_are_whole_numbers(key):
    table, tokens = jax.random.normal(key, (7, 2)), jnp.asarray([[0.0, 1.0], [6.0, 3.0], [2.0, 2.0]])

    def apply(table, x):
        return jnp.mean(table[x], axis=1)

    with pytest.raises(UserError, match="integer_inputs=True"):
        unlazy.wrap(apply, table)(tokens)
    network = unlazy.wrap(apply, table, integer_inputs=True)
    np.testing.assert_allclose(network(tokens)[1], (table[6] + table[3]) / 2, rtol=1e-12)
    run = GradientFlow(tolerance=1e-2)(network, Dataset(tokens, jnp.ones((3, 2))), [0, 1.0], ["train-loss", "kernel"])
    assert run.observed["train-loss"][-1] < run.observed["train-loss"][0]


def drawn(key, like):
    return jax.random.normal(key, like.shape, jnp.float32).astype(like.dtype)  # the same numbers in any precision


class Noisy(eqx.Module):
    """Dropout, which inference mode switches off, and noise, which it does not."""

    linear: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    noise: float

    def __call__(self, x, *, key=None):
        h = self.dropout(self.linear(x), key=key)
        return h + self.noise * drawn(key, h) if self.noise else h


def test_dropout_is_off_and_noise_asks_for_a_key(key):
    x = foreign.samples().x
    linear = eqx.nn.Linear(3, 2, key=key)
    quiet = unlazy.wrap(Noisy(linear, eqx.nn.Dropout(0.5), 0.0))
    np.testing.assert_allclose(quiet(x), jax.vmap(linear)(x), rtol=1e-12)
    assert quiet.model.dropout.inference is False
    noisy = Noisy(linear, eqx.nn.Dropout(0.5), 1.0)
    with pytest.raises(UserError, match="key=0"):
        unlazy.wrap(noisy)(x)
    network = unlazy.wrap(noisy, key=0)
    check_network(network, foreign.samples())
    assert not np.allclose(network(x), quiet(x))


def test_noise_of_a_batch_does_not_depend_on_the_batch():
    def apply(params, x, key):
        return x @ params + drawn(key, x[:, 0])

    check_network(unlazy.wrap(apply, np.ones(3), key=1), Dataset(foreign.samples().x, np.ones(6)))


def test_arguments_of_the_call():
    x = foreign.samples().x
    network = unlazy.wrap(lambda w, x, power: (x @ w) ** power, np.ones(3), call={"power": 2})
    np.testing.assert_allclose(network(x), np.sum(x, axis=1) ** 2, rtol=1e-12)
    with pytest.raises(UserError, match=r"further arguments of the model by call="):
        unlazy.wrap(lambda w, x, power: (x @ w) ** power, np.ones(3))(x)
    with pytest.raises(UserError, match="call has an argument 'powr', which the model does not take"):
        unlazy.wrap(lambda w, x, power: x @ w, np.ones(3), call={"powr": 2})


# ---------------------------------------------------------------- state


class Normed(eqx.Module):
    """A layer with running averages."""

    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self, key):
        self.linear, self.norm = eqx.nn.Linear(3, 2, key=key), eqx.nn.BatchNorm(2, "batch", mode="batch")

    def __call__(self, x, state):
        return self.norm(self.linear(x), state)


def equinox_with_state():
    return eqx.nn.make_with_state(Normed)(jax.random.key(0))


def linen_with_state():
    nn = pytest.importorskip("flax.linen")

    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x, train: bool = True):
            norm = nn.BatchNorm(use_running_average=not train, param_dtype=float)
            return norm(nn.Dense(2, param_dtype=float)(x))

    module = Mlp()
    return module, module.init(jax.random.key(0), jnp.ones((1, 3)))


def nnx_with_state():
    nnx = pytest.importorskip("flax.nnx")

    class Mlp(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(3, 2, param_dtype=float, rngs=rngs)
            self.norm = nnx.BatchNorm(2, param_dtype=float, rngs=rngs)

        def __call__(self, x):
            return self.norm(self.linear(x))

    return Mlp(nnx.Rngs(0))


def haiku_with_state():
    hk = pytest.importorskip("haiku")

    def apply(x, is_training):
        return hk.BatchNorm(True, True, 0.9)(hk.Linear(2)(x), is_training)

    function = hk.transform_with_state(apply)
    return function, *function.init(jax.random.key(0), jnp.ones((4, 3)), is_training=True)


STATEFUL = [equinox_with_state, linen_with_state, nnx_with_state, haiku_with_state]


@pytest.mark.parametrize("make", STATEFUL)
def test_running_averages_are_refused_or_frozen(make):
    model = make()
    with pytest.raises(UserError, match=r"training changes by other means than gradients: give state='freeze'"):
        unlazy.wrap(model)
    network, data = unlazy.wrap(model, state="freeze"), foreign.samples()
    run = GradientFlow(tolerance=1e-2)(network, data, [0, 0.1], ["train-loss"])
    assert run.observed["train-loss"][-1] < run.observed["train-loss"][0]
    jax.tree.map(np.testing.assert_array_equal, run.final.constants, run.start.constants)
    again = unlazy.wrap(run.final.model, state="freeze")
    np.testing.assert_array_equal(again(data.x), run.final(data.x))
    one_by_one = np.concatenate([network(data.x[i : i + 1]) for i in range(data.n)])
    np.testing.assert_allclose(network(data.x), one_by_one, rtol=1e-12)


def test_layers_with_state_ask_for_it():
    model, _ = equinox_with_state()
    with pytest.raises(UserError, match=r"give wrap\(model, state\)"):
        unlazy.wrap(model, state="freeze")


# ---------------------------------------------------------------- flows, theorems, recipes and the store


def test_linearised_and_several_seeds():
    data = foreign.samples()
    networks = [unlazy.wrap(eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(i))) for i in range(2)]
    run = Linearised()(networks[0], data, [0, 1.0], ["train-loss"])
    assert run.observed["train-loss"][-1] < run.observed["train-loss"][0]
    runs = GradientFlow(tolerance=1e-2).over_seeds(networks, data, [0, 0.1], ["train-loss"])
    alone = GradientFlow(tolerance=1e-2)(networks[1], data, [0, 0.1], ["train-loss"])
    np.testing.assert_allclose(runs[1].observed["train-loss"], alone.observed["train-loss"], rtol=1e-10)


def test_theorems_are_silent_on_a_wrapped_model():
    run = run_of(foreign.equinox)
    for theorem in choose("theorem"):
        finding = theorem.check(run)
        assert finding.verdict is Verdict.SILENT, f"{theorem.key}: {finding.why}"


MODULE = """
import equinox as eqx, jax, jax.numpy as jnp, unlazy

def make(width: int, inputs: int, *, key):
    return eqx.nn.MLP(inputs, 1, width, 1, activation=jnp.tanh, key=key)

def with_parameters(inputs: int, key):
    return apply, {"w": jax.random.normal(key, (inputs,))}

def apply(params, x):
    return jnp.tanh(x @ params["w"])

class Own(eqx.Module):
    w: jax.Array
    def __init__(self, inputs, *, key):
        self.w = jax.random.normal(key, (inputs,))
    def __call__(self, x):
        return jnp.tanh(x @ self.w)

def wrapped(inputs, *, key):
    return unlazy.wrap(Own(inputs, key=key), rates=lambda name: 2.0)

def nothing(inputs):
    return "a word"
"""


def recipe(network, **more):
    table = {
        "name": "mine",
        "data": {"kind": "random-labels", "n": 6, "d": 3},
        "network": network,
        "flow": {"kind": "gradient-flow", "tolerance": 1e-2},
        "times": [0.0, 0.5],
        "probes": ["train-loss", "weight-movement"],
    }
    return parse(table | more)


@pytest.fixture
def mymodels(tmp_path, monkeypatch):
    (tmp_path / "mymodels.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "network",
    [{"kind": "mymodels:make", "width": 4}, "mymodels:with_parameters", "mymodels:Own", "mymodels:wrapped"],
    ids=str,
)
def test_recipes_name_functions_that_make_models(mymodels, network):
    networks = instantiate(recipe(network, seeds=2)).networks
    assert all(isinstance(one, Network) for one in networks)
    assert networks[0].factors[0] == (2.0 if network == "mymodels:wrapped" else 1.0)
    lab = Lab(mymodels / "runs")
    run = lab.run(recipe(network, seeds=2, dtype="float32"))
    assert run["train-loss"].shape == (2, 2)
    assert float(run["train-loss"].isel(time=-1).max()) < float(run["train-loss"].isel(time=0).max())
    told = []
    again = Lab(mymodels / "runs", tell=lambda _, share, note: told.append(note))
    again.run(recipe(network, seeds=2, dtype="float32", name="another name"))
    assert not any(note.startswith("t =") for note in told), "it was computed again"


def test_a_recipe_says_what_a_function_made_that_is_no_model(mymodels):
    with pytest.raises(
        UserError, match=r"network: 'mymodels:nothing' made a str, where a network was expected. wrap was"
    ):
        instantiate(recipe("mymodels:nothing"))


def test_a_wrapped_run_is_kept_in_the_store(tmp_path):
    run = GradientFlow(tolerance=1e-2)(
        unlazy.wrap(foreign.equinox()), foreign.samples(), [0, 0.1], ["train-loss", "weight-movement"]
    )
    kept = read_run(Lab(tmp_path).keep("my run", run))
    assert kept.attrs["description"].startswith("MLP trained by Stabilised on 'data'")
    np.testing.assert_array_equal(kept["train-loss"].values[0], run.observed["train-loss"])
    assert "weight-movement.layers.0.weight" in kept


@pytest.mark.parametrize("make", MODELS)
def test_identities_depend_on_weights_and_not_on_objects(make):
    first, second = unlazy.wrap(make()), unlazy.wrap(make())
    other = unlazy.wrap(make()).with_model(run_of(make).final.model)

    def described(network):
        found = Description().value(network)
        assert _SESSION not in json.dumps(found), "it could not be recognised in another process"
        return found

    assert described(first) == described(second) != described(other)


def test_names_with_slashes_can_be_stored(tmp_path):
    """As Haiku has them; in a netCDF file they would be groups."""

    def apply(params, x):
        return x @ params["mlp/~/linear_0"]["w"]

    network = unlazy.wrap(apply, {"mlp/~/linear_0": {"w": np.ones((3, 2))}})
    run = GradientFlow(tolerance=1e-2)(network, foreign.samples(), [0, 0.1], ["weight-movement"])
    assert set(run.observed["weight-movement"]) == {"mlp.linear_0.w"}
    kept = read_run(Lab(tmp_path).keep("run", run))
    np.testing.assert_array_equal(
        kept["weight-movement.mlp.linear_0.w"].values[0], run.observed["weight-movement"]["mlp.linear_0.w"]
    )


def test_another_precision_than_that_of_the_data_is_named():
    network = unlazy.wrap(lambda w, x: x @ w, np.ones(3, np.float32))
    data = foreign.samples()
    with pytest.raises(UserError, match=r"is float32, but data set 'data' is float64: convert the data by data.astype"):
        GradientFlow()(network, Dataset(data.x, data.y[:, 0]), [0, 1.0])


def test_wrappers_are_not_offered_in_recipes():
    assert not {"wrapped", "torch-network", "wrap", "as-network"} & set(members("network"))


# ---------------------------------------------------------------- errors


class Empty(eqx.Module):
    def __call__(self, x):
        return x


MISTAKES = {
    "a word": (lambda: unlazy.wrap("model"), r"wrap was given 'model': give an Equinox module, a flax\.linen module"),
    "a class": (lambda: unlazy.wrap(eqx.nn.MLP), r"wrap was given the class MLP, not one of its objects"),
    "no parameters": (lambda: unlazy.wrap(Empty()), "Empty has no floating-point parameters"),
    "a function alone": (
        lambda: unlazy.wrap(foreign.mlp),
        r"'mlp' does not hold its parameters: give wrap\(apply, par",
    ),
    "a network": (lambda: unlazy.wrap(TwoLayer(2, 2, key=0)), "A TwoLayer is a network already"),
    "NaN": (lambda: unlazy.wrap(foreign.mlp, {"w": np.array([np.nan])}), "'w' of mlp has entries that are NaN"),
    "NaN in an array alone": (
        lambda: unlazy.wrap(foreign.mlp, np.array([np.nan])),
        "The parameter of mlp has entries that are NaN",
    ),
    "complex": (lambda: unlazy.wrap(foreign.mlp, {"w": np.array([1j])}), "'w' of mlp is complex"),
    "state": (lambda: unlazy.wrap(foreign.equinox(), state="thaw"), "state = 'thaw' is not one of 'refuse', 'freeze'"),
    "module and more": (
        lambda: unlazy.wrap(foreign.equinox(), {"w": 1.0}),
        r"give wrap\(model\), here of class MLP, al",
    ),
    "a negative rate": (
        lambda: unlazy.wrap(*foreign.function(), rates=lambda _: -1),
        "'0.0' is -1, where a number >= 0",
    ),
    "no rate": (lambda: unlazy.wrap(*foreign.function(), rates=lambda _: None), "'0.0' is None, where a number >= 0"),
    "all frozen": (lambda: unlazy.wrap(*foreign.function(), rates=lambda _: False), "All rates are 0"),
    "another tree": (
        lambda: unlazy.wrap(*foreign.function(), rates={"w": 1}),
        "does not have the structure of the par",
    ),
    "entrywise": (
        lambda: unlazy.wrap(*foreign.function(), rates=jax.tree.map(np.ones_like, foreign.weights())),
        r"The rate of '0\.0' is an array of shape \(3, 5\)",
    ),
    "rank 3": (
        lambda: unlazy.wrap(lambda w, x: w * x[:, None, :, None] * jnp.ones((1, 2, 1, 1)), np.ones(()))(
            jnp.ones((2, 3))
        ),
        r"<lambda> gives outputs of shape .* where \(n,\) or \(n, k\) was expected",
    ),
    "two outputs": (
        lambda: unlazy.wrap(lambda w, x: (x @ w, x), np.ones(3))(jnp.ones((2, 3))),
        "returns tuple on a batch of shape .*, where one array was expected",
    ),
    "wrong inputs": (
        lambda: unlazy.wrap(foreign.equinox())(jnp.ones((2, 4))),
        r"MLP cannot be called on one sample of shape \(4,\) .*: give input_shape .* on a batch either",
    ),
    "unhashable": (
        lambda: unlazy.wrap(lambda w, x, sizes: x @ w, np.ones(3), call={"sizes": [1]}),
        "has a setting that cannot be hashed",
    ),
    "another model": (
        lambda: unlazy.wrap(*foreign.function()).with_model(foreign.weights()[:2]),
        "This is not the parameters that was wrapped|differ in",
    ),
    "another shape": (
        lambda: unlazy.wrap(lambda w, x: x @ w, np.ones(3)).with_model(np.ones(4)),
        r"has shape \(4,\), where \(3,\) was expected",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_explained_in_a_sentence(mistake):
    make, sentence = MISTAKES[mistake]
    with pytest.raises(UserError, match=sentence):
        make()


def test_targets_of_another_shape_are_named():
    data = foreign.samples()
    with pytest.raises(UserError, match=r"outputs of shape \(6, 2\), but the targets of 'data' have shape \(6,\)"):
        GradientFlow()(unlazy.wrap(foreign.function()), Dataset(data.x, data.y[:, 0]), [0, 1])


def test_flax_and_haiku_ask_for_their_parameters():
    module, variables = foreign.linen()
    with pytest.raises(UserError, match=r"give wrap\(module, variables\)"):
        unlazy.wrap(module)
    bound = unlazy.wrap(module.bind(variables))
    np.testing.assert_array_equal(bound(foreign.samples().x), unlazy.wrap(module, variables)(foreign.samples().x))
    with pytest.raises(UserError, match=r"give wrap\(transformed, params\)"):
        unlazy.wrap(foreign.haiku()[0])
    with pytest.raises(UserError, match=r"give wrap\(model\), here Mlp, alone"):
        unlazy.wrap(foreign.nnx(), {})


def test_wrapping_leaves_an_nnx_module_as_it_is():
    model = foreign.nnx()
    unlazy.wrap(model)
    assert model.dropout.deterministic is False


def test_a_function_of_haiku_without_a_key():
    hk = pytest.importorskip("haiku")
    transformed, params = foreign.haiku()
    x = foreign.samples().x
    network = unlazy.wrap(hk.without_apply_rng(transformed), params)
    np.testing.assert_array_equal(network(x), unlazy.wrap(transformed, params)(x))


def test_no_library_is_imported():
    code = (
        "import sys, jax.numpy as jnp, unlazy\n"
        "unlazy.wrap(lambda w, x: x @ w, jnp.ones(3))(jnp.ones((2, 3)))\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not {"flax", "haiku", "torch"} & set(done.stdout.split())


def test_as_network_takes_networks_and_models():
    own = TwoLayer(2, 2, key=0)
    assert as_network(own) is own
    assert isinstance(as_network(foreign.equinox()), Network)
