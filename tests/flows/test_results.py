"""Trajectories as labelled arrays, figures, files and text; progress in notebooks."""

import dataclasses
import sys
import types

import jax
import numpy as np
import pytest

from unlazy import Descent, GradientFlow, Kernel, TrainLoss, TwoLayer, _terminal, data, figures
from unlazy._errors import UserError
from unlazy._files import CHECKSUM, checksum
from unlazy.flows import OnlyAtEnd, RungeKutta, to_xarray
from unlazy.lab import Lab, read_run
from unlazy.papers import panels

TIMES = [0.0, 1.0, 4.0]
PROBES = {"train-loss": TrainLoss(), "kernel": Kernel(), "last": OnlyAtEnd(TrainLoss())}


@pytest.fixture(scope="module")
def problem():
    return data.random_labels(n=5, d=3, key=jax.random.key(0))


@pytest.fixture(scope="module")
def runs(problem):
    networks = [TwoLayer(8, 3, key=jax.random.key(seed)) for seed in range(2)]
    return Descent(rate=0.5).over_seeds(networks, problem, TIMES, PROBES)


def test_one_trajectory_has_times_first(runs):
    found = runs[0].to_xarray()
    assert found["train-loss"].dims == ("time",)
    np.testing.assert_array_equal(found["time"], TIMES)
    np.testing.assert_array_equal(found["train-loss"], runs[0].observed["train-loss"])
    np.testing.assert_array_equal(found["kernel.drift"], runs[0].observed["kernel"]["drift"])
    assert found["last"].dims == ()
    assert found["last"] == found["train-loss"][-1]
    assert found["kernel.drift_operator"].attrs["long_name"] == "kernel: drift operator"
    assert (found.attrs["made"], found.attrs["finished"]) == ("python", 1)


def test_several_are_seeds(runs):
    found = to_xarray(runs, seeds=[7, 8])
    assert found["train-loss"].dims == ("seed", "time")
    assert found["last"].dims == ("seed",)
    assert found["seed"].values.tolist() == [7, 8]
    np.testing.assert_array_equal(found["train-loss"][1], runs[1].observed["train-loss"])
    with pytest.raises(UserError, match="There are no trajectories"):
        to_xarray([])


def test_what_ended_early_is_filled_up(runs, problem):
    seen = jax.tree.map(lambda values: values[:2] if np.ndim(values) else values, runs[1].observed)
    short = dataclasses.replace(runs[1], times=runs[1].times[:2], observed=seen)
    found = to_xarray([short, runs[0]])
    assert np.isnan(found["train-loss"].values).tolist() == [[False, False, True], [False] * 3]
    other = dataclasses.replace(runs[1], times=np.array([0.0, 2.0, 4.0]))
    with pytest.raises(UserError, match="different probes or times"):
        to_xarray([runs[0], other])


def test_a_probe_may_name_its_values_and_units(problem):
    class Energy(TrainLoss):
        units = "eV"
        long_name = "energy of the network"

    run = Descent(rate=0.5)(TwoLayer(8, 3, key=jax.random.key(0)), problem, TIMES, {"energy": OnlyAtEnd(Energy())})
    assert run.to_xarray()["energy"].attrs == {"long_name": "energy of the network", "units": "eV"}


def test_a_saved_trajectory_is_a_stored_run(runs, tmp_path):
    path = runs[0].save(tmp_path / "new" / "mine.nc")
    found = read_run(path)
    np.testing.assert_array_equal(found["train-loss"], runs[0].observed["train-loss"][None])
    assert (found.attrs["name"], found.attrs["made"], found.attrs["status"]) == ("mine", "python", "finished")
    assert found.attrs[CHECKSUM] == checksum(found)
    assert read_run(runs[0].save(str(path), name="better")).attrs["name"] == "better"
    assert [one.name for one in path.parent.iterdir()] == ["mine.nc"]
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written to '.*x.nc' \(.+\): free some space, or"):
        runs[0].save(tmp_path / "file" / "x.nc")


def test_a_changed_number_changes_the_checksum(runs, tmp_path):
    found = read_run(runs[0].save(tmp_path / "mine.nc"))
    found["train-loss"].values[0, 1] += 1e-7
    assert found.attrs[CHECKSUM] != checksum(found)


def test_a_trajectory_draws_itself(runs):
    figure = runs[0].plot()
    assert figure.axes[0].get_ylabel() == "train loss"
    assert len(figure.axes) == len(runs[0].to_xarray().data_vars)
    (axes,) = runs[0].plot("train-loss", "paper").axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), runs[0].observed["train-loss"])
    (axes,) = figures.curves({"both": runs}, "train-loss").axes
    assert [line.get_label() for line in axes.lines] == ["both", "_both, seed 1", "_both, seed 2"]


def test_text_has_the_status_and_last_values(runs):
    text = repr(runs[0])
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines()[1:]}
    assert lines["status"].startswith("finished, 8 steps of descent in ")
    assert lines["times"] == "3, from 0 to 4"
    assert float(lines["train-loss"]) == pytest.approx(float(runs[0].observed["train-loss"][-1]), rel=1e-5)
    assert "kernel.drift" in lines
    assert "<td" in runs[0]._repr_html_()
    hostile = Descent(rate=0.5)(runs[0].start, runs[0].data, [0.0], {"<b>&": lambda obs: obs.outputs})
    assert "&lt;b&gt;&amp;" in hostile._repr_html_()
    assert "array of shape (5,)" in repr(hostile)


def test_settings_are_shown_as_numbers(tmp_path):
    assert repr(GradientFlow(tolerance=1e-3)) == "GradientFlow(loss=Squared(), tolerance=0.001, max_steps=1000000)"
    assert "rate=0.5" in repr(Descent(rate=0.5))
    assert "rtol=1e-05" in repr(RungeKutta(rtol=1e-5))
    assert repr(Lab(tmp_path)) == f"Lab('{tmp_path}', 0 stored runs)"
    assert repr(panels()["chen2022/fig1"]) == "<Panel chen2022/fig1: Figure 1: training loss on random labels>"


# ---------------------------------------------------------------- notebooks


class Notebook:
    """What IPython gives a kernel: a shell, and displays that can be updated."""

    def __init__(self, monkeypatch, kernel=True):
        self.shown = []
        ipython = types.ModuleType("IPython")
        ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object()) if kernel else None
        display = types.ModuleType("IPython.display")
        display.HTML = str
        display.display = self.display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, content, display_id):
        assert display_id
        self.update(content)
        return self

    def update(self, content):
        self.shown.append(content)


def test_a_notebook_shows_terminal_after_two_seconds(monkeypatch):
    notebook = Notebook(monkeypatch)
    now = [0.0]
    monkeypatch.setattr(_terminal.time, "perf_counter", lambda: now[0])
    with _terminal.bar(None) as report:
        report(0.1, 1.0)
        assert notebook.shown == [], "a short run shows nothing"
        now[0] = 2.5
        report(0.25, 2.5)
        assert notebook.shown[-1] == "<progress max='1' value='0.2500'></progress> 25%, t = 2.5"
        now[0] = 2.6
        report(0.3, 3.0)
        assert "25%" in notebook.shown[-1], "not more often than is worth it"
    assert notebook.shown[-1] == "", "it vanishes at the end"


def test_plain_ipython_and_scripts_are_no_notebooks(monkeypatch):
    Notebook(monkeypatch, kernel=False)
    assert not _terminal.in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not _terminal.in_notebook()
