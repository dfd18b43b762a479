"""Recorder: what probes see in a loop of the user's own is what they see in a flow."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foreign_models as foreign
import unlazy
from unlazy import Descent, GradientFlow, Recorder, Status, TwoLayer
from unlazy._errors import UserError
from unlazy._registry import choose, members
from unlazy.flows import OnlyAtEnd
from unlazy.lab import Lab, read_run
from unlazy.losses import Squared
from unlazy.networks import split_trained
from unlazy.probes import Kernel, TestLoss, TrainLoss
from unlazy.theory import Verdict

PROBES = {"train-loss": TrainLoss(), "kernel": Kernel(), "mine": lambda obs: obs.network(obs.x[-2:])}


def descended(model, data, steps, rate):
    """Yield an Equinox module before each step of gradient descent by Optax, in a loop as users write it."""
    optimiser = optax.sgd(rate)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state):
        def loss(model):
            return 0.5 * jnp.mean(jnp.sum((jax.vmap(model)(data.x) - data.y) ** 2, axis=1))

        updates, state = optimiser.update(eqx.filter_grad(loss)(model), state)
        return eqx.apply_updates(model, updates), state

    for _ in range(steps):
        yield model
        model, state = step(model, state)
    yield model


def test_a_loop_of_ones_own_is_seen_as_our_descent_is():
    data, model = foreign.samples(), foreign.equinox()
    recorder = Recorder(model, data, PROBES)
    for step, now in enumerate(descended(model, data, 4, 0.1)):
        if step % 2 == 0:
            recorder.see(step, now)
    run = recorder.trajectory()
    ours = Descent(rate=0.1)(unlazy.wrap(model), data, [0.0, 0.2, 0.4], PROBES)
    np.testing.assert_array_equal(run.times, [0, 2, 4])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), run.observed, ours.observed)
    np.testing.assert_allclose(run.final(data.x), ours.final(data.x), rtol=1e-10)
    np.testing.assert_array_equal(run.start(data.x), unlazy.wrap(model)(data.x))
    assert run.status is Status.finished
    assert run.stats["steps"] == 4


def test_networks_of_our_own_are_recorded_as_in_their_flow(key):
    data = foreign.samples()
    data = unlazy.Dataset(data.x, data.y[:, 0], data.x_test, data.y_test[:, 0])
    network = TwoLayer(6, 3, activation="tanh", key=key)
    probes = ["train-loss", "test-loss", "kernel", "weight-movement", "feature-movement"]
    run = GradientFlow(tolerance=1e-3)(network, data, [0, 1.0], probes)
    recorder = Recorder(network, data, probes)
    recorder.see(0, run.start)
    recorder.see(1.0, run.final)
    seen = recorder.trajectory()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), seen.observed, run.observed)
    for theorem in choose("theorem", "chen2022"):  # it is not known to be a gradient flow
        assert theorem.check(seen).verdict is not Verdict.FAILS


@pytest.mark.parametrize("make", [pytest.param(make, id=make.__name__) for make in foreign.JAX])
def test_models_and_their_parameters_can_be_seen(make):
    model, data = make(), foreign.samples()
    recorder = Recorder(model, data, ["train-loss"])
    parameters = unlazy.wrap(model).parameters
    both = [recorder.see(0, model), recorder.see(1, parameters), recorder.see(2, unlazy.wrap(model))]
    assert both[0]["train-loss"] == both[1]["train-loss"] == both[2]["train-loss"] > 0


def test_the_trained_half_of_a_module_is_enough():
    model, data = foreign.equinox(), foreign.samples()
    recorder = Recorder(model, (data.x, data.y), ["train-loss"])
    half = eqx.partition(model, eqx.is_inexact_array)[0]
    assert recorder.see(0, model) == recorder.see(1, half)
    assert split_trained(recorder.trajectory().final)[0] is not None


def test_a_loop_may_donate_its_arrays():
    data, step = (
        foreign.samples(),
        jax.jit(lambda params: jax.tree.map(lambda leaf: 0.9 * leaf, params), donate_argnums=0),
    )
    params = jax.tree.map(jnp.asarray, foreign.weights())
    recorder = Recorder((foreign.mlp, params), data, ["train-loss", "weight-movement"], snapshots=1.0)
    for count in range(3):
        recorder.see(count, params)
        params = step(params)
    first, *_, last = recorder.networks().values()
    np.testing.assert_allclose(last.parameters[0][0], 0.81 * first.parameters[0][0], rtol=1e-12)
    np.testing.assert_allclose(recorder.trajectory().start(data.x), foreign.by_hand(np.asarray(data.x)), rtol=1e-12)


def test_a_loop_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")
    data, module = foreign.samples(), foreign.torch()
    x, y = (torch.tensor(np.asarray(values)) for values in (data.x, data.y))
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    recorder = Recorder(module, data, {**PROBES, "end": OnlyAtEnd(TestLoss())}, snapshots=1.0)
    twin = Recorder(foreign.equinox(), data, {**PROBES, "end": OnlyAtEnd(TestLoss())})
    for step, now in enumerate(descended(foreign.equinox(), data, 4, 0.1)):
        recorder.see(step, module)
        twin.see(step, now)
        optimiser.zero_grad()
        (0.5 * ((module(x) - y) ** 2).sum(1).mean()).backward()
        optimiser.step()
    run, other = recorder.trajectory(), twin.trajectory()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), run.observed, other.observed)
    assert list(recorder.networks()) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(recorder.networks()[0](data.x), run.start(data.x), rtol=1e-12)
    assert module.training
    for theorem in choose("theorem"):
        assert theorem.check(run).verdict is Verdict.SILENT
    with pytest.raises(UserError, match="does not define `outgoing`"):
        Recorder(module, data, ["pruning"]).see(0, module)


def test_a_recorded_run_is_kept_reported_and_saved(tmp_path):
    data, model = foreign.samples(), foreign.equinox()
    recorder = Recorder(model, data, ["train-loss", "weight-movement"])
    for step, now in enumerate(descended(model, data, 2, 0.1)):
        recorder.see(step, now)
    run = recorder.trajectory()
    kept = read_run(Lab(tmp_path).keep("my loop", run))
    assert kept.attrs["description"] == "MLP trained by OwnLoop on 'data' (6 samples)"
    np.testing.assert_array_equal(kept["train-loss"].values[0], run.observed["train-loss"])
    assert "own-loop" in repr(run)
    with pytest.raises(UserError, match=r"recorded in a loop of your own|cannot be continued"):
        GradientFlow().extend(run, [5.0])
    with pytest.raises(UserError, match="recorded in a loop of your own"):
        run.flow.extend(run, [5.0])
    assert "own-loop" not in members("flow")


def shifted(amount):
    arrays, rest = eqx.partition(foreign.equinox(), eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf + amount, arrays), rest)


def test_snapshots_are_thinned_out():
    data = foreign.samples()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(eqx.filter(foreign.equinox(), eqx.is_array)))
    recorder = Recorder(foreign.equinox(), data, ["train-loss"], snapshots=4 * size / 2**20)
    for step in range(10):
        recorder.see(10 * step, shifted(0.01 * step))
        assert len(recorder.networks()) <= 5
    networks = recorder.networks()
    assert list(networks) == [0, 40, 80, 90]
    for step, network in networks.items():
        np.testing.assert_array_equal(network(data.x), unlazy.wrap(shifted(0.01 * step / 10))(data.x))
    without = Recorder(foreign.equinox(), data, ["train-loss"])
    for step in range(3):
        without.see(step, shifted(0.01 * step))
    assert list(without.networks()) == [0, 2]


def test_a_run_that_blows_up_ends_there():
    recorder = Recorder(foreign.equinox(), foreign.samples(), ["train-loss", "kernel"])
    recorder.see(0, foreign.equinox())
    assert recorder.see(1, shifted(np.nan)) == {}
    assert recorder.see(2, foreign.equinox()) == {}
    run = recorder.trajectory()
    assert run.status is Status.not_finite
    np.testing.assert_array_equal(run.times, [0])


def test_mistakes_are_explained():
    data, model = foreign.samples(), foreign.equinox()
    recorder = Recorder(model, data, ["train-loss"])
    with pytest.raises(UserError, match=r"Nothing was recorded yet: call recorder\.see"):
        recorder.trajectory()
    recorder.see(3, model)
    with pytest.raises(UserError, match="Step 3 is not after step 3"):
        recorder.see(3, model)
    with pytest.raises(UserError, match="A TwoLayer was given, where a Wrapped was expected"):
        recorder.see(4, TwoLayer(2, 3, key=0))
    with pytest.raises(UserError, match="differ in"):
        recorder.see(4, eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)))
    with pytest.raises(UserError, match=r"shape \(6, 2\), but the targets .* have shape \(6,\)"):
        Recorder(model, unlazy.Dataset(data.x, data.y[:, 0])).see(0, model)
    with pytest.raises(UserError, match="'data' gives a tuple of 3, where data were expected"):
        Recorder(model, (data.x, data.y, data.y))
    with pytest.raises(UserError, match="There is no probe called 'train-los'"):
        Recorder(model, data, ["train-los"]).see(0, model)
    with pytest.raises(UserError, match=r"see was given 5: give the current TwoLayer"):
        Recorder(TwoLayer(2, 3, 2, key=0), data).see(0, 5)
    assert isinstance(recorder.trajectory().loss, Squared)
