"""Phase diagrams: refinement near the boundary, what is measured, and maps of networks of one's own."""

import json
import math

import numpy as np
import pytest
import xarray as xr

from unlazy._errors import UserError
from unlazy.cli import main
from unlazy.figures import Axis, phase_figure
from unlazy.figures.style import evenly
from unlazy.lab import Lab, Measure, Phase, phase_diagram
from unlazy.lab.measures import Found
from unlazy.lab.phase import PhaseDiagram
from unlazy.lab.refinement import refine


def search(shape, coarse, region):
    """Refine a known map; return the cells, the points that were asked for, and the map that follows from them."""
    known = {}

    def evaluate(places):
        assert not known.keys() & set(places), "a point was asked for twice"
        known.update({place: region(*place) for place in places})

    cells = refine(shape, coarse, evaluate, known.get)
    whole = np.empty(shape, object)
    for a, b, c, d in cells:
        whole[a : b + 1, c : d + 1] = known[a, c]
    for place, one in known.items():
        whole[place] = one
    return cells, known, whole


@pytest.mark.parametrize(
    "region",
    [
        lambda i, j: i > 11,
        lambda i, j: i + j > 29,
        lambda i, j: (i - 16) ** 2 + (j - 16) ** 2 < 100,
        lambda i, j: "abc"[(i > 9) + (i + j > 40)],
    ],
)
def test_the_boundary_is_found_with_few_points(region):
    shape = (33, 29)
    _, known, whole = search(shape, 5, region)
    exact = np.array([[region(i, j) for j in range(shape[1])] for i in range(shape[0])], object)
    assert (whole == exact).all()
    assert len(known) < 0.4 * exact.size


def test_a_map_of_one_region_needs_the_coarse_grid_only():
    _, known, _ = search((17, 17), 5, lambda i, j: "lazy")
    assert len(known) == 25


def test_a_boundary_that_enters_a_cell_through_an_edge_is_followed():
    # A thin tongue between two coarse columns: seen only from the middle of an edge that the cell below has divided.
    _, known, whole = search((9, 9), 3, lambda i, j: j == 0 or (i == 2 and j < 7))
    assert whole[2, 6]
    assert len(known) < 81


def test_any_grid_can_be_divided():
    assert evenly(2, 5).tolist() == [0, 1]
    assert evenly(10, 4).tolist() == [0, 3, 6, 9]
    for shape in ((2, 2), (2, 7), (5, 3), (6, 10)):
        cells, _, _ = search(shape, 3, lambda i, j: (i + j) % 2)
        assert all(b - a == 1 and d - c == 1 for a, b, c, d in cells)  # everything is divided


# ---------------------------------------------------------------- what is measured


def result(values, status=("finished", "finished"), name="q"):
    run = xr.Dataset({name: (("seed", "time"), np.asarray(values, float))}, coords={"time": [0.0, 1.0, 2.0]})
    return run.assign_attrs(status=list(status), finished=int(set(status) == {"finished"}))


def test_values_are_compared_with_the_threshold():
    run = result([[1.0, 5.0, 2.0], [2.0, 1.0, 8.0]])
    for value, expected in (("last", 5.0), ("ratio", 3.0), ("largest", 6.5), ("smallest", 1.0)):
        found = Measure("q", value, 4.0, ("low", "high")).at_end(None, None, run)
        assert found == Found(expected, "high" if expected >= 4 else "low")


def test_runs_that_diverged_have_a_region_of_their_own_or_a_given_one():
    run = result([[1.0, 5.0, np.nan], [2.0, 1.0, 8.0]], ("diverged", "finished"))
    assert Measure("q", "last", 4.0).at_end(None, None, run).region == "diverged"
    assert Measure("q", "last", 4.0, diverged="unstable").at_end(None, None, run).region == "unstable"
    assert Measure("diverged", "last", 0.5).at_end(None, None, run) == Found(0.5, "above")
    over = Measure("q", "last", 4.0).over_time(run, [1.0, 2.0])
    assert over == [Found(3.0, "below"), over[1]]
    assert over[1].region == "diverged"


# ---------------------------------------------------------------- maps of runs

NETWORK = """
import jax
from unlazy.networks import Network

class Mine(Network):
    w: jax.Array

    def __init__(self, inputs: int, size: float = 1.0, *, key):
        self.w = size * jax.random.normal(key, (inputs,))

    def __call__(self, x):
        return x @ self.w

def stable(run):
    return "stable" if float(run["train-loss"][0, -1]) < float(run["train-loss"][0, 0]) else "unstable"
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_phase_net.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def table(**phase):
    return {
        "name": "mine",
        "probes": ["train-loss"],
        "data": {"kind": "random-labels", "n": 6, "d": 3},
        "network": {"kind": "my_phase_net:Mine"},
        "flow": {"kind": "descent", "loss": {"kind": "squared", "reduction": "mean"}},
        "times": [0.0, 64.0],
        "sweep": {
            "flow.rate": {"from": 0.5, "to": 32.0, "count": 17, "spacing": "log"},
            "network.size": {"from": 1.0, "to": 10.0, "count": 5},
            "derived": {"times.1": "8 * flow.rate"},
        },
        "phase": {"measure": "train-loss", "value": "ratio", "threshold": 1.0, "names": ["stable", "unstable"]} | phase,
    }


def test_a_map_of_a_network_of_ones_own(own):
    phase = Phase.parse(table(diverged="unstable", theory="rate = 6", coarse=3))
    lab = Lab(own / "runs")
    found = phase_diagram(phase, lab)
    assert found.names == ["stable", "unstable"]
    assert found.full == 85
    assert found.runs < 85 / 2
    # Descent of a quadratic is stable for rates below 2 / lambda, whatever the start: the boundary is a vertical line.
    assert (found.regions == found.regions[:, :1]).all()
    assert not found.regions[0].any()
    assert found.regions[-1].all()
    whole = lab.sweep(phase.sweep)  # the full grid agrees with the map
    for place, (label, recipe) in phase.recipes().items():
        assert phase.measure.at_end(lab, recipe, whole[label]).region == found.names[found.regions[place]]
    path = found.save(own / "map.json")
    assert json.loads(path.read_text())["runs"] == found.runs
    assert "measured boundary" in path.with_suffix(".svg").read_text()

    by_words = Phase.parse(
        table(measure="my_phase_net:stable", coarse=3) | {"phase": {"measure": "my_phase_net:stable"}}
    )
    again = phase_diagram(by_words, lab)
    assert sorted(again.names) == ["stable", "unstable"]
    named = np.array(again.names)[again.regions] == "unstable"
    assert (named == (found.regions == 1)).all()


def test_time_as_an_axis_takes_one_run_for_each_value_of_the_other(own):
    made = table(y="time", theory="time = 2", threshold=0.5, coarse=3)
    made["sweep"] = {"network.size": [1.0, 2.0, 4.0]}
    made |= {"times": [0.0, 0.5, 1.0, 2.0, 4.0], "flow": {"kind": "descent", "rate": 0.5}}
    found = phase_diagram(Phase.parse(made), Lab(own / "runs"))
    assert (found.runs, found.full) == (3, 3)
    assert found.shape == (3, 4)
    assert found.computed.all()
    assert (np.diff(found.values, axis=1) < 0).all()  # the loss falls


@pytest.mark.parametrize(
    ("phase", "sentence"),
    [
        ({"mesure": "x"}, "there is no field 'mesure'. Did you mean 'measure'"),
        ({"measure": 3}, "phase.measure: expected a text"),
        ({"measure": "train-los"}, "no probe of the recipe is called 'train-los'. Did you mean 'train-loss'"),
        ({"measure": "my_phase_net:Nothing"}, "There is no 'Nothing' in 'my_phase_net'"),
        ({"value": "first"}, "phase.value: there is no 'first'"),
        ({"threshold": "high"}, "phase.threshold: expected a number"),
        ({"measure": "diagnosis"}, "a diagnosis has no threshold"),
        ({"names": ["a"]}, "phase.names: expected a list of two names"),
        ({"x": "network.width"}, "the sweep has no field 'network.width'"),
        ({"x": "time"}, "the sweep also has the field 'network.size'"),
        ({"theory": "rate"}, "write an equation"),
        ({"theory": "raet = 1"}, "'raet' is not an axis of the map. Did you mean 'rate'"),
        ({"coarse": 1}, "phase.coarse: expected a whole number of at least 2"),
    ],
)
def test_a_wrong_question_is_one_sentence(own, phase, sentence):
    with pytest.raises(UserError) as error:
        Phase.parse(table(**phase), where="a.toml")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_section_is_said(own):
    made = table()
    del made["phase"]
    with pytest.raises(UserError, match=r"the section \[phase\] is missing"):
        Phase.parse(made)


# ---------------------------------------------------------------- drawing


def test_axes_are_logarithmic_where_values_are():
    assert Axis("m", [16, 64, 256]).log
    assert not Axis("g", [0.5, 1.0, 1.5]).log
    assert not Axis("kind", ["ntk", "mean-field"]).numeric
    np.testing.assert_allclose(Axis("m", [1, 4, 16]).edges(), [0.5, 2, 8, 32])


def test_values_between_corners_are_interpolated():
    made = {
        "data": "random-labels",
        "network": "two-layer",
        "times": [0.0, 1.0],
        "probes": ["train-loss"],
        "sweep": {"seed": [0, 1, 2], "data.n": [3, 4]},
        "phase": {"measure": "train-loss", "threshold": 20.0},
    }
    found = {(0, 0): 1.0, (2, 0): 4.0, (0, 1): 1.0, (2, 1): 4.0}
    cells = [(0, 2, 0, 1)]
    diagram = PhaseDiagram(Phase.parse(made), {p: Found(v, "below") for p, v in found.items()}, cells, 4, 6)
    np.testing.assert_allclose(diagram.values[1], math.sqrt(4.0))
    assert diagram.computed.sum() == 4
    assert "no boundary was found" in diagram.summary()


def test_words_and_missing_values_can_be_drawn():
    values = np.array([[1.0, 10.0, 1e3], [2.0, np.nan, np.nan]])
    regions = np.array([[0, 0, 1], [0, 2, 2]])
    x, y = Axis("scaling", ["ntk", "mean-field"]), Axis("m", [1, 10, 100])
    figure = phase_figure("map", x, y, regions, ["low", "high", "lost"], values=values, threshold=100.0)
    assert [one.get_text() for one in figure.axes[0].texts] == ["low", "high", "lost"]
    assert phase_figure("map", x, y, regions, ["a", "b", "c"]).axes


def test_the_command(own, capsys):
    text = """
name = "mine"
probes = ["train-loss"]
times = [0.0, 8.0]
data = { kind = "random-labels", n = 6, d = 3 }
network = "my_phase_net:Mine"
flow = "descent"
[sweep]
flow.rate = { from = 0.5, to = 32.0, count = 9, spacing = "log" }
network.size = [1.0, 2.0]
[sweep.derived]
times.1 = "8 * flow.rate"
[phase]
measure = "train-loss"
value = "ratio"
threshold = 1.0
diverged = "above"
coarse = 3
"""
    (own / "a.toml").write_text(text)
    for words, status in (
        (["phase", "a.toml", "--figure", "map.png"], 0),
        (["phase", "a.toml", "--dry-run"], 0),
        (["phase", "a.toml", "--set", "flow.rate=1.0"], 2),
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == status
    out, err = capsys.readouterr()
    assert "runs of the full grid were needed" in out
    assert "stored" in out
    assert "has only one value" in err
    assert (own / "map.png").stat().st_size > 1000
    assert len(list((own / "runs" / "diagnoses").glob("mine-*.svg"))) == 1
