"""A panel that takes a second."""

from matplotlib.figure import Figure

from unlazy.lab import Recipe
from unlazy.papers import Claim, Panel


class Falls(Panel):
    """The loss at two widths."""

    key, title = "chaos2026/fig1", "Figure 1: two widths"
    caption = "Training loss."
    scales = {"quick": "m = 32 and 64", "paper": "m = 32 and 64"}  # noqa: RUF012

    def recipes(self, scale, seeds=None):
        return {
            f"m = {width}": Recipe(
                name=f"chaos m={width}",
                data={"kind": "random-labels", "n": 8, "d": 4},
                network={"kind": "two-layer", "width": width},
                flow={"kind": "descent", "rate": 0.01},
                times=[0.0, 100.0, 200.0],
                probes=["train-loss"],
            )
            for width in (32, 64)
        }

    def claims(self, results):
        falls = all(float(run["train-loss"][0, -1]) < float(run["train-loss"][0, 0]) for run in results.values())
        return [Claim("the loss falls", "it falls", f"{len(results)} runs", falls)]

    def draw(self, results):
        figure = Figure()
        axes = figure.add_subplot()
        for label, run in results.items():
            axes.plot(run["time"].values, run["train-loss"].values[0], label=label)
        return figure


fig1 = Falls()
