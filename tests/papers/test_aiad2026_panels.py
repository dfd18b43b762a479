"""Panels of aiad2026: claims hold on runs as the paper describes them, fail on others, and panels run end to end."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from made_up import run_small, with_fields
from unlazy._errors import UserError
from unlazy.lab import Lab, instantiate
from unlazy.papers import aiad2026, check_claims
from unlazy.papers.aiad2026 import _shared as drawing
from unlazy.papers.aiad2026 import comparison, density, logratios, mnist, prediction, symmetry, toy
from unlazy.papers.aiad2026 import width as against
from unlazy.papers.aiad2026._shared import adam, epochs_of, full_rank, low_rank, steps_of, times_of, trained

rng = np.random.default_rng(11)
LINE = drawing.LINE


def stored(variables, steps, recipe, seeds=2, late=(), finished=1):
    """A run as it comes from the store, looked at after so many steps; all seeds alike, unless an array says so."""
    flow = recipe["flow"]
    times = [0.0, 1.0] if steps is None else times_of(flow, steps)

    def labelled(name, values):
        every = np.asarray(values, float)
        if not isinstance(values, Seeds):
            every = np.stack([every] * seeds)
        first = ("seed",) if name.partition(".")[0] in late else ("seed", "time")
        return ((*first, *(f"{name}_{axis}" for axis in range(every.ndim - len(first)))), every)

    attrs = {"status": ["finished"] * seeds, "finished": finished, "seconds": 1.0, "recipe": json.dumps(recipe)}
    named = {name: labelled(name, values) for name, values in variables.items()}
    return xr.Dataset(named, {"seed": range(seeds), "time": times}, attrs)


class Seeds(np.ndarray):
    """Values that have seeds already."""


def by_seed(values):
    return np.asarray(values, float).view(Seeds)


def verdicts(panel, given):
    found = panel.claims(given)
    assert all(claim.text and claim.paper and claim.measured for claim in found)
    assert all(isinstance(claim.holds, bool) for claim in found)
    return [claim.holds for claim in found]


def broken(panel, given):
    return {index for index, holds in enumerate(verdicts(panel, given)) if not holds}


# ---------------------------------------------------------------- settings


def test_the_clock_of_a_decaying_rate_is_that_of_descent():
    from unlazy.flows import Descent, StepDecay

    flow = adam(n=100, batch=30, every=3, rate=0.1)
    steps = [0, 1, 11, 12, 13, 40, 100]
    times = times_of(flow, steps)
    planned = Descent(rate=0.1, schedule=StepDecay(0.9, 12)).plan(np.asarray(times))
    assert planned[0].tolist() == steps
    np.testing.assert_allclose(planned[1], times, rtol=1e-6)
    recipe = {"flow": flow, "data": {"n": 100}}
    run = stored({"train-loss": np.ones(len(steps))}, steps, recipe)
    assert steps_of(run).tolist() == steps
    assert epochs_of(run)[-1] == 25
    plain = {"flow": {"rate": 0.5, "batch": 10}, "data": {"n": 100}}
    assert steps_of(stored({"train-loss": [1, 1]}, [0, 7], plain)).tolist() == [0, 7]


def test_three_layers_are_two_blocks():
    assert trained(low_rank(2, 1024, 10)) == 1024 * 10 + 10 + 1024 + 1
    assert trained(full_rank(2, 1024)) == 2 * 1024 + 1024 * 1024 + 1024 + 1024 + 1
    assert len(low_rank(8, 16, 3)["widths"]) == 8


# ---------------------------------------------------------------- figure 2


def compared(low=1e-3, full=1e-3, momenta=(2e-3, 3e-3, 4e-3), finished=1):
    def run(network, end):
        flow = {"rate": 0.01, "batch": 4, "schedule": {"factor": 0.5, "every": 10}}
        recipe = {"data": {"n": 20}, "network": network, "flow": flow}
        return stored({"train-loss": [0.5, 0.1, end]}, [0, 10, 50], recipe, finished=finished)

    ends = dict(zip((0.0, 0.3, 0.6, 0.7), (low, *momenta), strict=True))
    found = {comparison.label(momentum): run(low_rank(2, 1024, 10), end) for momentum, end in ends.items()}
    return found | {comparison.FULL: run(full_rank(2, 1024), full)}


def test_figure_2_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig2, compared()) == [True, True]
    assert "1.07%" in aiad2026.fig2.claims(compared())[0].measured
    assert aiad2026.fig2.draw(compared()).axes[0].get_yscale() == "log"


def test_figure_2_fails_where_it_is_not():
    assert broken(aiad2026.fig2, compared(full=4e-4)) == {0}
    assert broken(aiad2026.fig2, compared(momenta=(2e-3, 9e-4, 4e-3))) == {1}
    with pytest.raises(UserError, match="ended early"):
        check_claims(aiad2026.fig2, compared(finished=0))


def test_a_momentum_that_diverges_is_worse_than_none():
    given = compared(momenta=(2e-3, 3e-3, 1e-4))
    lost = given[comparison.label(0.7)]
    lost.attrs |= {"status": ["diverged", "diverged"], "finished": 0}
    assert [claim.holds for claim in check_claims(aiad2026.fig2, given)] == [True, True]
    assert "2 of 2 seeds diverged" in aiad2026.fig2.claims(given)[1].measured
    assert aiad2026.fig2.draw(given).axes


# ---------------------------------------------------------------- figures 3 and 4


def stepped(rising=True, sign=1.0, rho=0.5, end=0.0, apart=0.0):
    times = np.arange(5)
    steps = (times / 0.01).astype(int)
    recipe = {"data": {}, "network": {"widths": [64, 8]}, "flow": {"rate": 0.01}}

    def one(shift):
        f = np.zeros((5, toy.LINE.size, 2))
        f[..., 0] = (1 + (times if rising else -0.1 * times))[:, None] + shift
        f[..., 1] = 0.5 + shift
        signals = np.ones_like(f)
        signals[..., 0] = sign
        signals[..., 1] = rho * f[..., 1] / f[..., 0]
        outputs = toy._HEIGHT * np.stack([np.linspace(0, 1 - end, 5), -np.linspace(0, 1 - end, 5)], axis=1)
        loss = 0.5 * (toy._HEIGHT - outputs[:, 0]) ** 2
        variables = {
            "train-loss": loss,
            "train-outputs": outputs,
            "channels.block-1": f,
            "channels.block-2": f[..., :1],
            "backward-signals.block-1": signals,
        }
        return stored(variables, steps, recipe)

    return {toy.INFINITE: one(0.0), toy.FINITE: one(apart)}


def test_figures_3_and_4_hold_where_the_paper_is_right():
    assert verdicts(aiad2026.fig3, stepped()) == [True, True]
    assert verdicts(aiad2026.fig4, stepped()) == [True, True, True]
    assert len(aiad2026.fig3.draw(stepped()).axes) == len(aiad2026.fig4.draw(stepped()).axes) == 3


def test_figures_3_and_4_fail_where_it_is_not():
    assert broken(aiad2026.fig3, stepped(rising=False)) == {0}
    assert broken(aiad2026.fig3, stepped(apart=1.0)) == {1}
    assert broken(aiad2026.fig4, stepped(rising=False)) == {1, 2}
    assert broken(aiad2026.fig4, stepped(end=0.5)) == {0}
    assert broken(aiad2026.fig4, stepped(sign=-1.0)) == {1, 2}  # (ii) never holds
    assert broken(aiad2026.fig4, stepped(rho=1.5)) == {1, 2}  # nor (iii)


def test_the_stretch_is_the_longest_on_which_all_hold():
    along = toy.follow(stepped()[toy.INFINITE])
    assert along.stretch == (0, 4)
    holds = np.ones((5, 3), bool)
    holds[1, 2] = False
    assert along._replace(holds=holds).stretch == (2, 4)
    assert along._replace(holds=np.zeros((5, 3), bool)).stretch == (0, -1)
    np.testing.assert_allclose(along.rho, 0.5)


def test_the_kernel_of_the_toy_is_that_of_its_network():
    (network,) = instantiate(toy.recipe("quick", float("inf"), 1)).networks
    points = np.linspace(-2, 2, 7)[:, None]
    exact = np.asarray(network.blocks[0].limit_kernel(jnp.asarray(points), jnp.array([[-1.0]])))[:, 0]
    np.testing.assert_allclose(toy.kernel(points[:, 0], -1.0), exact, rtol=1e-10)


# ---------------------------------------------------------------- figures 5 and 6


def ratios(grown=1.0, top=1.0, pairs=2.0, amplitude=1.0):
    steps = [0, 200, 1000]
    recipe = {"data": {"n": 100, "frequency": 4.0}, "flow": {"rate": 0.01, "batch": 10}}
    rise = np.array([0.0, 0.5, 1.0])
    logs = np.array([1.0, 0.0, -0.5, -1.0])[None] * (1 + (pairs - 1) * rise)[:, None]
    spectrum = np.zeros((3, logratios.FREQUENCIES + 1, 1))
    spectrum[:, 4, 0] = amplitude * rise
    variables = {
        "train-loss": 1 - rise,
        "log-ratios.all": logs[:, :, None] - logs[:, None, :],
        "log-ratios.largest": 2 + grown * rise,
        "log-ratios.top_to_median": 1 + top * rise,
        "channel-spectrum.block-2": spectrum,
        "channels.block-1": np.cos(np.outer(LINE, np.arange(1, 5))),
    }
    return {name: stored(variables, steps, recipe, late=("channels",)) for name in ("ReLU", "leaky ReLU")}


def test_figures_5_and_6_hold_where_the_paper_is_right():
    assert verdicts(aiad2026.fig5, ratios()) == [True] * 5
    assert verdicts(aiad2026.fig6, ratios()) == [True] * 2
    assert len(aiad2026.fig5.draw(ratios()).axes) == 3
    assert len(aiad2026.fig6.draw(ratios()).axes) == 4  # with the bar of colours


def test_figures_5_and_6_fail_where_it_is_not():
    assert broken(aiad2026.fig5, ratios(grown=-0.1)) == {0, 1}
    assert broken(aiad2026.fig5, ratios(top=-0.1)) == {2, 3}
    assert broken(aiad2026.fig5, ratios(amplitude=0.8)) == {4}
    assert broken(aiad2026.fig6, ratios(pairs=0.9)) == {0, 1}


# ---------------------------------------------------------------- figure 7


def predicted(frozen=1e-5, free=1e-6, full=1e-4, low_first=True, pair=(36.0, 12.0)):
    found = {}
    steps = [0, 100, 300, 1000]
    wanted = prediction._amplitudes(prediction.target(pair, LINE))
    order = np.arange(wanted.size) if low_first else np.arange(wanted.size)[::-1]
    share = np.clip(np.array([0.0, 0.4, 0.8, 2.0])[:, None] * wanted.size / (1 + order)[None] / 2, 0, 1)
    for name, end in ((prediction.FROZEN, frozen), (prediction.TRAINED, free), (prediction.FULL, full)):
        network = full_rank(4, 32) if name == prediction.FULL else low_rank(4, 32, 5, name == prediction.FROZEN)
        recipe = {
            "data": {"n": 100, "f1": pair[0], "f2": pair[1]},
            "flow": adam(100, 10),
            "network": network,
        }
        losses = np.array([1.0, 0.5, 0.1, end])
        variables = {
            "train-loss": losses,
            "test-loss": losses,
            "channel-spectrum.block-4": (share * wanted)[:, :, None],
            "channels.block-4": prediction.target(pair, LINE)[:, None],
        }
        found[f"{name} ({pair[0]:g}, {pair[1]:g})"] = stored(variables, steps, recipe, late=("channels",))
    return found


def test_figure_7_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig7, predicted()) == [True] * 4
    harder = {"RF-LR (72, 24)": predicted(pair=(72.0, 24.0))["RF-LR (72, 24)"]}
    assert verdicts(aiad2026.fig7, predicted() | harder) == [True] * 5
    assert len(aiad2026.fig7.draw(predicted() | harder).axes) == 3


def test_figure_7_fails_where_it_is_not():
    assert broken(aiad2026.fig7, predicted(frozen=2e-4)) == {0}
    assert broken(aiad2026.fig7, predicted(free=2e-4)) == {1}
    assert broken(aiad2026.fig7, predicted(full=5e-7)) == {2}
    assert broken(aiad2026.fig7, predicted(low_first=False)) == {3}


# ---------------------------------------------------------------- figures 8 and 9


def mirrored(frozen=1e-3, free=1e-2, sharp=8.0, loss=1e-4, lopsided=(0.1, 0.3)):
    def run(defect, sharpness, frozen, odd):
        recipe = {
            "data": {"n": 100, "f1": 18.0, "f2": 6.0},
            "flow": adam(100, 10),
            "network": low_rank(5, 16, 3, frozen),
        }
        variables = {
            "train-loss": [0.8, loss],
            "layer-4": np.cos(np.outer(LINE, np.arange(16))),
            "layer-8": np.cos(np.outer(LINE, np.arange(16))),
        }
        for block in (1, 2, 3, 4, 5):
            # A large constant, which the eye does not see in a curve, makes every channel look even.
            variables[f"channels.block-{block}"] = 9 + np.cos(np.outer(LINE, [1, 2, 3])) + odd * LINE[:, None]
            variables[f"symmetry-defect.block-{block}"] = np.full((2, 3), defect)
            variables[f"spikes.sharpness.block-{block}"] = np.full((2, 3), sharpness)
        return stored(variables, [0, 100], recipe, late=("channels", "layer-4", "layer-8"))

    return {
        symmetry.FROZEN: run(frozen, sharp, True, lopsided[0]),
        symmetry.TRAINED: run(free, 4.0, False, lopsided[1]),
    }


def test_figures_8_and_9_hold_where_the_paper_is_right():
    assert verdicts(aiad2026.fig8, mirrored()) == [True] * 3
    assert verdicts(aiad2026.fig9, mirrored()) == [True] * 3
    for panel in (aiad2026.fig8, aiad2026.fig9):
        assert len(panel.draw(mirrored()).axes) == 4


def test_figures_8_and_9_fail_where_it_is_not():
    assert broken(aiad2026.fig8, mirrored(free=5e-4)) == {0}
    assert broken(aiad2026.fig8, mirrored(lopsided=(0.3, 0.1))) == {1}
    assert broken(aiad2026.fig8, mirrored(loss=0.1)) == {2}
    assert broken(aiad2026.fig9, mirrored(frozen=0.1)) == {0}
    assert broken(aiad2026.fig9, mirrored(sharp=3.0)) == {2}


def test_what_varies_is_what_is_left_without_the_mean():
    run = mirrored(lopsided=(0.5, 0.5))[symmetry.FROZEN]
    even = np.cos(np.outer(LINE, [1, 2, 3]))
    odd = np.trapezoid((0.5 * LINE) ** 2, LINE)
    varies = np.trapezoid((even - even.mean(axis=0)) ** 2, LINE, axis=0)
    assert symmetry.shape_defects(run) == pytest.approx(np.full((2, 4), np.median(odd / (odd + varies))))


def test_figures_8_and_9_say_which_network_has_learnt_nothing():
    assert not any("learnt nothing" in claim.measured for claim in aiad2026.fig9.claims(mirrored()))
    for claim in aiad2026.fig9.claims(mirrored(loss=0.79)):
        assert claim.measured.endswith("without spikes): frozen features (MSE 0.79), no frozen features (MSE 0.79)")


# ---------------------------------------------------------------- figure 10


def weighed(end=None, growth=2.0):
    draws = rng.normal(size=(3, 400, 8))
    recipe = {
        "data": {"n": 100, "f1": 36.0, "f2": 12.0},
        "flow": adam(100, 10),
        "network": low_rank(4, 400, 8),
    }
    late = growth * draws if end is None else end
    variables = {f"trained-neurons.block-{b}": np.stack([draws[0], draws[1], late[2]]) for b in (1, 2, 3, 4)}
    return {"weights": stored({"train-loss": [1.0, 0.5, 0.1], **variables}, [0, 50, 500], recipe)}


def test_figure_10_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig10, weighed()) == [True] * 3
    assert len(aiad2026.fig10.draw(weighed()).axes) == 8


def test_figure_10_fails_where_it_is_not():
    assert broken(aiad2026.fig10, weighed(end=2 * rng.exponential(size=(3, 400, 8)))) == {0, 1}
    assert broken(aiad2026.fig10, weighed(end=2 * (2 + rng.normal(size=(3, 400, 8))))) == {
        0,
        1,
    }  # symmetric, not about 0
    assert broken(aiad2026.fig10, weighed(growth=1.0)) == {2}


def test_skewness_and_odd_parts():
    assert density.skewness(rng.normal(size=100_000)) == pytest.approx(0, abs=0.05)
    assert density.skewness(rng.exponential(size=100_000)) == pytest.approx(2, abs=0.2)
    assert density.odd_part(rng.normal(size=10_000)) < 0.01
    assert density.odd_part(np.abs(rng.normal(size=10_000))) == pytest.approx(0.5, abs=0.02)


# ---------------------------------------------------------------- table 1


def tabled(kind="mnist", n=60_000, **changes):
    found = {}
    for name, row in mnist.ROWS.items():
        recipe = {
            "data": {"kind": kind, "n": n},
            "flow": {"rate": 1e-3, "batch": 100},
            "network": row.network,
        }
        error = 1 - changes.get(name, row.accuracy) / 100
        found[name] = stored({"test-error": [0.9, 0.1, error]}, [0, 10, 20], recipe)
    return found


def test_table_1_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.table1, tabled()) == [True] * 3
    part = tabled(n=6000)
    assert verdicts(aiad2026.table1, part) == [True] * 3
    assert "order" in aiad2026.table1.claims(part)[1].text
    assert "order" in aiad2026.table1.claims(tabled(kind="digits", n=60_000))[1].text
    assert len(aiad2026.table1.draw(tabled()).axes) == 2


def test_table_1_fails_where_it_is_not():
    assert broken(aiad2026.table1, tabled(**{"RF-LR r = 5": 94.3})) == {1}
    assert broken(aiad2026.table1, tabled(n=6000, **{"RF-LR r = 5": 96.5})) == {1}
    assert broken(aiad2026.table1, tabled(**{"LR only r = 32": 97.82})) == {2}
    wrong = tabled()
    wrong["MLP"] = wrong["LR only r = 32"]
    assert 0 in broken(aiad2026.table1, wrong)


# ---------------------------------------------------------------- width


def coupled(power=-0.5, step=1.0, batch=0.5, start=0.0):
    def run(apart, neurons, width=64, rate=0.5):
        flow = {"kind": "descent", "rate": rate} if rate else {"kind": "runge-kutta"}
        recipe = {"data": {}, "network": {"widths": [width, width]}, "flow": flow}
        rows = np.zeros((2, neurons, 2))
        rows[1, 3, 1] = apart
        rows[0, 0, 0] = start * (apart > 0)
        return stored({"trained-neurons.block-1": rows, "train-loss": [1.0, 0.5]}, None, recipe)

    full = 4096
    found = {f"{against.WIDTH}{full}": run(0.0, 64, full)}
    found |= {f"{against.WIDTH}{n}": run((1 / n - 1 / full) ** -power, min(n, 64), n) for n in (16, 64, 256)}
    for name, exponent in ((against.STEP, step), (against.BATCH, batch)):
        found[f"{name}{against.FLOW}"] = run(0.0, 16, rate=None)
        found |= {f"{name}{h:g}": run(h**exponent, 16, rate=h) for h in (0.25, 0.125, 0.0625)}
    return found


def test_the_width_study_holds_where_the_theorem_is_right():
    assert verdicts(aiad2026.distance, coupled()) == [True, True]
    widths, apart, exponent, full = against.by_width(coupled())
    assert widths.tolist() == [16, 64, 256]
    assert apart.shape == (3, 2)
    assert exponent == pytest.approx(-0.5)
    assert full == 4096
    assert len(aiad2026.distance.draw(coupled()).axes) == 2


def test_the_width_study_fails_where_it_is_not():
    assert broken(aiad2026.distance, coupled(power=-0.3)) == {0}
    assert broken(aiad2026.distance, coupled(step=0.5)) == {1}
    assert broken(aiad2026.distance, coupled(batch=1.0)) == {1}
    with pytest.raises(UserError, match="no coupling"):
        aiad2026.distance.claims(coupled(start=1.0))


# ---------------------------------------------------------------- end to end


def judged(panel, found):
    """Check all claims and draw; give the results back."""
    assert all(run.attrs["finished"] for run in found.values())
    assert all(isinstance(claim.holds, bool) and claim.measured for claim in check_claims(panel, found))
    assert panel.draw(found).axes
    return found


def smaller(recipe, width, rank, n, batch, steps, **data):
    """Narrow networks of as many blocks on few samples, observed after so many steps."""
    blocks = len(recipe.network["widths"])
    dense = recipe.network["ranks"] == recipe.network["widths"][0]
    network, flow = {"widths": [width] * blocks, "ranks": width if dense else rank}, recipe.flow | {"batch": batch}
    return with_fields(recipe, network=network, flow=flow, data={"n": n, **data}, times=times_of(flow, steps))


@pytest.mark.slow
def test_figure_2_runs_from_end_to_end(tmp_path):
    found = run_small(aiad2026.fig2, Lab(tmp_path), lambda recipe: smaller(recipe, 16, 3, 12, 4, [0, 3, 6]))
    assert epochs_of(judged(aiad2026.fig2, found)[comparison.FULL]).tolist() == [0, 1, 2]


def test_figures_3_and_4_run_from_end_to_end(tmp_path):
    recipes = aiad2026.fig3.recipes("quick", 2)
    assert recipes == aiad2026.fig4.recipes("quick", 2)
    small = {
        name: with_fields(recipes[name], network={"widths": [width, 32]}, times=[0.0, 0.1, 0.2])
        for name, width in ((toy.INFINITE, float("inf")), (toy.FINITE, 64))
    }
    found = Lab(tmp_path).run_all(small)
    judged(aiad2026.fig3, found)
    judged(aiad2026.fig4, found)
    assert found[toy.INFINITE]["channels.block-1"].shape == (2, 3, toy.LINE.size, 2)
    assert toy.LINE[toy._LEFT] == -toy._DELTA
    assert toy.LINE[toy._RIGHT] == toy._DELTA


@pytest.mark.slow
def test_figures_5_and_6_run_from_end_to_end(tmp_path):
    found = run_small(aiad2026.fig5, Lab(tmp_path), lambda recipe: smaller(recipe, 16, 3, 20, 6, [0, 4, 8, 12]))
    judged(aiad2026.fig5, found)
    assert epochs_of(judged(aiad2026.fig6, found)["ReLU"]).tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_figure_7_runs_from_end_to_end(tmp_path):
    def tiny(recipe):
        return smaller(recipe, 16, 3, 20, 5, [0, 4, 8, 40 if "long" in recipe.name else 20], n_test=10)

    assert len(judged(aiad2026.fig7, run_small(aiad2026.fig7, Lab(tmp_path), tiny, scale="paper"))) == 5


def test_the_layers_of_figures_8_and_9_are_the_linear_maps_of_the_blocks():
    recipe = symmetry.recipe("paper", symmetry.FROZEN, 1)
    first, *_, last = instantiate(recipe).networks[0].blocks
    assert recipe.network["widths"] == [1024] * 9
    assert [symmetry.block_of(layer) for layer in (0, 1, 5, 7, 8, 16, 17)] == [1, 1, 3, 4, 5, 9, 9]
    # The start of the authors' code: N(0, 1/fan-in), and N(0, 1) for the one input; 20 and 1 entries a neuron.
    assert np.std(first.w) == pytest.approx(1, rel=0.1)
    assert np.std(last.w) == pytest.approx(20**-0.5, rel=0.03)
    assert np.std(last.b) == pytest.approx(20**-0.5, rel=0.1)
    assert np.std(first.a) == pytest.approx(1 / 32, rel=0.03)


@pytest.mark.slow
def test_figures_8_and_9_run_from_end_to_end(tmp_path):
    found = run_small(aiad2026.fig8, Lab(tmp_path), lambda recipe: smaller(recipe, 16, 3, 20, 5, [0, 4, 8], n_test=10))
    judged(aiad2026.fig8, found)
    judged(aiad2026.fig9, found | {symmetry.PRINTED: found[symmetry.FROZEN]})
    assert list(aiad2026.fig8.recipes("paper")) == [symmetry.FROZEN, symmetry.TRAINED, symmetry.PRINTED]


@pytest.mark.slow
def test_figure_10_runs_from_end_to_end(tmp_path):
    judged(
        aiad2026.fig10,
        run_small(aiad2026.fig10, Lab(tmp_path), lambda recipe: smaller(recipe, 16, 8, 10, 5, [0, 10, 100])),
    )


@pytest.mark.slow
def test_table_1_runs_from_end_to_end_on_digits(tmp_path, monkeypatch):
    def tiny(recipe):
        return with_fields(recipe, data={"n": 200, "n_test": 50}, times=times_of(recipe.flow, [0, 4, 8]))

    monkeypatch.delenv("UNLAZY_DATA", raising=False)
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path / "cache"))
    names = ("MLP", "RF-LR r = 5", "RF-LR r = 10", "RF-LR r = 15", "RF-LR r = 25", "RF-LR r = 50", "LR only r = 32")
    found = run_small(aiad2026.table1, Lab(tmp_path), tiny)
    assert tuple(found) == names
    assert judged(aiad2026.table1, found)
    assert aiad2026.table1.claims(found)[0].holds  # counts do not depend on training


def test_the_width_study_runs_from_end_to_end_on_coupled_networks(tmp_path, monkeypatch):
    tiny = against._Sizes((8, 16), 64, 6, (1 / 4, 1 / 8), (1 / 4, 1 / 8), 40, 2)
    monkeypatch.setattr(against, "_SCALES", {"quick": tiny})
    monkeypatch.setattr(against, "_NARROW", 8)
    found = judged(aiad2026.distance, Lab(tmp_path).run_all(aiad2026.distance.recipes("quick")))
    part, whole = (found[f"{against.WIDTH}{n}"]["trained-neurons.block-2"].values for n in (8, 64))
    np.testing.assert_array_equal(part[:, 0], whole[:, 0, :8])  # a narrow network is the beginning of a wide one
    assert np.abs(part[:, -1] - whole[:, -1, :8]).max() > 0
