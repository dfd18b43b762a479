"""Recipes: what they can say, what names their result, and one clear sentence for every way to get them wrong."""

import inspect
import json
import re
import tomllib
from pathlib import Path

import equinox as eqx
import jax
import msgspec
import numpy as np
import pytest

from unlazy import activations, flows
from unlazy._errors import UserError
from unlazy._registry import members
from unlazy.data import Dataset
from unlazy.flows import Adam, Cosine, Descent, GradientFlow, Linearised, Momentum, StepDecay
from unlazy.lab import Phase, Recipe, Sweep, Times, build, instantiate, parse, read
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import Infinite, Network, Quadratic, RandomLayers, TangentModel, Zipf, asymmetrical, ntk
from unlazy.probes import ActiveShare, Kernel, TrainLoss

TEXT = """
name = "tiny"
seeds = 2
probes = ["train-loss", { kind = "kernel", samples = 3, as = "small" }]

[data]
kind = "random-labels"
n = 6
d = 3

[network]
kind = "two-layer"
width = 8
activation = "tanh"

[flow]
kind = "descent"
rate = 0.25

[times]
end = 2.0
count = 5
"""


def network(section, **table):
    """The first network that a recipe with this network section makes."""
    table = {"data": {"kind": "random-labels", "n": 6, "d": 3}, "times": [1.0]} | table
    return instantiate(parse(table | {"network": section})).networks[0]


def complaint(table):
    """What the user is told about a wrong recipe: always one sentence or two on one line, never a traceback."""
    with pytest.raises(UserError) as caught:
        instantiate(parse(table))
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 500
    return text


# ---------------------------------------------------------------- what a recipe says


def test_a_file_becomes_an_experiment(tmp_path):
    (tmp_path / "tiny.toml").write_text(TEXT)
    recipe = read(tmp_path / "tiny.toml")
    assert recipe == parse(tomllib.loads(TEXT))
    made = instantiate(recipe)
    assert [len(part) for part in (made.networks, made.data, made.keys)] == [2, 2, 2]
    assert made.probes == {"train-loss": TrainLoss(), "small": Kernel(samples=3)}
    assert isinstance(made.flow, Descent)
    assert float(made.flow.rate) == 0.25
    assert made.data[0].x.shape == (6, 3)
    assert made.networks[0].w.shape == (8, 3)
    np.testing.assert_array_equal(made.times, [0.0, 0.5, 1.0, 1.5, 2.0])


def test_what_is_left_out_has_a_default(table):
    plain = parse({key: table[key] for key in ("data", "network", "times")})
    assert (plain.name, plain.seed, plain.seeds, plain.dtype, plain.same_data) == ("run", 0, 1, "float64", False)
    made = instantiate(plain)
    assert isinstance(made.flow, GradientFlow)
    assert made.probes == {}


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "tiny.toml").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert read(tmp_path / "tiny.toml").name == "tiny"


def test_times_are_a_list_or_a_rule():
    np.testing.assert_array_equal(Times(end=4.0, count=3).grid(), [0.0, 2.0, 4.0])
    np.testing.assert_allclose(Times(end=100.0, count=4, spacing="log", first=1.0).grid(), [0.0, 1.0, 10.0, 100.0])
    np.testing.assert_allclose(Times(end=1000.0, count=5, spacing="log").grid(), [0.0, 1.0, 10.0, 100.0, 1000.0])
    assert Times(end=0.3, count=7, spacing="log").grid()[-1] == 0.3
    np.testing.assert_array_equal(Times(end=3.0, count=2, spacing="log").grid(), [0.0, 3.0])


def test_numbers_of_numpy_are_numbers(table):
    one, other = parse(table), Recipe(**table | {"times": list(np.asarray(table["times"]))})
    assert one.digest == other.digest
    assert one.digest == Recipe(**table | {"times": np.asarray(table["times"])}).digest


GENERATORS = {name: make for name, make in members("data").items() if not hasattr(make, "files_read")}


@pytest.mark.parametrize("kind", GENERATORS)
def test_every_generator_can_be_named(kind):
    if kind == "digits":
        pytest.importorskip("sklearn")
    known = inspect.signature(GENERATORS[kind]).parameters
    options = {name: value for name, value in {"n": 6, "d": 4, "n_test": 5, "order": 2}.items() if name in known}
    data = build({"kind": kind, **options}, Dataset, "data", key=jax.random.key(0))
    assert isinstance(data, Dataset)
    data.check()
    if "n" in known:
        assert data.n == 6


def test_nested_kinds_are_built(table):
    zipf = network(
        {
            "kind": "two-layer",
            "width": 8,
            "scaling": {"kind": "asymmetrical", "gamma": 0.5, "weights": {"kind": "zipf", "alpha": 0.7}},
        }
    )
    assert zipf.scaling == asymmetrical(0.5, Zipf(0.7))
    np.testing.assert_allclose(zipf.s, asymmetrical(0.5, Zipf(0.7)).nodes(8))
    assert network({"kind": "two-layer", "width": 8, "scaling": "ntk"}).scaling == ntk
    given = {"kind": "given-nodes", "weights": [0.5, 0.5]}
    uneven = network(
        {"kind": "two-layer", "width": 8, "scaling": {"kind": "asymmetrical", "gamma": 0, "weights": given}}
    )
    np.testing.assert_allclose(uneven.s**2, [0.5, 0.5, 0, 0, 0, 0, 0, 0])


def test_embeddings_and_activations_take_options(table):
    leaky = {"kind": "leaky-relu", "slope": 0.2}
    layers = {"kind": "random-layers", "widths": [5, 4], "activation": leaky}
    made = network({"kind": "two-layer", "width": 8, "activation": "erf", "embedding": layers})
    assert isinstance(made.embedding, RandomLayers)
    assert made.embedding.widths == (5, 4)
    assert made.embedding.activation == activations.LeakyRelu(0.2)
    assert made.activation == activations.Erf()
    infinite = network({"kind": "two-layer", "width": 8, "embedding": {"kind": "infinite", "depth": 2}})
    assert isinstance(infinite.embedding, Infinite)
    assert infinite.embedding.depth == 2
    assert isinstance(network({"kind": "two-layer", "width": 8, "embedding": "quadratic"}).embedding, Quadratic)


def test_networks_nest():
    made = network({"kind": "tangent-model", "centre": {"kind": "two-layer", "width": 8}})
    assert isinstance(made, TangentModel)
    assert made.centre.w.shape == (8, 3)


def test_flows_take_losses_optimisers_and_schedules():
    section = {
        "kind": "descent",
        "rate": 0.1,
        "batch": 2,
        "loss": {"kind": "squared", "reduction": "sum", "half": False},
        "optimiser": {"kind": "momentum", "decay": 0.5, "nesterov": True},
        "schedule": {"kind": "step-decay", "factor": 0.9, "every": 10},
    }
    flow = build(section, flows.Flow, "flow")
    assert flow.loss == Squared("sum", half=False)
    assert flow.optimiser == Momentum(0.5, nesterov=True)
    assert flow.schedule == StepDecay(0.9, 10)
    assert flow.batch == 2
    assert build({**section, "optimiser": "adam"}, flows.Flow, "flow").optimiser == Adam()
    assert build({**section, "schedule": {"kind": "cosine", "steps": 5}}, flows.Flow, "flow").schedule == Cosine(5)
    assert build({"kind": "gradient-flow", "loss": "cross-entropy"}, flows.Flow, "flow").loss == CrossEntropy()
    assert isinstance(build("linearised", flows.Flow, "flow"), Linearised)


@pytest.mark.parametrize("kind", ["activation", "loss", "flow", "optimiser", "schedule", "probe"])
def test_every_member_without_needs_can_be_named_in_any_spelling(kind):
    for name, member in members(kind).items():
        if all(p.default is not p.empty for p in inspect.signature(member).parameters.values()):
            assert build(name, kind, "x") == build(member.__name__, kind, "x") == member()


def test_options_may_be_written_with_hyphens():
    assert build({"kind": "gradient-flow", "max-steps": 7}, flows.Flow, "flow").max_steps == 7


def test_the_network_learns_its_shape_from_the_data():
    pytest.importorskip("sklearn")
    digits = {"kind": "digits", "n": 12, "n_test": 5, "classes": [0, 1, 7]}
    made = network({"kind": "two-layer", "width": 8}, data=digits)
    assert made.w.shape == (8, 64)
    assert made.a.shape == (8, 3)


def test_infinite_options_are_kept():
    probe = {"kind": "active-share", "left": float("-inf"), "right": 0.0}
    table = {"data": "two-sided-step", "network": {"kind": "two-layer", "width": 8}, "times": [1.0], "probes": [probe]}
    recipe = parse(table)
    other = parse(table | {"probes": [probe | {"left": float("inf")}]})
    third = parse(table | {"probes": [probe | {"left": float("nan")}]})
    assert len({recipe.digest, other.digest, third.digest}) == 3
    again = parse(json.loads(recipe.json(), parse_constant=pytest.fail))  # strict JSON
    assert instantiate(again).probes["active-share"] == ActiveShare(float("-inf"), 0.0)


# ---------------------------------------------------------------- seeds and precision


def test_seeds_draw_their_own_data_and_networks(table):
    made = instantiate(parse(table))
    assert not np.array_equal(made.data[0].x, made.data[1].x)
    assert not np.array_equal(made.networks[0].w, made.networks[1].w)
    alone = instantiate(parse(table | {"seed": 1, "seeds": 1}))
    assert np.array_equal(alone.data[0].x, made.data[1].x)
    assert np.array_equal(alone.networks[0].w, made.networks[1].w)


def test_seeds_may_share_the_data_of_the_first(table):
    made = instantiate(parse(table | {"same_data": True}))
    assert made.data[0] is made.data[1]
    assert not np.array_equal(made.networks[0].w, made.networks[1].w)
    assert np.array_equal(made.data[0].x, instantiate(parse(table)).data[0].x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision_reaches_everything(table, dtype):
    table["network"]["embedding"] = {"kind": "random-layers", "widths": [5]}
    made = instantiate(parse(table | {"dtype": dtype}))
    leaves = [leaf for leaf in jax.tree.leaves((made.networks, made.data)) if eqx.is_inexact_array(leaf)]
    assert {str(leaf.dtype) for leaf in leaves} == {dtype}


def test_float64_needs_64_bits(table):
    with jax.enable_x64(False), pytest.raises(UserError, match="asks for float64, but JAX is set to 32 bits"):
        instantiate(parse(table))


def test_draws_are_the_same_however_jax_is_set(table):
    recipe = parse(table | {"dtype": "float32"})
    with jax.enable_x64(False):
        narrow = jax.tree.map(np.asarray, (instantiate(recipe).networks, instantiate(recipe).data))
    wide = jax.tree.map(np.asarray, (instantiate(recipe).networks, instantiate(recipe).data))
    assert all(map(np.array_equal, jax.tree.leaves(narrow), jax.tree.leaves(wide)))


# ---------------------------------------------------------------- the digest


def test_the_digest_does_not_depend_on_order(table):
    def turned(value):
        return {key: turned(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    assert parse(turned(table)).digest == parse(table).digest
    assert re.fullmatch(r"[0-9a-f]{12}", parse(table).digest)


CHANGES = {
    "name": "other",
    "data": {"kind": "random-labels", "n": 7, "d": 3},
    "network": {"kind": "two-layer", "width": 9},
    "flow": {"kind": "descent", "rate": 0.26},
    "times": [0.0, 0.5, 1.0, 2.5],
    "probes": ["weight-movement", "train-loss"],
    "seed": 1,
    "seeds": 3,
    "same_data": True,
    "dtype": "float32",
}


def test_the_digest_depends_on_every_field(table):
    assert set(CHANGES) == set(Recipe.__struct_fields__)
    digests = {parse(table | {field: value}).digest for field, value in CHANGES.items()} | {parse(table).digest}
    assert len(digests) == len(CHANGES) + 1


@pytest.mark.parametrize("change", [{"end": 3.0}, {"count": 6}, {"spacing": "log"}, {"first": 0.5}])
def test_the_digest_depends_on_every_time(table, change):
    times = {"end": 2.0, "count": 5, "spacing": "linear", "first": 0.1}
    assert parse(table | {"times": times}).digest != parse(table | {"times": times | change}).digest


def test_the_digest_is_the_same_tomorrow(table):
    """Stored results are found by it: a change here orphans every result that anyone has."""
    assert parse(table).digest == "82546a0c04cc"


def test_json_reads_back_as_the_same_recipe(table):
    for times in (table["times"], {"end": 2.0, "spacing": "log"}):
        recipe = parse(table | {"times": times})
        assert parse(json.loads(recipe.json())) == recipe
        assert parse(json.loads(recipe.json())).digest == recipe.digest


# ---------------------------------------------------------------- wrong recipes

nan, inf = float("nan"), float("inf")
LAYER = {"kind": "two-layer", "width": 8}
WRONG = {
    "an unknown field": ({"nmae": "x"}, "there is no field 'nmae'. Did you mean 'name'?"),
    "a hopeless field": ({"xyzzy": 1}, "there is no field 'xyzzy'. Known: data, dtype"),
    "no data": ({"data": None}, "the field 'data' is missing."),
    "no times": ({"times": None}, "the field 'times' is missing."),
    "a number for a section": ({"data": 3}, "data: Expected 'str | table', got 'int'."),
    "a list for a section": ({"flow": ["descent"]}, "flow: Expected 'str | table', got 'array'."),
    "a section without kind": ({"network": {"width": 8}}, "network: say which network with kind = "),
    "a kind that is no word": ({"flow": {"kind": 3}}, "flow: say which flow with kind = "),
    "an empty kind": ({"flow": ""}, "flow: There is no flow called ''. Known: descent"),
    "a typo in a kind": ({"data": "random-label"}, "data: There is no data set called 'random-label'. Did you mean"),
    "a private kind": ({"data": "dataset"}, "data: There is no data set called 'dataset'."),
    "a kind of another room": ({"data": "two-layer"}, "data: There is no data set called 'two-layer'."),
    "a typo in an option": ({"network": {**LAYER, "redout": 2}}, "network: there is no option 'redout'. Did you mean"),
    "a typo in a nested kind": (
        {"network": {**LAYER, "activation": "tnah"}},
        "network.activation: There is no activation called 'tnah'. Did you mean 'tanh'?",
    ),
    "a typo in a nested option": (
        {"network": {**LAYER, "activation": {"kind": "leaky-relu", "slpoe": 0.1}}},
        "network.activation: there is no option 'slpoe'. Did you mean 'slope'?",
    ),
    "a typo three levels down": (
        {"network": {**LAYER, "scaling": {"kind": "asymmetrical", "gamma": 1, "weights": {"kind": "zipff"}}}},
        "network.scaling.weights: There is no node weights called 'zipff'. Did you mean 'zipf'?",
    ),
    "a typo in an option three levels down": (
        {
            "network": {
                **LAYER,
                "scaling": {"kind": "asymmetrical", "gamma": 1, "weights": {"kind": "zipf", "alhpa": 1}},
            }
        },
        "network.scaling.weights: there is no option 'alhpa'. Did you mean 'alpha'?",
    ),
    "a missing option": ({"network": "two-layer"}, "network: the option 'width' is missing."),
    "a missing nested option": (
        {"network": {**LAYER, "scaling": {"kind": "asymmetrical", "gamma": 0.5}}},
        "network.scaling: the option 'weights' is missing.",
    ),
    "a nested section without kind": (
        {"flow": {"kind": "descent", "optimiser": {"decay": 0.5}}},
        "flow.optimiser: say which optimiser with kind = ",
    ),
    "options for what takes none": (
        {"network": {**LAYER, "scaling": {"kind": "mean-field", "gamma": 0.5}}},
        "network.scaling: this scaling takes no options, but 'gamma' was given.",
    ),
    "a word for a number": (
        {"network": {"kind": "two-layer", "width": "8"}},
        "network.width: Expected 'int', got 'str'",
    ),
    "a fraction for a count": ({"network": {"kind": "two-layer", "width": 8.5}}, "network.width: Expected 'int', got"),
    "a truth for a count": (
        {"network": {"kind": "two-layer", "width": True}},
        "network.width: Expected 'int', got 'bool'",
    ),
    "a number for a member": (
        {"network": {**LAYER, "activation": 3}},
        "network.activation: 3 is not an activation: give its",
    ),
    "a list for a member": (
        {"flow": {"kind": "descent", "loss": ["squared"]}},
        "flow.loss: ['squared'] is not a loss: give",
    ),
    "a word for a list": (
        {"network": {**LAYER, "embedding": {"kind": "random-layers", "widths": "abc"}}},
        "network.embedding.widths: Expected 'array', got 'str'.",
    ),
    "a word in a list of counts": (
        {"network": {**LAYER, "embedding": {"kind": "random-layers", "widths": [4, "a"]}}},
        "network.embedding.widths[1]: Expected 'int', got 'str'.",
    ),
    "a typo in a choice": (
        {"flow": {"kind": "descent", "loss": {"kind": "squared", "reduction": "sm"}}},
        "flow.loss.reduction: 'sm' is not one of the choices. Did you mean 'sum'?",
    ),
    "what only Python can say": (
        {"network": {**LAYER, "embedding": {"kind": "random-patches", "weights": 3.0}}},
        "network.embedding.weights: this cannot be written in a recipe, only in Python: leave it out.",
    ),
    "a member of another library without its module": (
        {"flow": {"kind": "runge-kutta", "solver": "tsit5"}},
        "flow.solver: There is no abstract solver called 'tsit5'. Known: half-solver. Others are written as 'package.",
    ),
    "weights, which are drawn": (
        {"network": {**LAYER, "embedding": {"kind": "random-layers", "widths": [4], "weights": [1.0]}}},
        "network.embedding.weights[0]: this cannot be written in a recipe",
    ),
    "a key, which the seed makes": (
        {"data": {"kind": "random-labels", "n": 6, "key": 3}},
        "data: 'key' is filled in from the data and the seed",
    ),
    "inputs, which the data give": (
        {"network": {**LAYER, "inputs": 3}},
        "network: 'inputs' is filled in from the data and the seed",
    ),
    "a number that its array cannot hold": (
        {"flow": {"kind": "gradient-flow", "max_steps": 10**12}},
        "flow.max_steps: Expected 'int' <= 2147483647, got 1000000000000.",
    ),
    "too many seeds": ({"seeds": 10**7}, "seeds"),
    "a value out of range": ({"data": {"kind": "random-labels", "n": -3}}, "data.n: Expected 'int' >= 1, got -3."),
    "a value that a member refuses": (
        {"data": {"kind": "orthogonal-clusters", "d": 1}},
        "data: d = 1 is too small: give a whole number of at least 2",
    ),
    "a value that a nested member refuses": (
        {"network": {**LAYER, "activation": {"kind": "leaky-relu", "slope": 3}}},
        "network.activation: The slope of a leaky ReLU is 3.0",
    ),
    "zero seeds": ({"seeds": 0}, "seeds: Expected 'int' >= 1."),
    "half a seed": ({"seeds": 1.5}, "seeds: Expected 'int', got 'float'."),
    "a negative seed": ({"seed": -1}, "seed: Expected 'int' >= 0."),
    "a seed beyond 32 bits": ({"seed": 2**32}, "seed: Expected 'int' <= 4294967295."),
    "an enormous seed": ({"seed": 2**70}, "seed: Expected 'int' <= 4294967295."),
    "a typo in the precision": (
        {"dtype": "flaot32"},
        "dtype: 'flaot32' is not one of the choices. Did you mean 'float32'?",
    ),
    "a word for a truth": ({"same_data": "yes"}, "same_data: Expected 'bool', got 'str'."),
    "a number for a name": ({"name": 3}, "name: Expected 'str', got 'int'."),
    "no time": ({"times": []}, "times must be finite, increasing and not negative, not []."),
    "a time that is NaN": ({"times": [0.0, nan]}, "times must be finite, increasing and not negative, not [0.0, nan]."),
    "an infinite time": ({"times": [0.0, inf]}, "times must be finite"),
    "a negative time": ({"times": [-1.0, 1.0]}, "times must be finite, increasing and not negative, not [-1.0, 1.0]."),
    "times that fall": ({"times": [1.0, 0.5]}, "times must be finite, increasing"),
    "a thousand bad times": (
        {"times": [1.0] * 1000},
        "times must be finite, increasing and not negative, not [1.0, 1.0,",
    ),
    "a word among times": ({"times": [0.0, "later"]}, "times[1]: Expected 'float', got 'str'."),
    "a word for times": ({"times": "soon"}, "times: Expected 'table | array', got 'str'."),
    "an end that is NaN": ({"times": {"end": nan}}, "times: 0 < first < end must hold, all finite, not end = nan."),
    "a negative end": ({"times": {"end": -1}}, "times: 0 < first < end must hold, all finite, not end = -1."),
    "an infinite end": ({"times": {"end": inf}}, "times: 0 < first < end must hold, all finite, not end = inf."),
    "a first time after the end": (
        {"times": {"end": 1, "first": 2}},
        "times: 0 < first < end must hold, all finite, not end = 1 and first = 2.",
    ),
    "one look only": ({"times": {"end": 1, "count": 1}}, "times.count: Expected 'int' >= 2."),
    "no end": ({"times": {"count": 5}}, "times: the field 'end' is missing."),
    "an unknown field of times": (
        {"times": {"end": 1, "frist": 0.1}},
        "times: there is no field 'frist'. Did you mean",
    ),
    "a typo in the spacing": (
        {"times": {"end": 1, "spacing": "lgo"}},
        "times.spacing: 'lgo' is not one of the choices. Did you",
    ),
    "a word for probes": ({"probes": "train-loss"}, "probes: Expected 'array', got 'str'."),
    "a number among probes": ({"probes": ["train-loss", 3]}, "probes[1]: Expected 'str | table', got 'int'."),
    "a typo in a probe": ({"probes": ["train-los"]}, "probes[0]: There is no probe called 'train-los'. Did you mean"),
    "a probe without kind": ({"probes": [{}]}, "probes[0]: say which probe with kind = "),
    "a probe whose kind is a list": ({"probes": [{"kind": ["a"]}]}, "probes[0]: say which probe with kind = "),
    "a typo in a probe's option": (
        {"probes": ["train-loss", {"kind": "kernel", "smaples": 3}]},
        "probes[1]: there is no option 'smaples'. Did you mean 'samples'?",
    ),
    "a probe twice": (
        {"probes": ["kernel", "kernel"]},
        "probes[1]: two probes are called 'kernel': give one of them a",
    ),
    "a name twice": (
        {"probes": ["kernel", {"kind": "train-loss", "as": "kernel"}]},
        "probes[1]: two probes are called 'kernel'",
    ),
    "a name that is a list": ({"probes": [{"kind": "kernel", "as": ["x"]}]}, "probes[0].as: ['x'] cannot name a probe"),
    "a name that is an axis": (
        {"probes": [{"kind": "kernel", "as": "time"}]},
        "probes[0].as: 'time' cannot name a probe",
    ),
    "a name that is a path": ({"probes": [{"kind": "kernel", "as": "a/b"}]}, "probes[0].as: 'a/b' cannot name a probe"),
    "an empty name": ({"probes": [{"kind": "kernel", "as": ""}]}, "probes[0].as: '' cannot name a probe"),
}


@pytest.mark.parametrize(("change", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_recipe_gets_one_sentence_that_names_the_field(table, change, sentence):
    changed = {key: value for key, value in (table | change).items() if value is not None}
    assert sentence in complaint(changed)


def test_a_wrong_recipe_in_python_is_a_user_error_too(table):
    with pytest.raises(UserError, match="0 < first < end must hold"):
        Times(end=-1.0)
    with pytest.raises(UserError, match="times must be finite"):
        Recipe(data="two-sided-step", network="two-layer", times=[2.0, 1.0])


FILES = {
    "not TOML": (b"name = [1,, 2]\n", r"bad.toml is not valid TOML: .*line 1"),
    "a table twice": (b"[data]\n[data]\n", r"bad.toml is not valid TOML"),
    "empty": (b"", r"bad.toml: the field 'data' is missing"),
    "binary": (bytes(range(256)), r"The recipe '.*bad.toml' cannot be read .*: give the path of a TOML file"),
    "with a typo": (
        TEXT.replace("seeds", "sedes").encode(),
        r"bad.toml: there is no field 'sedes'. Did you mean 'seed",
    ),
    "with a wrong type": (TEXT.replace("count = 5", "count = '5'").encode(), r"bad.toml: times.count: Expected 'int'"),
}


@pytest.mark.parametrize(("content", "sentence"), FILES.values(), ids=FILES.keys())
def test_a_file_that_is_no_recipe_is_named(tmp_path, content, sentence):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read(tmp_path / "bad.toml")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(UserError, match=r"There is no recipe at '.*nowhere.toml': give the path of a TOML file"):
        read(tmp_path / "nowhere.toml")
    with pytest.raises(UserError, match=r"cannot be read .*[Dd]irectory"):
        read(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be read .*[Dd]irectory"):
        read(tmp_path / "file" / "recipe.toml")


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_good_recipes(path):
    several = {"sweep": Sweep.read, "phase": lambda path: Phase.read(path).sweep}.get(path.name.partition("_")[0])
    recipe = several(path).points()[0].recipe if several else read(path)
    smaller = {**recipe.data, "n": 4} if "n" in recipe.data else recipe.data
    made = instantiate(msgspec.structs.replace(recipe, data=smaller, seeds=1))
    assert isinstance(made.networks[0], Network)
    assert made.probes
