"""Panels of aiad2026: claims hold on runs as the paper describes them, fail on others, and panels run end to end."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import xarray as xr

from made_up import run_small, with_fields
from unlazy._errors import UserError
from unlazy.lab import Lab, instantiate
from unlazy.papers import aiad2026, check_claims
from unlazy.papers._base import Sizes
from unlazy.papers.aiad2026 import (
    authors,
    benchmark,
    collapse,
    comparison,
    density,
    logratios,
    mnist,
    prediction,
    symmetry,
    toy,
)
from unlazy.papers.aiad2026 import width as against
from unlazy.papers.aiad2026.setting import (
    LINE,
    STAGNATION,
    adam,
    at_epoch,
    epochs_of,
    full_rank,
    low_rank,
    sgd,
    steps_of,
    times_of,
    trained,
)
from unlazy.papers.outcomes import Outcome

rng = np.random.default_rng(11)


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
    """The claims that fail; the others hold."""
    outcomes = [claim.outcome for claim in panel.claims(given)]
    assert set(outcomes) <= {Outcome.HOLDS, Outcome.FAILS}
    return {index for index, outcome in enumerate(outcomes) if outcome is Outcome.FAILS}


def outcomes(panel, given):
    return [claim.outcome for claim in panel.claims(given)]


H, F, U, V = Outcome.HOLDS, Outcome.FAILS, Outcome.UNDECIDED, Outcome.VACUOUS


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


def test_time_is_constant_where_the_rate_reacts_to_the_loss():
    recipe = {"flow": sgd(10) | {"schedule": STAGNATION}, "data": {"n": 100}}
    run = stored({"train-loss": [1, 1, 1]}, [0, 20, 50], recipe)
    assert run["time"].values.tolist() == pytest.approx([0.0, 0.2, 0.5])
    assert steps_of(run).tolist() == [0, 20, 50]
    assert at_epoch(run, 1.9) == 1


def test_numbers_of_parameters_are_those_of_the_authors():
    assert trained(low_rank(3, 1024, 10)) == 21_525
    assert trained(low_rank(3, 1024, 1024)) == 2_100_225  # their full rank is the same network with all channels
    assert trained(full_rank(2, 1024)) == 2 * 1024 + 1024 * 1024 + 1024 + 1024 + 1
    assert len(low_rank(8, 16, 3)["widths"]) == 8


# ---------------------------------------------------------------- figure 2


def compared(low=1e-6, full=1e-5, momenta=(2e-6, 3e-6, 4e-6), finished=1, width=1024):
    def run(network, end):
        recipe = {"data": {"n": 20}, "network": network, "flow": sgd(4) | {"schedule": STAGNATION}}
        ends = np.broadcast_to(end, 2)
        return stored(
            {"train-loss": by_seed([[0.5, 0.1, one] for one in ends])}, [0, 10, 50], recipe, finished=finished
        )

    ends = dict(zip((0.0, 0.3, 0.6, 0.7), (low, *momenta), strict=True))
    found = {comparison.label(momentum): run(low_rank(3, width, 10), end) for momentum, end in ends.items()}
    return found | {comparison.FULL: run(low_rank(3, width, width), full)}


def test_figure_2_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig2, compared()) == [True] * 5
    assert "98.98% fewer" in aiad2026.fig2.claims(compared())[0].measured
    smaller_one = aiad2026.fig2.claims(compared(width=256))
    assert [claim.holds for claim in smaller_one] == [True] * 4  # the MSEs of the paper are those of its width
    assert smaller_one[0].weaker
    assert aiad2026.fig2.draw(compared()).axes[0].get_yscale() == "log"


def test_losses_and_accuracies_stand_beside_the_authors():
    found = aiad2026.fig2.references(compared())
    assert [one.authors for one in found] == [6.8e-7, 6.8e-7, 2.3e-7, 1.9e-7, 9e-6]
    assert {one.outcome for one in found} == {U}  # made-up runs are shorter
    found = aiad2026.table1.references(tabled())
    assert [one.source for one in found[:7]] == ["Table 1"] * 7
    assert all(one.relative == pytest.approx(0, abs=1e-9) for one in found[:7])
    assert all("only measured" in one.judgement.test for one in aiad2026.table1.references(tabled(n=6000)))


def test_figure_2_fails_where_it_is_not():
    assert broken(aiad2026.fig2, compared(full=4e-7)) == {1, 2, 4}
    assert broken(aiad2026.fig2, compared(low=1.2e-6, full=1e-6)) == {1, 4}  # within twice
    assert broken(aiad2026.fig2, compared(momenta=(2e-6, 8e-7, 4e-6))) == {3}
    assert broken(aiad2026.fig2, compared(low=1e-7)) == {4}
    assert outcomes(aiad2026.fig2, compared() | {comparison.FULL: compared()[comparison.label(0.0)]})[0] is F
    with pytest.raises(UserError, match="ended early"):
        check_claims(aiad2026.fig2, compared(finished=0))


def test_figure_2_is_undecided_within_the_spread_of_seeds():
    given = compared(low=(1e-6, 1.2e-6), full=(1e-5, 1e-5), momenta=((8e-7, 1.4e-6), 6e-6, 8e-6))
    assert outcomes(aiad2026.fig2, given) == [H, H, H, U, H]
    lost = compared()
    lost[comparison.label(0.7)].attrs |= {"status": ["diverged", "finished"], "finished": 0}
    assert outcomes(aiad2026.fig2, lost)[3] is U  # one seed that diverges is no comparison
    lost[comparison.label(0.0)].attrs |= {"status": ["diverged", "diverged"], "finished": 0}
    assert outcomes(aiad2026.fig2, lost)[1] is F


def test_a_momentum_that_diverges_is_worse_than_none():
    given = compared(momenta=(2e-6, 3e-6, 1e-7))
    lost = given[comparison.label(0.7)]
    lost.attrs |= {"status": ["diverged", "diverged"], "finished": 0}
    assert [claim.holds for claim in check_claims(aiad2026.fig2, given)] == [True] * 5
    assert "2 of 2 seeds diverged" in aiad2026.fig2.claims(given)[3].measured
    assert aiad2026.fig2.draw(given).axes


# ---------------------------------------------------------------- figures 3 and 4


def stepped(rising=True, sign=1.0, rho=0.5, end=0.0, apart=0.0, bump=0.5):
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
        f[..., 0] += bump * (np.exp(-8 * (toy.LINE + 1) ** 2) - 1)  # nothing at x_0
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
    assert verdicts(aiad2026.fig3, stepped()) == [True, True, True]
    assert verdicts(aiad2026.fig4, stepped()) == [True] * 5
    assert len(aiad2026.fig3.draw(stepped()).axes) == len(aiad2026.fig4.draw(stepped()).axes) == 3


def test_figures_3_and_4_fail_where_it_is_not():
    assert broken(aiad2026.fig3, stepped(rising=False)) == {0, 1}
    assert broken(aiad2026.fig3, stepped(bump=-0.5)) == {0}
    assert broken(aiad2026.fig3, stepped(apart=1.0)) == {2}
    assert outcomes(aiad2026.fig3, stepped(rho=1.5))[1] is U  # no t_0 and t_1
    assert broken(aiad2026.fig4, stepped(rising=False)) == {2, 4}
    assert broken(aiad2026.fig4, stepped(end=0.5)) == {0}
    assert outcomes(aiad2026.fig4, stepped(sign=-1.0)) == [H, F, V, F, V]  # (ii) never holds
    assert outcomes(aiad2026.fig4, stepped(rho=1.5)) == [H, F, V, F, V]  # nor (iii)


def test_the_stretch_is_the_longest_on_which_all_hold():
    along = toy.along_run(stepped()[toy.INFINITE])
    assert along.stretch == (0, 4)
    holds = np.ones((5, 3), bool)
    holds[1, 2] = False
    assert along._replace(holds=holds).stretch == (2, 4)
    assert along._replace(holds=np.zeros((5, 3), bool)).stretch == (0, -1)
    np.testing.assert_allclose(along.rho, 0.5)


def test_the_kernel_of_the_toy_is_that_of_its_network():
    (network,) = instantiate(aiad2026.fig3.recipes("quick", 1)[toy.INFINITE]).networks
    points = np.linspace(-2, 2, 7)[:, None]
    exact = np.asarray(network.blocks[0].limit_kernel(jnp.asarray(points), jnp.array([[-1.0]])))[:, 0]
    np.testing.assert_allclose(toy.kernel(points[:, 0], -1.0), exact, rtol=1e-10)


# ---------------------------------------------------------------- figures 5 and 6


def ratios(grown=1.0, top=1.0, half=0.5, start=7.0):
    rise = np.array([0.0, half, 1.0])
    recipe = {"data": {"n": 100, "frequency": 8.0}, "flow": sgd(10)}
    variables = {
        "train-loss": [0.5, 0.5, 0.5],
        "log-ratios.logs": np.zeros((3, 15)),
        "log-ratios.largest": start + grown * rise,
        "log-ratios.top_to_median": 1 + top * rise,
    }
    return {logratios.RUN: stored(variables, [0, 100, 200], recipe)}


def test_figure_5_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig5, ratios()) == [True] * 4
    assert [claim.weaker for claim in aiad2026.fig5.claims(ratios())] == [False, False, True, True]
    assert len(aiad2026.fig5.draw(ratios()).axes) == 3


def test_figure_5_fails_where_it_is_not():
    assert broken(aiad2026.fig5, ratios(grown=-0.1)) == {0, 2}
    assert broken(aiad2026.fig5, ratios(half=1.2)) == {0}  # grows, then falls
    assert broken(aiad2026.fig5, ratios(start=3.0)) == {1}  # grows, but not beyond chance
    assert broken(aiad2026.fig5, ratios(top=-0.1)) == {3}


def test_a_largest_ratio_that_grows_by_chance_is_undecided():
    given = ratios()
    given[logratios.RUN]["log-ratios.largest"].values[:, :] = [[2.0, 2.6, 3.0], [3.0, 2.5, 2.2]]
    assert outcomes(aiad2026.fig5, given)[:3] == [U, F, U]
    low, middle, high = logratios.independent(15)
    assert (low, middle, high) == pytest.approx((2.39, 3.57, 5.9), abs=0.3)
    assert "independent Gaussian channels" in aiad2026.fig5.claims(given)[0].measured


def neurons(wider=1.5, dead=(20, 24)):
    """Log-sizes of 40 neurons, before and after; the dead ones have that of ε."""
    draws = np.outer([1.0, 1.001], np.random.default_rng(3).normal(size=40))
    logs = np.zeros((2, 2, 40))
    for seed in range(2):
        for time in range(2):
            logs[seed, time] = (wider if time else 1.0) * draws[seed]
            logs[seed, time, : dead[time]] = np.log(1e-10)
    recipe = {"data": {"n": 100, "frequency": 8.0}, "flow": sgd(10)}
    variables = {
        "train-loss": [0.5, 1e-4],
        "log-ratios.logs": by_seed(logs),
        "log-ratios.zeros": np.asarray(dead) / 40,
    }
    return {logratios.RUN: stored(variables, [0, 200], recipe)}


def test_figure_6_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig6, neurons(dead=(4, 6), wider=2.0)) == [True] * 3
    assert (
        "10 (10 to 10) % of the neurons are dead at the start, 15"
        in aiad2026.fig6.claims(neurons(dead=(4, 6)))[0].measured
    )
    assert len(aiad2026.fig6.draw(neurons()).axes) == 3
    assert logratios.pairs(np.array([3.0, 1.0])).tolist() == [2.0, -2.0]
    assert logratios.active(np.log([1e-10, 1.0])).tolist() == [0.0]


def test_figure_6_fails_where_it_is_not():
    assert broken(aiad2026.fig6, neurons(dead=(6, 4), wider=1.5)) == {1}  # the tail is of dead neurons
    assert broken(aiad2026.fig6, neurons(dead=(4, 6), wider=0.2)) == {0, 2}


# ---------------------------------------------------------------- figure 7


def predicted(frozen=1e-5, free=1e-6, full=1e-4, low_first=True, pair=(36.0, 12.0), early=5e-5):
    found = {}
    steps = np.array([0, 100, 300, 1000])
    wanted = prediction._amplitudes(prediction.target(pair, LINE))
    order = np.arange(wanted.size) if low_first else np.arange(wanted.size)[::-1]
    share = np.clip(np.array([0.0, 0.4, 0.8, 2.0])[:, None] * wanted.size / (1 + order)[None] / 2, 0, 1)
    for name, end in ((prediction.FROZEN, frozen), (prediction.TRAINED, free), (prediction.FULL, full)):
        network = full_rank(5, 32) if name == prediction.FULL else low_rank(5, 32, 5, name == prediction.FROZEN)
        last = 2 if name == prediction.FULL else 4  # dense layers end after the epochs of Table 2
        recipe = {
            "data": {"n": 100, "f1": pair[0], "f2": pair[1]},
            "flow": adam(100, 10),
            "network": network,
        }
        losses = np.array([1.0, end]) if last == 2 else np.array([1.0, early, early / 2, end])
        variables = {
            "train-loss": losses,
            "test-loss": losses,
            "channel-spectrum.block-5": (share * wanted)[:last, :, None],
            "channels.block-5": prediction.target(pair, LINE)[:, None],
        }
        found[f"{name} ({pair[0]:g}, {pair[1]:g})"] = stored(variables, steps[:last], recipe, late=("channels",))
    return found


def test_figure_7_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig7, predicted()) == [True] * 7
    assert "after 10 epochs, as in Table 2" in aiad2026.fig7.claims(predicted())[2].text
    easier = predicted(9e-4, 9e-4, 1e-2, pair=(6.0, 2.0))
    assert verdicts(aiad2026.fig7, easier)[:6] == [True] * 6
    assert all(claim.weaker for claim in aiad2026.fig7.claims(easier)[:4])
    assert len(aiad2026.fig7.draw(predicted()).axes) == 3


def test_figure_7_fails_where_it_is_not():
    assert broken(aiad2026.fig7, predicted(frozen=2e-4)) == {0}
    assert broken(aiad2026.fig7, predicted(frozen=1e-9)) == {0}
    assert broken(aiad2026.fig7, predicted(free=2e-4)) == {1}
    assert broken(aiad2026.fig7, predicted(early=3e-2, full=1e-1)) == {2, 3}  # too few epochs
    assert broken(aiad2026.fig7, predicted(full=5e-6)) == {4, 5}
    assert broken(aiad2026.fig7, predicted(low_first=False)) == {6}


# ---------------------------------------------------------------- figures 8 and 9


def mirrored(frozen=0.05, free=0.5, sharp=8.0, loss=1e-4, spike=0.01, stuck=(), printed=8):
    """Channels cos + odd x of both kinds, four seeds (or ``printed``), and the neurons of figure 8(a)."""

    def run(odd, sharpness, trains, blocks=5, name="", seeds=4):
        recipe = {
            "data": {"n": 100, "f1": 18.0, "f2": 6.0},
            "flow": adam(100, 10),
            "network": low_rank(blocks, 16, 3, trains),
        }
        ends = np.where(np.isin(np.arange(seeds), stuck if name == symmetry.TRAINED else ()), 0.79, loss)
        variables = {"train-loss": by_seed(np.stack([np.full(seeds, 0.8), ends], axis=1))}
        for layer in symmetry._MAPS[blocks][2:]:
            neurons = 2 + np.cos(np.outer(LINE, np.arange(16))) + spike * LINE[:, None]
            variables[f"layer-{layer}"] = neurons
        for block in range(1, blocks + 1):
            # A large constant, which the eye does not see in a curve, makes every channel look even.
            varies = 9 + np.cos(np.outer(LINE, [1, 2, 3])) + (5.0 if block == 1 else odd) * LINE[:, None]
            variables[f"channels.block-{block}"] = varies
            sizes = sharpness * np.linspace(0.99, 1.01, seeds)
            variables[f"spikes.sharpness.block-{block}"] = by_seed(np.tile(sizes[:, None, None], (1, 2, 3)))
        late = ("channels", *(name for name in variables if name.startswith("layer")))
        made = stored(variables, [0, 100], recipe, seeds=seeds, late=late)
        made.attrs["steps"] = [100] * seeds
        return made

    return {
        symmetry.FROZEN: run(frozen, sharp, True),
        symmetry.TRAINED: run(free, 4.0, False, name=symmetry.TRAINED),
        symmetry.SPIKE: run(frozen, sharp, True),
        symmetry.PRINTED[True]: run(frozen, sharp, True, blocks=9, seeds=printed),
        symmetry.PRINTED[False]: run(free, 4.0, False, blocks=9, seeds=printed),
    }


def test_figures_8_and_9_hold_where_the_paper_is_right():
    assert verdicts(aiad2026.fig8, mirrored()) == [True] * 5
    assert verdicts(aiad2026.fig9, mirrored()) == [True] * 4
    quick = {name: run for name, run in mirrored().items() if name not in symmetry.PRINTED.values()}
    assert verdicts(aiad2026.fig8, quick) == [True] * 4
    assert verdicts(aiad2026.fig9, quick) == [True] * 3
    for panel in (aiad2026.fig8, aiad2026.fig9):
        assert len(panel.draw(mirrored()).axes) == len(panel.draw(quick).axes) == 4


def test_figures_8_and_9_fail_where_it_is_not():
    assert broken(aiad2026.fig8, mirrored(free=0.02)) == {0, 1, 2}
    assert broken(aiad2026.fig8, mirrored(free=0.08)) == {0, 2}  # more than with frozen features, but symmetric too
    assert broken(aiad2026.fig8, mirrored(spike=2.0)) == {3}
    assert broken(aiad2026.fig8, mirrored(loss=0.1)) == {4}
    assert broken(aiad2026.fig9, mirrored(frozen=0.6)) == {0, 1, 2}
    assert broken(aiad2026.fig9, mirrored(sharp=3.0)) == {3}
    assert outcomes(aiad2026.fig9, mirrored(loss=0.79)) == [U] * 4  # constants are even


def test_few_networks_do_not_show_that_a_kind_is_symmetric():
    assert outcomes(aiad2026.fig8, mirrored(printed=1)) == [H, H, U, H, H]
    assert outcomes(aiad2026.fig9, mirrored(printed=1)) == [H, H, U, H]
    few = aiad2026.fig9.claims(mirrored(printed=1))[2]
    assert few.judgement.counted == "the only seed agrees"
    assert outcomes(aiad2026.fig8, mirrored(stuck=(0, 1)))[0] is U  # 2 seeds of 2: by chance in one case of six


def test_seeds_that_have_learnt_nothing_do_not_count():
    found = aiad2026.fig8.claims(mirrored(stuck=(1,)))
    assert [claim.outcome for claim in found] == [U, H, H, H, U]
    assert "no frozen features: 3 of 4 seeds have learnt, 0 of these are symmetric" in found[0].measured
    assert outcomes(aiad2026.fig8, mirrored(stuck=(0, 1, 2)))[:2] == [U, U]


def test_what_varies_is_what_is_left_without_the_mean():
    run = mirrored(frozen=0.5)[symmetry.FROZEN]
    even = np.cos(np.outer(LINE, [1, 2, 3]))
    odd = np.trapezoid((0.5 * LINE) ** 2, LINE)
    varies = np.trapezoid((even - even.mean(axis=0)) ** 2, LINE, axis=0)
    assert symmetry.defect_of(run) == pytest.approx(np.full(4, np.median(odd / (odd + varies))))
    assert symmetry.shape_defects(run).shape == (4, 4)


# ---------------------------------------------------------------- figure 10


def weighed(end=None, growth=2.0):
    draws = rng.normal(size=(3, 400, 8))
    recipe = {"data": {"n": 100, "frequency": 8.0}, "flow": sgd(10), "network": low_rank(3, 400, 8)}
    late = growth * draws if end is None else end
    variables = {f"trained-neurons.block-{b}": np.stack([draws[0], draws[1], late[2]]) for b in (1, 2, 3)}
    return {"r = 8": stored({"train-loss": [1.0, 0.5, 0.1], **variables}, [0, 50, 500], recipe)}


def test_figure_10_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.fig10, weighed()) == [True] * 3
    assert len(aiad2026.fig10.draw(weighed()).axes) == 6


def test_figure_10_fails_where_it_is_not():
    assert broken(aiad2026.fig10, weighed(end=2 * rng.exponential(size=(3, 400, 8)))) == {0, 1}
    shifted = weighed(end=2 * (2 + rng.normal(size=(3, 400, 8))))
    assert broken(aiad2026.fig10, shifted) == {0, 1}  # symmetric, not about 0
    assert broken(aiad2026.fig10, weighed(growth=1.0)) == {2}
    assert density.kurtosis(rng.uniform(size=100_000)) == pytest.approx(1.8, abs=0.03)


def test_skewness_and_odd_parts():
    assert density.skewness(rng.normal(size=100_000)) == pytest.approx(0, abs=0.05)
    assert density.skewness(rng.exponential(size=100_000)) == pytest.approx(2, abs=0.2)
    assert density.odd_part(rng.normal(size=10_000)) < 0.01
    assert density.odd_part(np.abs(rng.normal(size=10_000))) == pytest.approx(0.5, abs=0.02)


# ---------------------------------------------------------------- table 1


def tabled(kind="mnist", n=60_000, **changes):
    found = {}
    for name, network in mnist.NETWORKS.items():
        recipe = {
            "data": {"kind": kind, "n": n},
            "flow": {"rate": 1e-3, "batch": 128},
            "network": network,
        }
        error = 1 - changes.get(name, authors.TABLE_1[name].accuracy) / 100
        found[name] = stored({"test-error": [0.9, 0.1, error]}, [0, 10, 20], recipe)
    return found


def test_table_1_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.table1, tabled()) == [True] * 4
    part = tabled(n=6000)
    assert verdicts(aiad2026.table1, part) == [True] * 4
    assert "order" in aiad2026.table1.claims(part)[1].text
    assert "order" in aiad2026.table1.claims(tabled(kind="digits", n=60_000))[1].text
    assert len(aiad2026.table1.draw(tabled()).axes) == 2


def test_table_1_fails_where_it_is_not():
    assert broken(aiad2026.table1, tabled(**{"RF-LR r = 5": 94.3})) == {1}
    assert broken(aiad2026.table1, tabled(n=6000, **{"RF-LR r = 5": 96.5})) == {1, 2}
    assert broken(aiad2026.table1, tabled(n=6000, **{"RF-LR r = 15": 97.2})) == {1}
    assert broken(aiad2026.table1, tabled(n=6000, **{"RF-LR r = 15": 95.0})) == {1, 2, 3}
    assert broken(aiad2026.table1, tabled(**{"LR only r = 32": 97.82})) == {3}
    assert broken(aiad2026.table1, tabled(**{"RF-LR r = 25": 96.45})) == {1, 2}
    wrong = tabled()
    wrong["MLP"] = wrong["LR only r = 32"]
    assert outcomes(aiad2026.table1, wrong)[0] is F


# ---------------------------------------------------------------- width


def coupled(power=-0.5, step=1.0, batch=0.5, start=0.0, logs=1.0):
    def run(apart, neurons, width=64, rate=0.5, largest=1.0):
        flow = {"kind": "descent", "rate": rate} if rate else {"kind": "runge-kutta"}
        recipe = {"data": {}, "network": {"widths": [width, width]}, "flow": flow}
        rows = np.zeros((2, 2, neurons, 2))  # of two seeds, with slightly different exponents of n
        rows[:, 1, :, 1] = apart * np.array([[width**0.001], [width**-0.001]])
        rows[:, 1, 3, 1] *= largest
        rows[:, 0, 0, 0] = start * (apart > 0)
        return stored({"trained-neurons.block-1": rows.view(Seeds), "train-loss": [1.0, 0.5]}, None, recipe)

    full = 4096
    found = {f"{against.WIDTH}{full}": run(0.0, 20_000, full)}
    for n in (16, 64, 256):  # the largest of all neurons grows as the theorem's logarithm
        largest = against.logarithm(n, 1.0) ** logs
        found[f"{against.WIDTH}{n}"] = run((1 / n - 1 / full) ** -power, 20_000, n, largest=largest)
    for name, exponent in ((against.STEP, step), (against.BATCH, batch)):
        found[f"{name}{against.FLOW}"] = run(0.0, 16, rate=None)
        found |= {f"{name}{h:g}": run(h**exponent, 16, rate=h) for h in (0.25, 0.125, 0.0625)}
    return found


def test_the_width_study_holds_where_the_theorem_is_right():
    assert verdicts(aiad2026.distance, coupled()) == [True] * 4
    widths, apart, exponent, full = against.by_width(coupled())
    assert widths.tolist() == [16, 64, 256]
    assert apart.shape == (3, 2)
    assert exponent == pytest.approx(-0.5 + 0.07, abs=0.02)
    assert against.by_width(coupled(logs=0.0))[2] == pytest.approx(-0.5, abs=1e-4)  # two seeds, 0.001 to either side
    assert full == 4096
    assert len(aiad2026.distance.draw(coupled()).axes) == 2


def test_the_width_study_fails_where_it_is_not():
    assert broken(aiad2026.distance, coupled(power=-0.3)) == {0, 1, 2}
    assert broken(aiad2026.distance, coupled(logs=2.5)) == {0, 2}
    assert broken(aiad2026.distance, coupled(logs=0.0)) == {0}  # no logarithm in it
    assert broken(aiad2026.distance, coupled(step=0.5)) == {3}
    assert broken(aiad2026.distance, coupled(batch=1.0)) == {3}
    assert broken(aiad2026.distance, coupled(power=-0.53)) == {0, 1}  # seeds agree to 0.002
    with pytest.raises(UserError, match="do not share their first neurons"):
        aiad2026.distance.claims(coupled(start=1.0))


def test_confidence_intervals_are_those_of_student():
    values = np.array([-0.52, -0.47, -0.55, -0.49])
    low, high = scipy.stats.t.interval(0.95, 3, values.mean(), scipy.stats.sem(values))
    middle, half = against.confidence(values)
    assert (middle - half, middle + half) == pytest.approx((low, high))
    x, noise = np.array([16.0, 64.0, 256.0]), np.array([0.02, -0.02, 0.3, -0.3])
    narrow, wide, other = (x[:, None] ** (-0.5 + shift + noise[part]) for shift, part in
                           ((0.0, [0, 1] * 8), (0.0, [2, 3]), (0.1, [0, 1] * 8)))  # fmt: skip
    found = [against._contains(x, one, -0.5).outcome for one in (narrow, wide, other)]
    assert found == [Outcome.HOLDS, Outcome.UNDECIDED, Outcome.FAILS]


# ---------------------------------------------------------------- collapse


def collapsing(full=-0.5, low=0.0, channels=0.0, low_loss=1e-3):
    """Neurons and channels that differ by a power of the width."""
    found = {}
    waves = np.cos(np.outer(np.linspace(-1, 1, 101), np.arange(1, 9)))
    for name, power in ((collapse.FULL, full), (collapse.LOW, low)):
        for width in (16, 64, 256):
            recipe = {"data": {}, "network": {"widths": [width] * 3}, "flow": {"rate": 0.05}}
            neurons = 1 + 0.5 * (width / 16) ** power * waves  # positive, where ReLU is linear
            ends = [1e-2, 1.1e-2] if name == collapse.FULL else [low_loss, 1.1 * low_loss]
            variables = {
                "train-loss": by_seed([[1.0, one] for one in ends]),
                "preactivations": np.stack([neurons] * 2),
                "channels.block-2": np.stack([1 + 0.5 * (width / 16) ** channels * waves[:, :3]] * 2),
            }
            found[f"{name}, n = {width}"] = stored(variables, [0, 10], recipe)
    return found


def test_the_collapse_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.collapse_of_full_rank, collapsing()) == [True] * 5
    found = aiad2026.collapse_of_full_rank.claims(collapsing())
    assert all(claim.hindsight for claim in found)
    assert len(aiad2026.collapse_of_full_rank.draw(collapsing()).axes) == 3


def test_the_collapse_fails_where_it_is_not():
    panel = aiad2026.collapse_of_full_rank
    assert broken(panel, collapsing(full=0.1)) == {0, 1}
    assert broken(panel, collapsing(full=-0.3)) == {0}  # slower
    assert broken(panel, collapsing(low=-0.5)) == {2}
    assert broken(panel, collapsing(channels=-0.5)) == {3}
    assert broken(panel, collapsing(low_loss=0.1)) == {4}


def test_full_rank_between_layers_moves_in_mean_field_time():
    """Rates are n² for weights between hidden layers, n for the last: the authors of the collapse have these."""
    (network,) = instantiate(aiad2026.collapse_of_full_rank.recipes("quick", 1)["full rank, n = 16"]).networks
    x = jnp.linspace(-1, 1, 5)[:, None]
    first, second, last = network.blocks
    h = jnp.maximum(x @ first.w.T + first.b[None], 0)
    for block in (first, second):
        h = jnp.maximum(h @ block.a / 16, 0)
    np.testing.assert_allclose(network(x), (h @ last.a / 16)[:, 0], rtol=1e-5)
    flow = collapse.flow(16, True)
    assert flow["schedule"]["schedules"][0]["factors"] == [16.0]


# ---------------------------------------------------------------- frequency benchmark


def benchmarked(frozen=1e-3, free=2e-3, pair=(36.0, 12.0), factor=1.0):
    found = {}
    for kind, end in ((True, frozen), (False, free)):
        recipe = {
            "data": {"n": 100, "f1": pair[0], "f2": pair[1]},
            "flow": adam(100, 10),
            "network": low_rank(9, 16, 20, kind),
        }
        losses = by_seed([[0.8, 0.1, end], [0.8, 0.1, 1.1 * factor * end]])
        found[f"{pair} {kind}"] = stored({"train-loss": losses, "test-loss": losses}, [0, 10, 100], recipe)
    return found


def test_the_benchmark_holds_where_the_paper_is_right():
    assert verdicts(aiad2026.frequencies, benchmarked()) == [True] * 2
    assert verdicts(aiad2026.frequencies, benchmarked(pair=(3.0, 1.0))) == [True]  # nothing was published there
    assert len(aiad2026.frequencies.draw(benchmarked()).axes) == 2
    assert all(len(ranks) == 4 for ranks in benchmark.PUBLISHED.values())
    assert [benchmark.published(((36.0, 12.0), 100, frozen)) for frozen in (True, False)] == [1.41e-3, 1.75e-2]


def test_the_benchmark_fails_where_it_is_not():
    assert broken(aiad2026.frequencies, benchmarked(free=5e-4)) == {0}
    assert broken(aiad2026.frequencies, benchmarked(frozen=2e-2, free=3e-2)) == {1}


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
    for panel in (aiad2026.fig5, aiad2026.fig6):
        found = run_small(panel, Lab(tmp_path), lambda recipe: smaller(recipe, 16, 3, 20, 6, [0, 4, 8, 12]))
        assert epochs_of(judged(panel, found)[logratios.RUN]).tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_figure_7_runs_from_end_to_end(tmp_path):
    def tiny(recipe):
        return smaller(recipe, 16, 3, 20, 5, [0, 4] if "full" in recipe.name else [0, 4, 8, 40], n_test=10)

    assert len(judged(aiad2026.fig7, run_small(aiad2026.fig7, Lab(tmp_path), tiny))) == 3


def test_the_layers_of_figures_8_and_9_are_the_linear_maps_of_the_blocks():
    recipe = aiad2026.fig8.recipes("paper", 1)[symmetry.PRINTED[False]]
    first, *_, last = instantiate(recipe).networks[0].blocks
    assert recipe.network["widths"] == [777] * 9
    assert recipe.flow["stop_loss"] == 5e-4
    assert recipe.flow["stop_after"] == 300
    assert [symmetry.block_of(layer) for layer in (0, 1, 5, 7, 8, 16, 17)] == [1, 1, 3, 4, 5, 9, 9]
    # The start of the authors' code: N(0, 1/fan-in), and N(0, 1) for the one input; 20 and 1 entries a neuron.
    assert np.std(first.w) == pytest.approx(1, rel=0.1)
    assert np.std(last.w) == pytest.approx(20**-0.5, rel=0.03)
    assert np.std(last.b) == pytest.approx(20**-0.5, rel=0.1)
    assert np.std(first.a) == pytest.approx(777**-0.5, rel=0.03)


@pytest.mark.slow
def test_figures_8_and_9_run_from_end_to_end(tmp_path):
    def tiny(recipe):
        return smaller(recipe, 16, 3, 20, 5, [0, 4, 8], n_test=10)

    found = run_small(aiad2026.fig8, Lab(tmp_path), tiny)
    judged(aiad2026.fig8, found)
    judged(aiad2026.fig9, found)
    assert list(aiad2026.fig9.recipes("paper")) == [symmetry.FROZEN, symmetry.TRAINED, symmetry.PRINTED[True]]


@pytest.mark.slow
def test_figure_10_runs_from_end_to_end(tmp_path):
    def tiny(recipe):
        return smaller(recipe, 16, 8, 10, 5, [0, 10, 100])

    found = run_small(aiad2026.fig10, Lab(tmp_path), tiny)
    assert list(judged(aiad2026.fig10, found)) == ["r = 15", "r = 50"]


@pytest.mark.slow
def test_the_collapse_runs_from_end_to_end(tmp_path):
    names = [f"{kind}, n = {width}" for kind in (collapse.FULL, collapse.LOW) for width in (16, 64)]
    panel = aiad2026.collapse_of_full_rank
    found = run_small(panel, Lab(tmp_path), lambda recipe: with_fields(recipe, times=[0.0, 0.05, 0.1]), names)
    judged(panel, found)


@pytest.mark.slow
def test_the_benchmark_runs_from_end_to_end(tmp_path):
    def tiny(recipe):
        return smaller(recipe, 16, recipe.network["ranks"], 20, 5, [0, 4, 8], n_test=10)

    judged(aiad2026.frequencies, run_small(aiad2026.frequencies, Lab(tmp_path), tiny))


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
    steps = [1 / 4, 1 / 8]
    tiny = Sizes(widths=[8, 16], reference=64, samples=6, steps=steps, many=40, small=steps, seeds=2)
    monkeypatch.setattr(against, "_SCALES", {"quick": tiny})
    monkeypatch.setattr(against, "_NARROW", 8)
    found = judged(aiad2026.distance, Lab(tmp_path).run_all(aiad2026.distance.recipes("quick")))
    part, whole = (found[f"{against.WIDTH}{n}"]["trained-neurons.block-2"].values for n in (8, 64))
    np.testing.assert_array_equal(part[:, 0], whole[:, 0, :8])  # a narrow network is the beginning of a wide one
    assert np.abs(part[:, -1] - whole[:, -1, :8]).max() > 0
