"""Figures of one's own runs: every probe is drawn, runs are grouped by what differs, and scales suit the values."""

import io
import json

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from unlazy import figures
from unlazy._errors import UserError
from unlazy.figures import compare, curves, overlay, plots, settings
from unlazy.figures.drawing import form

TIMES = np.array([0.0, 1.0, 2.0, 4.0])


def run(seed=0, name="a run", times=TIMES, variables=None, seeds=2, **recipe):
    """A stored run that was never made."""
    variables = {"train-loss": np.exp(-np.asarray(times))} if variables is None else variables
    made = {}
    for key, values in variables.items():
        values = np.broadcast_to(values, (seeds, *np.shape(values))) + 0.0
        first = ("seed", "time") if values.ndim > 1 and values.shape[1] == len(times) else ("seed",)
        made[key] = ((*first, *(f"{key}_{axis}" for axis in range(values.ndim - len(first)))), values)
    whole = {"name": name, "seed": seed, "seeds": seeds, "data": {"kind": "xor", "n": 5}, "times": list(times)} | recipe
    attrs = {"name": name, "recipe": json.dumps(whole)}
    return xr.Dataset(made, {"seed": seed + np.arange(seeds), "time": np.asarray(times)}, attrs)


def network(**options):
    return {"kind": "two-layer", **options}


# ---------------------------------------------------------------- what differs


def test_settings_are_flat_and_kinds_name_their_section():
    one = run(network=network(scaling={"kind": "asymmetrical", "gamma": 0.5}), flow="descent", dtype="float32")
    assert settings(one) == {
        "data": "xor",
        "data.n": 5,
        "network": "two-layer",
        "network.scaling": "asymmetrical",
        "network.scaling.gamma": 0.5,
        "flow": "descent",
        "dtype": "float32",
        "times.end": 4.0,
    }


@pytest.mark.parametrize("recipe", ["", "no JSON", "[1]", None])
def test_a_run_without_a_recipe_has_no_settings(recipe):
    made = run()
    made.attrs = {} if recipe is None else {"recipe": recipe}
    assert settings(made) == {}
    assert curves(made).axes


def test_runs_are_grouped_by_what_differs():
    given = [
        run(network=network(width=width, scaling=scaling), seed=seed, name=f"{width} {scaling} {seed}")
        for width in (64, 8)
        for scaling in ("ntk", "mean-field")
        for seed in (0, 2)
    ]
    found = compare(given)
    assert found.factors == {"network.scaling": ["ntk", "mean-field"], "network.width": ["8", "64"]}, "numbers in order"
    assert [group.label for group in found.groups] == [
        "scaling = ntk, width = 8",
        "scaling = ntk, width = 64",
        "scaling = mean-field, width = 8",
        "scaling = mean-field, width = 64",
    ]
    assert {group.count for group in found.groups} == {4}, "seeds of two runs are joined"
    assert (found.by_colour, found.by_dash, found.by_plot) == ("network.scaling", "network.width", [])
    colours = {group.settings["network.scaling"]: group.colour for group in found.groups}
    assert colours == {"ntk": figures.ORDERED[0], "mean-field": figures.ORDERED[1]}, "as in every other figure"
    assert {(group.settings["network.width"], group.dash) for group in found.groups} == {("8", 0), ("64", 1)}


def test_settings_that_follow_from_others_are_no_factors():
    given = [run(network=network(width=width), flow={"kind": "descent", "rate": width / 10}) for width in (1, 2)]
    found = compare(given)
    assert list(found.factors) == ["network.width"]
    assert set(found.differing) == {"network.width", "flow.rate"}


def test_a_third_factor_sets_plots_apart_and_a_fourth_is_thickness():
    given = [
        run(network=network(width=width, scaling=scaling), data={"kind": "xor", "n": n}, flow={"kind": "x", "rate": r})
        for width in (1, 2, 3, 4)
        for scaling in ("ntk", "mean-field")
        for n in (10, 20, 30)
        for r in (0.1, 0.2)
    ]
    found = compare(given)
    told = (found.by_colour, found.by_dash, found.by_plot, found.by_thickness)
    assert told == ("network.scaling", "flow.rate", ["data.n"], "network.width")
    assert found.plots == ["n = 10", "n = 20", "n = 30"]
    assert len({(one.colour, one.dash, one.plot, one.thickness) for one in found.groups}) == len(given) == 48
    figure = curves(given)
    assert len(figure.axes) == 3
    assert {axes.get_ylim() for axes in figure.axes} == {figure.axes[0].get_ylim()}, "plots of a row are comparable"


def test_what_only_names_tell_apart():
    given = [run(name="one"), run(name="two")]
    assert [group.label for group in compare(given).groups] == ["one", "two"]
    assert len(compare([run(name="one"), run(name="two", seed=7)]).groups) == 1, "other seeds of the same setting"


def test_labels_given_by_the_user():
    found = compare({"A": [run(seeds=1), run(seeds=1)], "B": run()})
    assert [(group.label, group.count) for group in found.groups] == [("A", 2), ("B", 2)]


def test_many_values_get_a_colour_map():
    found = compare([run(network=network(width=width)) for width in range(1, 21)])
    assert len({group.colour for group in found.groups}) == 20
    legend = curves([run(network=network(width=width)) for width in range(1, 21)]).legends[0]
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == 12
    assert (names[0], names[-1]) == ("width = 1", "width = 20")


def test_nothing_to_draw_is_said():
    with pytest.raises(UserError, match="There are no runs to draw: give at least one"):
        curves([])
    with pytest.raises(UserError, match=r"A run was expected \(a Trajectory or a stored run\), not an int"):
        curves(3)
    with pytest.raises(UserError, match=r"These runs have no probe called 'tran-loss'. Did you mean 'train-loss'"):
        curves(run(), "tran-loss")


# ---------------------------------------------------------------- what is drawn

LATER = np.arange(4.0)[:, None]
ALL = {
    "zeta": LATER[:, 0],
    "alpha.b": LATER[:, 0],
    "alpha.a": LATER[:, 0],
    "test-error": LATER[:, 0],
    "own-loss.part": LATER[:, 0],
    "test-loss": LATER[:, 0],
    "train-loss": LATER[:, 0],
    "neurons": np.random.default_rng(0).normal(size=(4, 50)),
    "spectrum": LATER + np.linspace(0, 1, 9),
    "matrix": np.random.default_rng(1).normal(size=(4, 6, 7)),
    "at-end": np.array(3.0),
    "curve-at-end": np.arange(6.0),
    "matrix-at-end": np.ones((5, 5)),
    "cube-at-end": np.random.default_rng(2).normal(size=(3, 5, 6)),
}


def test_every_probe_is_drawn_and_losses_come_first():
    given = run(variables=ALL, probes=["zeta", {"kind": "x", "as": "alpha"}])
    found = compare(given)
    assert found.names[:8] == [
        *("train-loss", "test-loss", "own-loss.part", "test-error", "zeta", "alpha.b", "alpha.a", "at-end")
    ]
    assert set(found.names) == {plot.name for plot in plots(found, found.names)} == set(ALL)
    forms = {name: form(found, name) for name in ALL}
    assert {name: kind for name, kind in forms.items() if kind != "curve"} == {
        "neurons": "quantiles",
        "spectrum": "profile",
        "matrix": "quantiles",
        "at-end": "points",
        "curve-at-end": "index",
        "matrix-at-end": "map",
        "cube-at-end": "histogram",
    }
    drawn = [axes for axes in curves(given).axes if axes.get_label() != "<colorbar>"]
    assert len(drawn) == len(ALL) + 1, "the matrix is shown over time and at the end"
    assert all(axes.get_ylabel() for axes in drawn)
    assert all(axes.lines or axes.images or axes.collections for axes in drawn)


def test_quantiles_are_those_of_entries_and_seeds():
    values = np.random.default_rng(3).normal(size=(4, 50))
    (axes,) = curves(run(variables={"neurons": values}), "neurons").axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.median(values, axis=1))
    lower = axes.collections[1].get_paths()[0].vertices[1:5, 1]
    both = np.concatenate([values, values], axis=1)  # two seeds
    np.testing.assert_allclose(lower, np.quantile(both, 0.25, axis=1))


def test_curves_of_runs_are_the_numbers():
    base = np.array([1.0, 0.5, 0.4, 0.3])
    given = [run(network=network(width=w), variables={"train-loss": w * base}, seeds=1) for w in (2, 1)]
    (axes,) = curves(given, "train-loss").axes
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_array_equal(drawn["width = 2"], 2 * base)
    np.testing.assert_array_equal(drawn["width = 1"], base)


def test_a_probe_stands_for_all_its_parts():
    figure = curves(run(variables=ALL), ["alpha", "test-loss"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["alpha: b", "alpha: a", "test loss"]


def test_attributes_name_the_axis():
    given = run()
    given["train-loss"].attrs |= {"long_name": "cost of $5", "units": "eV"}
    (axes,) = curves(given).axes
    assert axes.get_ylabel() == r"cost of \$5 (eV)"
    assert figures.plain(axes.get_ylabel()) == "cost of $5 (eV)"


def test_an_axes_of_ones_own():
    figure, (axes,) = figures.canvas()
    overlay(axes, [run(network=network(width=w)) for w in (1, 2)], "train-loss")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["width = 1", "width = 2"]
    assert len(figure.axes) == 1


# ---------------------------------------------------------------- scales


@pytest.mark.parametrize("start", [0.0, 3e-17, 2e-8])
def test_a_zero_at_the_start_does_not_stretch_a_logarithmic_axis(start):
    values = np.array([start, 1e-3, 1e-1, 1.0])
    (axes,) = curves(run(variables={"movement": values}, seeds=1)).axes
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] > 1e-4
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.0, *values[1:]])


def test_growth_from_a_small_start_is_shown_from_there():
    values = np.array([1e-7, 1e-6, 1e-3, 1.0])
    (axes,) = curves(run(variables={"size": values}, seeds=1)).axes
    assert axes.get_ylim()[0] < 1e-7


@pytest.mark.parametrize(
    ("values", "scale"),
    [([1.0, 0.5, 0.3, 0.2], "linear"), ([1.0, 0.1, 0.01, 1e-4], "log"), ([1.0, 0.1, 0.0, 0.0], "linear")],
)
def test_values_choose_the_scale(values, scale):
    (axes,) = curves(run(variables={"loss": np.array(values)})).axes
    assert axes.get_yscale() == scale


@pytest.mark.parametrize(
    ("times", "scale"),
    [
        (np.linspace(0, 10, 21), "linear"),
        (np.geomspace(0.01, 100, 21), "log"),
        (np.concatenate([[0.0], np.geomspace(0.01, 100, 20)]), "symlog"),
    ],
)
def test_times_choose_the_scale(times, scale):
    (axes,) = curves(run(times=times, variables={"loss": np.ones_like(times)})).axes
    assert axes.get_xscale() == scale


def test_runs_that_end_early_or_are_not_finite_can_be_drawn():
    broken = run(variables={"train-loss": np.array([1.0, np.nan, np.inf, np.nan])}, name="broken")
    nothing = run(variables={"train-loss": np.full(4, np.nan), "neurons": np.full((4, 9), np.nan)}, name="nothing")
    for given in ([broken, run(name="other")], nothing, run(times=[0.0], variables={"a": np.zeros(1)})):
        curves(given).draw_without_rendering()


# ---------------------------------------------------------------- style


def test_five_axes_in_a_row_fit_a_page():
    """As figure 2 of ren2023 asks for; its axes had no size in the paper style."""
    for style in ("paper", "screen"):
        with figures.styled(style):
            figure, axes = figures.canvas(5, 17.0, 3.4)
            for one in axes:
                one.plot([0, 1], [0, 1], label="a curve with a name")
                one.set(xlabel="t", ylabel="something", title="a title")
                one.legend(fontsize=7)
            figure.draw_without_rendering()
        sizes = [one.get_window_extent() for one in axes]
        assert len(axes) == len(figure.axes) == 5
        assert min(size.width for size in sizes) > figure.dpi  # an inch
        assert min(size.height for size in sizes) > 0.9 * figure.dpi


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("m_1 = 8", "$m_{1}$ = 8"),
        ("|w̄_2|, δ_2", r"|$\bar{w}_{2}$|, $δ_{2}$"),
        ("T_1.1, w_tj²", "$T_{1.1}$, $w_{tj}$²"),
        ("train_loss m_ _1 a_bcde", "train_loss m_ _1 a_bcde"),
        ("$x_1$ and m_1", "$x_1$ and m_1"),
    ],
)
def test_subscripts_are_typeset(text, wanted):
    assert figures.typeset(text) == wanted
    if "$" not in text:
        assert figures.plain(wanted) == text
    figure, (axes,) = figures.canvas()
    axes.set(xlabel=text, ylabel=text, title=text)
    figures.fit(figure)
    assert axes.get_xlabel() == axes.get_ylabel() == axes.get_title() == wanted
    figure.draw_without_rendering()


@pytest.mark.parametrize("name", ["$", "$$", r"$\frac$", "a\x01b\nc", "{}_^", "x" * 1000, "\N{PILE OF POO}"])
def test_any_name_can_stand_in_a_figure(name, recwarn):
    figure = curves([run(name=name), run(name="other")])
    figure.draw_without_rendering()
    text = figure.legends[0].get_texts()[0].get_text()
    assert len(text) <= 80
    assert "\x01" not in text
    assert all("missing from" in str(one.message) for one in recwarn)


def test_notebooks_show_figures_without_pyplot():
    figure = curves(run())
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert mpl.rcParams["lines.linewidth"] != 1.8, "the user's own style is untouched"


@pytest.mark.parametrize(("markers", "image"), [(400, False), (600, True)])
@pytest.mark.parametrize("draw", ["scatter", "plot"])
def test_clouds_of_markers_are_images_inside_the_file(draw, markers, image):
    figure, axes = figures.canvas()
    x = np.linspace(0, 1, markers)
    getattr(axes[0], draw)(x, x**2, **({"marker": "."} if draw == "plot" else {}))
    axes[0].plot(np.linspace(0, 1, 5000), np.zeros(5000))  # a line stays a line
    buffer = io.BytesIO()
    figures.fit(figure).savefig(buffer, format="svg")
    assert (b"<image" in buffer.getvalue()) == image
    assert not axes[0].lines[-1].get_rasterized()
