"""Experiment 1: a shallow network fits random labels, at a linear rate that falls as samples are added."""

from unlazy.figures import band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, grid
from unlazy.papers._curves import median_range
from unlazy.papers.chen2022.curves import AGREE, FLOOR, STEPS, STRAIGHT, decay, distance, sizes_of
from unlazy.papers.outcomes import at_least, near, ordered, together

_SCALES: dict[Scale, Sizes] = {  # the widths are those of figure 5 and of figure 1
    "quick": Sizes(widths=(512, 1024), end=20_000, seeds=3),
    "paper": Sizes(widths=(4096, 8192), end=50_000, seeds=5),
}
_SAMPLES = (20, 40, 80, 160)


class RandomLabels(Panel):
    """Figures 1 and 5: training loss of a shallow mean-field network on random labels, for several n.

    Both figures run both widths, so that each can say whether they agree; they share the stored runs.
    """

    caption = (
        "Mean training loss of f(x) = (1/m) Σ c_i tanh(w_i·x/√d), d = 20, on random labels, trained by gradient flow; "
        "one unit of t is one of the paper's GD steps (step size 1, loss averaged over samples). Thick lines are "
        "medians over seeds, thin lines the seeds; the paper draws means, which the slowest seed dominates. The paper "
        "names n = 20 and 40 only; 80 and 160 are our choice of 'larger'."
    )

    def __init__(self, number: int, wider: bool) -> None:
        self.key = f"chen2022/fig{number}"
        self.wider = self.demo = wider
        self.title = f"Figure {number}: training loss on random labels{'' if wider else ', at half the width'}"
        self.scales = by_scale(
            _SCALES,
            lambda s: (
                f"m = {s.widths[wider]} (beside {s.widths[not wider]}), n = 20 to 160, t = {s.end:,}, {s.seeds} seeds"
            ),
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return every n at both widths, first at the one that is shown; data depend on seed and n only."""
        sizes = _SCALES[scale]
        return {
            f"m={m} n={n}": Recipe(
                name=f"chen2022 random labels m={m} n={n}",
                data={"kind": "random-labels", "n": n, "d": 20},
                network={"kind": "two-layer", "width": m, "activation": "tanh", "scaling": "mean-field"},
                flow={"kind": "gradient-flow", "tolerance": 1e-4},
                # More often at first, while the fast curves fall.
                times=[float(t) for t in (*range(0, 5000, 100), *range(5000, sizes.end + 1, 500))],
                probes=["train-loss"],
                seeds=seeds or sizes.seeds,
            )
            for m in sorted(sizes.widths, reverse=self.wider)
            for n in _SAMPLES
        }

    def claims(self, results: Results) -> list[Claim]:
        (shown, other), _ = sizes_of(results)
        runs = grid(results, "network.width", "data.n")
        fits = {n: decay(runs[shown, n]) for n in _SAMPLES}
        rates, straight = ({n: one[which] for n, one in fits.items()} for which in (0, 1))
        apart = {n: distance(runs[shown, n], runs[other, n]) for n in _SAMPLES}
        return [
            Claim(
                text=f"n = 20 and 40: log-loss falls linearly in t (R² >= {STRAIGHT}, down to {FLOOR:g} of the start)",
                paper="the convergence happens at a nearly linear rate when n = 20 and 40",
                measured=", ".join(f"n = {n}: R² = {median_range(straight[n])}" for n in _SAMPLES),
                judged=together(at_least(straight[n], STRAIGHT) for n in (20, 40)),
            ),
            Claim(
                text="the fitted rate falls from each n to the next",
                paper="the rate decreases as n becomes larger",
                measured=", ".join(f"n = {n}: {median_range(rates[n])}" for n in _SAMPLES),
                judged=ordered([rates[n] for n in reversed(_SAMPLES)], paired=False),  # each n has data of its own
            ),
            Claim(
                text=f"m = {shown} and m = {other} agree: log-losses differ by less than {AGREE:.0%} of their fall "
                "(median over times)",
                paper="Figure 5 is the same as Figure 1 except for having m = 4096: the two plots agree well",
                measured=", ".join(f"n = {n}: {apart[n].max():.2%}" for n in _SAMPLES) + " (largest over seeds)",
                judged=together(near(share, 0.0, AGREE) for share in apart.values()),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        figure, (axes,) = canvas()
        (shown, _), _ = sizes_of(results)
        runs = grid(results, "network.width", "data.n")
        for index, n in enumerate(_SAMPLES):
            run = runs[shown, n]
            band(axes, run["time"].values, run["train-loss"].values, index, f"n = {n}")
        axes.set(yscale="log", ylim=(1e-14, None), xlabel=STEPS, ylabel="training loss, mean of ½ (f - y)²")
        axes.set_title(f"chen2022, experiment 1: random labels, d = 20, m = {shown}", fontsize=10)
        axes.legend()
        return figure
