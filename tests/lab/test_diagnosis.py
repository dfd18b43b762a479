"""Diagnoses and coordinate checks of a multilayer perceptron, written as a user would."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import unlazy
from unlazy._errors import UserError
from unlazy.lab import Answer, coordinate_check, diagnose, rate_transfer
from unlazy.theory import abc

INPUTS, WIDTHS = 10, (64, 128, 256, 512)
DATA = unlazy.data.single_index(n=60, d=INPUTS, link="erf", key=0)


def mlp(parameterisation, scale=1.0):
    """Three hidden layers of tanh neurons, as a function of its parameters."""
    hidden = len(parameterisation.a) - 1

    def make(m, key):
        shapes = [(INPUTS, m), *[(m, m)] * (hidden - 1), (m, 1)]
        keys = jax.random.split(key, hidden + 1)
        w = [
            scale * m**-b * jax.random.normal(one, shape)
            for one, shape, b in zip(keys, shapes, parameterisation.b, strict=True)
        ]
        factors = [m**-a for a in parameterisation.a]
        factors[0] /= INPUTS**0.5

        def apply(w, x):
            for factor, weights in zip(factors[:-1], w[:-1], strict=True):
                x = jnp.tanh(factor * x @ weights)
            return factors[-1] * x @ w[-1]

        return unlazy.wrap(apply, w, rates=[float(m) ** -c for c in parameterisation.rates])

    return make


TRIVIAL = dataclasses.replace(abc.neural_tangent(3), c=1.0)


@pytest.mark.parametrize(
    ("parameterisation", "rate", "answer"),
    [
        (abc.neural_tangent(3), 0.5, Answer.LAZY),
        (abc.maximal_update(3), 0.1, Answer.FEATURE_LEARNING),
        (abc.chen(3), 0.1, Answer.FEATURE_LEARNING),
        (abc.standard(3), 0.1, Answer.UNSTABLE),
        (TRIVIAL, 0.5, Answer.TRIVIAL),
    ],
    ids=["ntk", "mup", "mean-field", "standard", "trivial"],
)
def test_the_answer_is_that_of_theory(parameterisation, rate, answer):
    found = diagnose(mlp(parameterisation), DATA, WIDTHS, flow=unlazy.Descent(rate=rate))
    assert found.answer is answer, found
    assert len(found.layers) == 3
    theory = parameterisation.regime.name
    assert theory == answer.name


def linear(width, key):
    return eqx.nn.Linear(INPUTS, 1, key=key)


def test_one_width_is_undecided():
    found = diagnose(linear, DATA, [4], until=1.0, seeds=2)
    assert found.answer is Answer.UNDECIDED
    assert "one width" in found.whole.reason
    assert diagnose(linear, (DATA.x, DATA.y), [4], until=1.0, seeds=2).layers == found.layers


def nan_model(width, key):
    return unlazy.wrap(lambda params, x: jnp.log(-jnp.abs(x @ params)), jnp.ones(INPUTS))


def tokens(width, key):
    return (lambda table, x: jnp.sum(table[x], axis=1)), jnp.ones(5)


def no_parameters(width, key):
    return eqx.nn.Lambda(jnp.sum)


def rank_three(width, key):
    return unlazy.wrap(lambda params, x: x[:, :, None] * params, jnp.ones((1, 1, 2)))


class Normed(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self, width, key):
        self.linear, self.norm = eqx.nn.Linear(INPUTS, width, key=key), eqx.nn.BatchNorm(width, "batch", mode="batch")

    def __call__(self, x, state):
        return self.norm(self.linear(x), state)


def batch_norm(width, key):
    return eqx.nn.make_with_state(Normed)(width, key)


class Noisy(eqx.Module):
    """Dropout that nobody switches off."""

    linear: eqx.nn.Linear

    def __call__(self, x, *, key):
        return self.linear(x) * jax.random.bernoulli(key, 0.5, (1,))


def noise(width, key):
    return Noisy(eqx.nn.Linear(INPUTS, 1, key=key))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (None, "not a function"),
        (lambda width, key: 1 / 0, r"make\(4, key\) failed \(ZeroDivisionError: division by zero\)"),
        (lambda width: None, r"<lambda>\(width\) cannot be called as make\(width, key\) \(too many positional"),
        (batch_norm, "training changes by other means than gradients: give state='freeze'"),
        (noise, "key=0"),
        (lambda width, key: None, "returned nothing"),
        (lambda width, key: 3, "cannot be diagnosed. wrap was given 3"),
        (nan_model, "NaN or infinite before training"),
        (tokens, "integer_inputs=True"),
        (no_parameters, "no floating-point parameters"),
        (rank_three, "flatten them"),
    ],
)
def test_a_model_that_cannot_be_diagnosed_gets_one_sentence(make, words):
    with pytest.raises(UserError, match=words):
        diagnose(make, DATA, [4, 8], until=1.0, seeds=2)


@pytest.mark.parametrize("widths", [[], [8, 4], [4, 4], [0, 4], 4, ["a"]])
def test_widths_must_increase(widths):
    with pytest.raises(UserError, match=r"increasing positive widths|widths = .* is not a list"):
        diagnose(linear, DATA, widths)


def test_data_with_nan():
    data = unlazy.Dataset(DATA.x.at[0, 0].set(jnp.nan), DATA.y)
    with pytest.raises(UserError, match="NaN"):
        diagnose(linear, data, [4, 8])


def interrupt(monkeypatch, at):
    """Let the ``at``-th training be interrupted, and return a list that grows by one with each training."""
    from unlazy.lab import diagnosis

    usual, calls = diagnosis.train, []

    def counted(*given):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return usual(*given)

    monkeypatch.setattr(diagnosis, "train", counted)
    return calls


def test_ctrl_c_keeps_the_widths_that_are_done(monkeypatch):
    interrupt(monkeypatch, 3)
    found = diagnose(linear, DATA, [4, 8], until=1.0, seeds=2)
    assert found.settings["widths"] == [4]
    assert found.settings["interrupted"] == "Interrupted at width 8."


def test_the_same_call_continues_after_ctrl_c(monkeypatch, tmp_path):
    calls, saved = interrupt(monkeypatch, 3), tmp_path / "linear.part"
    options = {"until": 1.0, "seeds": 2}
    partial = diagnose(linear, DATA, [4, 8], saved=saved, **options)
    assert "measurements at 4 are saved" in partial.settings["interrupted"]
    found = diagnose(linear, DATA, [4, 8], saved=saved, **options)
    assert len(calls) == 5  # the model and its linearisation, at width 8 alone
    assert not saved.exists()
    assert found.to_dict() == diagnose(linear, DATA, [4, 8], **options).to_dict()


@pytest.mark.parametrize("changed", ["until", "rate", "data", "damaged"])
def test_what_was_measured_in_another_way_is_not_used(monkeypatch, tmp_path, changed):
    calls, saved = interrupt(monkeypatch, 3), tmp_path / "linear.part"
    diagnose(linear, DATA, [4, 8], until=1.0, seeds=2, saved=saved)
    if changed == "damaged":
        saved.write_text(saved.read_text().replace("0.", "1.", 1))
    data = unlazy.Dataset(DATA.x, 2 * DATA.y) if changed == "data" else DATA
    flow = unlazy.Descent(rate=0.05) if changed == "rate" else None
    diagnose(linear, data, [4, 8], until=2.0 if changed == "until" else 1.0, flow=flow, seeds=2, saved=saved)
    assert len(calls) == 7


def changed(what, layer, by):
    """Return μP with one exponent changed."""
    usual = abc.maximal_update(3)
    values = list(usual.rates if what == "c" else getattr(usual, what))
    values[layer] += by
    return dataclasses.replace(usual, **{what: tuple(values)})


FAULTS = {"a": "forward multiplier", "b": "initialisation", "c": "learning rate"}


@pytest.mark.parametrize("layer", range(4))
@pytest.mark.parametrize("what", FAULTS)
def test_a_wrong_multiplier_is_found(what, layer):
    found = coordinate_check(mlp(changed(what, layer, 0.5)), DATA, (32, 128), flow=unlazy.Descent(rate=0.02), steps=1)
    assert found.faults == {f"{layer}": FAULTS[what]}, found
    assert found.reason == f"Not as predicted: the {FAULTS[what]} of {layer}."


def test_mup_passes_the_coordinate_check():
    found = coordinate_check(mlp(abc.maximal_update(3)), DATA, (32, 128), flow=unlazy.Descent(rate=0.1))
    assert found.verdict == "RIGHT", found


WORDS, PLACES = 5, 4
TOKENS = unlazy.Dataset(
    jax.random.randint(jax.random.key(1), (12, PLACES), 0, WORDS).astype(float),
    jax.nn.one_hot(jnp.arange(12) % WORDS, WORDS),
)


def transformer(off="", place=""):
    """One layer of attention, whose table of words is used again for the outputs, in μP; ``off`` by m^(1/2)."""

    def make(m, key):
        large = {name: m**0.5 * (place == name) + (place != name) for name in ("table", "where", "q", "k", "v")}
        scales = {"table": 1.0, "where": 1.0, "q": m**-0.5, "k": m**-0.5, "v": m**-0.5}
        sizes = {"table": WORDS, "where": PLACES}
        keys = dict(zip(scales, jax.random.split(key, len(scales)), strict=True))
        params = {
            name: scale * (large[name] if off == "std" else 1) * jax.random.normal(keys[name], (sizes.get(name, m), m))
            for name, scale in scales.items()
        }
        factor = large if off == "factor" else dict.fromkeys(scales, 1.0)

        def apply(p, tokens):
            x = p["table"][tokens] + p["where"][None]
            q, k, v = (factor[name] * x @ p[name] for name in "qkv")
            x = x + jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2) / m) @ v
            return jnp.mean(x, axis=1) @ p["table"].T / m

        rates = {"table": m, "where": m} | {name: large[name] if off == "rate" else 1.0 for name in "qkv"}
        return unlazy.wrap(apply, params, rates=lambda name: rates[name], integer_inputs=True)

    return make


@pytest.mark.parametrize(
    ("off", "place", "faults"),
    [
        ("", "", {}),
        ("std", "q", {"q": "initialisation"}),
        ("rate", "k", {"k": "learning rate"}),
        ("factor", "v", {"v": "forward multiplier"}),
        ("std", "where", {"q": "forward multiplier"}),
    ],
)
def test_layers_need_not_be_a_chain(off, place, faults):
    """Queries, keys and values have the same inputs, so that none inherits the fault of another."""
    flow = unlazy.Descent(rate=0.01)
    found = coordinate_check(transformer(off, place), TOKENS, (16, 64), flow=flow, steps=1, seeds=2)
    assert found.faults == faults, found
    assert found.verdict == ("WRONG" if faults else "RIGHT"), found
    assert set(found.layers) == {"q", "k", "v", "table"}


def test_weights_whose_multipliers_are_unknown_are_named():
    def make(m, key):
        w, a = jax.random.normal(key, (INPUTS, m)), jnp.zeros(m)

        def apply(p, x):
            unit = p["w"] / jnp.linalg.norm(p["w"], axis=0, keepdims=True)
            return jnp.tanh(x @ unit) @ p["a"] / m

        return unlazy.wrap(apply, {"w": w, "a": a}, rates={"w": m, "a": m})

    found = coordinate_check(make, DATA, (8, 32), steps=1, seeds=2)
    assert found.verdict == "RIGHT"  # a read-out that starts at 0 is right at any width
    assert found.settings["not checked"] == ["w"]
    assert "unknown: w." in found.reason


def test_a_parameterisation_must_say_what_holds_for_each_weight():
    mixed = abc.Parameterisation((0, 0.5, 0, 1), (0, 0, 0.5, 0), -1)
    with pytest.raises(UserError, match=r"table \(output\), and the parameterisation has exponents of 4"):
        coordinate_check(transformer(), TOKENS, (8, 16), steps=1, seeds=1, parameterisation=mixed)
    with pytest.raises(UserError, match="let make use its width"):
        coordinate_check(linear, DATA, (4, 8), steps=1, seeds=1)


@pytest.mark.parametrize(
    ("parameterisation", "rates", "verdict"),
    [
        (abc.chen(1), [2.0 ** (k / 2) for k in range(10)], "TRANSFERS"),
        (abc.standard(1), [2.0**k for k in range(-8, 2)], "DOES NOT TRANSFER"),
    ],
    ids=["mean-field", "standard"],
)
def test_whether_the_best_rate_transfers(parameterisation, rates, verdict):
    found = rate_transfer(mlp(parameterisation), DATA, [16, 64, 256], rates, steps=20, seeds=5)
    assert found.verdict == verdict, found
    assert "*" in repr(found)


def test_small_initial_weights_condense():
    flow = unlazy.Descent(rate=2.0)
    found = diagnose(mlp(abc.maximal_update(3), scale=0.02), DATA, (32, 64), flow=flow, until=50_000.0, seeds=2)
    assert found.answer is Answer.CONDENSED, found


def test_weight_decay_that_does_not_grow_with_the_width_is_found():
    """AdamW in μP: hidden layers learn at the rate 1/m, so that a constant decay shrinks them less and less."""
    usual = abc.maximal_update(2, "adam")
    decayed = unlazy.flows.Transform(optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(0.1)))
    found = coordinate_check(
        mlp(usual), DATA, (32, 128), flow=unlazy.Descent(rate=0.01, optimiser=decayed), steps=1, parameterisation=usual
    )
    assert found.faults == {"1": "weight decay", "2": "weight decay"}, found


def test_weight_decay_is_not_taken_for_a_learning_rate():
    """Of SGD in μP gradients fall with the width, so that decay makes up more and more of the change."""
    decayed = unlazy.flows.Transform(optax.add_decayed_weights(1.0))
    flow = unlazy.Descent(rate=0.01, optimiser=decayed)
    found = coordinate_check(mlp(abc.maximal_update(1)), DATA, (32, 128), flow=flow, steps=1, seeds=2)
    assert found.verdict == "RIGHT", found


def test_two_checkpoints():
    before = unlazy.wrap(eqx.nn.MLP(INPUTS, 1, 16, 1, activation=jnp.tanh, key=jax.random.key(0)))
    after = unlazy.Descent(rate=0.1)(before, DATA, [0, 20]).final
    found = diagnose(before, after, DATA)
    assert 0 < found.whole.measured["output change"].last < 2
    assert list(found.layers) == ["layers.0.weight"]
    assert diagnose(before, before, DATA).answer is Answer.TRIVIAL
    assert diagnose(before.model, after.model, DATA).to_dict() == found.to_dict()  # they are wrapped
    arrays = diagnose(before, after, (DATA.x, DATA.y))
    assert arrays.whole.measured["kernel drift"].last == found.whole.measured["kernel drift"].last


def test_checkpoints_that_cannot_be_compared():
    one = (lambda params, x: x @ params, jnp.ones(INPUTS))
    with pytest.raises(UserError, match="before and after are the same object: if training changes it in place"):
        diagnose(one, one, DATA)
    with pytest.raises(UserError, match=r"after cannot be diagnosed. wrap was given 3"):
        diagnose(one, 3, DATA)


def test_the_readout_is_not_a_layer_whatever_its_name():
    def apply(params, x):
        return jnp.tanh(x @ params["w"]) @ params["a"]

    params = {"w": jnp.ones((INPUTS, 4)), "a": jnp.ones(4)}
    assert list(unlazy.networks.layers_on(unlazy.wrap(apply, params), DATA.x)) == ["w"]
