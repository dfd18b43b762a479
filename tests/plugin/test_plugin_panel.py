"""A user's panel is listed, reproduced and reported."""

import json

import pytest

from unlazy.papers import choose
from unlazy.testing import check_panel

PANEL = '''
"""A figure that a user wrote."""

from matplotlib.figure import Figure

from unlazy.lab import Recipe
from unlazy.papers import Claim, Panel


class Falls(Panel):
    """The loss at two widths."""

    key, title = "{name}2026/fig1", "Figure 1: two widths"
    caption = "Training loss on two blobs."
    scales = {{"quick": "m = 4 and 8", "paper": "m = 4 and 8, 3 seeds"}}

    def recipes(self, scale, seeds=None):
        count = seeds or {{"quick": 1, "paper": 3}}[scale]
        return {{
            f"m = {{width}}": Recipe(
                name=f"{name} m={{width}}",
                data={{"kind": "two-blobs", "n": 8}},
                network={{"kind": "additive", "width": width}},
                flow={{"kind": "descent", "rate": 0.1}},
                times=[0.0, 1.0],
                probes=["train-loss"],
                seeds=count,
            )
            for width in (4, 8)
        }}

    def claims(self, results):
        falls = all(float(run["train-loss"][0, -1]) < float(run["train-loss"][0, 0]) for run in results.values())
        return [Claim("the loss falls", "it falls", f"{{len(results)}} runs", falls)]

    def draw(self, results):
        figure = Figure()
        axes = figure.add_subplot()
        for label, run in results.items():
            axes.plot(run["time"].values, run["train-loss"].values[0], label=label)
        return figure


fig1 = Falls()
'''


@pytest.fixture
def panel(package, tmp_path):
    (tmp_path / "home" / package / "figures.py").write_text(PANEL.format(name=package))
    return package


def test_a_panel_of_ones_own_is_reproduced(panel, call):
    assert f"{panel}2026/fig1" in call("panels")[1]
    assert f"{panel}2026/fig1" in call("list", "panel")[1]
    for name in (f"{panel}2026/fig1", f"{panel}.figures:fig1", f"{panel}.figures:Falls", f"{panel}2026"):
        status, out, err = call("reproduce", name, "--json")
        assert (status, err) == (0, ""), err
        assert json.loads(out)["claims"][0]["outcome"] == "holds"
    assert "1 of 1 claims hold" in " ".join(call("panels")[1].split())
    status, _, err = call("report", "--to", "mine.html")
    assert (status, err) == (0, "")


def test_a_panel_of_ones_own_keeps_the_contract(panel):
    check_panel(choose(f"{panel}2026/fig1")[0])
