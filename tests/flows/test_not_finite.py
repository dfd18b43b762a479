"""Overflow, NaN, sizes and counts at the edge: nothing of it is called finished."""

import re

import jax
import numpy as np
import pytest

import unlazy
from unlazy import Dataset, Descent, GradientFlow, Linearised, RungeKutta, Status, TwoLayer
from unlazy._errors import UserError
from unlazy.flows import Method, State, to_xarray
from unlazy.flows.state import Attempt
from unlazy.lab import Lab
from unlazy.lab.recipe import _cast, instantiate, parse
from unlazy.losses import Loss, Squared

DATA = unlazy.data.random_labels(5, 3, key=0)


def net(key=0, **options):
    return TwoLayer(8, 3, key=key, **options)


def is_finite(network):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network) if isinstance(leaf, jax.Array))


@pytest.mark.parametrize(
    ("rate", "times"), [(1e-9, [0, 3.0]), (1e-9, [0, 1e-9, 2.2]), (1e-19, [0, 1.0]), (0.5, [0, 1e300])]
)
def test_more_steps_than_can_be_counted_are_refused(rate, times):
    with pytest.raises(UserError, match="a run counts up to"):
        Descent(rate=rate)(net(), DATA, times)


def test_a_schedule_of_too_many_steps_is_refused_before_its_rates_are_added_up():
    with pytest.raises(UserError, match="steps of this schedule away"):
        Descent(rate=1e-9, schedule=unlazy.flows.StepDecay(0.999999, 10**9))(net(), DATA, [0, 1.0])


def test_counts_of_a_method_of_your_own_are_checked_too():
    class Counting(Method):
        loss: Loss = Squared()

        def init(self, network, data, key):
            return State.initial(network, remaining=jax.numpy.zeros((), jax.numpy.int32))

        def take_step(self, state, size, frozen, data):
            return Attempt(state.trained, None, 1)

    with pytest.raises(UserError, match="a run counts up to"):
        Counting()(net(), DATA, [0, 1e10])


@pytest.mark.parametrize("end", [1e200, 3e200])  # the loss overflows in the last step, or in one before
def test_overflow_ends_a_run_at_its_last_finite_state(end):
    run = Descent(rate=1e200)(net(activation="relu"), DATA, [0, end], ["train-loss"])
    assert run.status is Status.not_finite
    assert run.times.tolist() == [0]
    assert is_finite(run.final)
    assert np.isfinite(run.loss(run.final(DATA.x), DATA.y))
    assert np.isfinite(run.observed["train-loss"]).all()


def test_overflow_is_noticed_without_any_probe():
    run = Descent(rate=1e200)(net(activation="relu"), DATA, [0, 1e200])
    assert run.status is Status.not_finite
    assert is_finite(run.final)


def test_the_last_finite_state_is_the_one_before_the_overflow():
    """Gradient descent on a linear model, f = w x: the residual grows by a factor 1 - rate each step, known by hand."""
    data = Dataset(np.ones((1, 1)), np.ones(1))
    network = unlazy.wrap(lambda params, x: x @ params, np.full(1, 2.0))
    factor = 1e30
    run = Descent(rate=1 + factor)(network, data, np.array([0.0, 40.0]) * (1 + factor), ["train-loss"])
    # After k steps the residual is (-1e30)^k; its square overflows for the first time at k = 6, but the loss rises
    # above 1e8 times the first one at k = 1 already, which ends the run one step later, at a finite state.
    assert run.status is Status.diverged
    assert is_finite(run.final)
    steps = run.stats["steps"]
    np.testing.assert_allclose(float(run.final(data.x)[0]) - 1, (-factor) ** steps, rtol=1e-9)
    sudden = Descent(rate=1e200)(network, data, [0, 1e201], ["train-loss"])  # overflows in its first step
    assert sudden.status is Status.not_finite
    assert sudden.stats["steps"] == 0
    np.testing.assert_array_equal(sudden.final(data.x), [2.0])


def test_one_seed_that_overflows_leaves_the_others_as_they_are():
    calm, wild = net(1, activation="relu"), net(2, activation="relu", readout=1e100)
    alone = Descent(rate=0.5)(calm, DATA, [0, 1, 2], ["train-loss"])
    first, second = Descent(rate=0.5).over_seeds([calm, wild], DATA, [0, 1, 2], ["train-loss"])
    assert first.status is Status.finished
    np.testing.assert_allclose(first.observed["train-loss"], alone.observed["train-loss"], rtol=1e-12)
    assert second.status is Status.not_finite
    assert len(second.times) < 3
    assert is_finite(second.final)
    lost = Descent(rate=0.5).over_seeds([calm, net(3, activation="relu", readout=1e160)], DATA, [0, 1], ["train-loss"])[
        1
    ]
    assert (lost.status, len(lost.times)) == (Status.not_finite, 0)  # its loss at the start is infinite already
    assert np.isnan(to_xarray([alone, lost])["train-loss"].values[1]).all()
    joined = to_xarray([first, second])
    assert np.isnan(joined["train-loss"].values[1, -1])
    assert joined.attrs["nonfinite"] == ""  # padding is not an observation


def test_runge_kutta_with_a_constant_step_that_overflows_is_not_finished():
    run = RungeKutta(step=1e180)(net(activation="relu"), DATA, [0, 1e180], ["train-loss"])
    assert run.status is Status.not_finite
    assert is_finite(run.final)


def test_observations_that_are_not_finite_are_marked(tmp_path, capsys):
    zeros = Dataset(DATA.x, np.zeros(5))
    run = GradientFlow()(net(), zeros, [0, 1], ["kernel"])
    assert run.nonfinite == ("kernel.alignment",)
    assert re.search("not finite +kernel.alignment", repr(run))
    assert to_xarray(run).attrs["nonfinite"] == "kernel.alignment"
    dead = GradientFlow()(net(readout=0.0), DATA, [0, 1], ["kernel", "train-loss"])
    assert set(dead.nonfinite) == {"kernel.alignment", "kernel.drift"}

    recipe = {
        "data": {"kind": "two-sided-step", "amplitude": 0.0},
        "network": {"kind": "two-layer", "width": 4},
        "times": [0.0, 1.0],
        "probes": ["kernel", "train-loss"],
    }
    lab = Lab(tmp_path)
    stored = lab.run(parse(recipe))
    assert stored.attrs["nonfinite"] == "kernel.alignment"
    assert {"cores", "threads"} <= set(stored.attrs)
    assert "not finite: kernel.alignment" in lab.table()[0]["status"]
    from unlazy.report.own_runs import _detail
    from unlazy.report.terminal import print_runs

    print_runs([(stored, "zeros", tmp_path / "zeros.nc")], as_json=False)
    assert "kernel.alignment had NaN or infinite values" in capsys.readouterr().out
    detail = _detail(tmp_path / "zeros.nc", stored, type("None_", (), {"findings": {}})())
    assert detail["status"] == "finished; not finite: kernel.alignment"


def test_matrices_that_do_not_fit_are_refused_before_anything_is_computed():
    many = Dataset(np.ones((200_000, 2)), np.zeros(200_000))
    for make in (
        lambda: GradientFlow()(TwoLayer(4, 2, embedding="infinite", key=0), many, [0, 1]),
        lambda: Linearised()(TwoLayer(4, 2, key=0), many, [0, 1]),
        lambda: GradientFlow()(unlazy.MeanFieldStack((float("inf"), 4), 2, key=0), many, [0, 1]),
        lambda: unlazy.Kernel().of(TwoLayer(4, 2, key=0), TwoLayer(4, 2, key=0), many, Squared()),
    ):
        with pytest.raises(UserError, match="GiB"):
            make()


def test_half_precision_is_refused():
    model = unlazy.wrap(lambda params, x: x @ params.astype(x.dtype), jax.numpy.ones(3, jax.numpy.float16))
    with pytest.raises(UserError, match=r"float16.*float32 and float64"):
        GradientFlow()(model, DATA, [0, 1])


def test_too_many_times_are_refused():
    with pytest.raises(UserError, match="count"):
        parse({"data": "two-sided-step", "network": "two-layer", "times": {"end": 1.0, "count": 2**32}})


@pytest.mark.parametrize("scale", [1e-42, 1e42])
def test_a_start_that_float32_cannot_hold_is_refused_in_a_recipe(scale):
    """Networks of recipes are drawn in float64, where they are not zero yet."""
    network = {"kind": "two-layer", "width": 4, "scale": scale}
    table = {"data": {"kind": "random-labels", "n": 4, "d": 3}, "network": network, "times": [0.0, 1.0]}
    assert instantiate(parse(table)).networks[0].w.dtype == "float64"
    with pytest.raises(UserError, match=r"network: w at the start .*float32 holds"):
        instantiate(parse(table | {"dtype": "float32"}))
    convolutional = unlazy.ConvNet((2,), 2, image=(1, 3, 3), scale=1e-42, key=0)
    with pytest.raises(UserError, match=r"kernels.* of the size"):
        _cast(convolutional, "float32")


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_data_that_float32_cannot_hold_are_refused(factor):
    with pytest.raises(UserError, match=r"x of data set 'data' .*rescale them, or use float64"):
        unlazy.Dataset(factor * np.ones((4, 3)), np.ones(4)).astype("float32")
    assert unlazy.Dataset(factor * np.ones((4, 3)), np.zeros(4)).astype("float64").x[0, 0] == factor
