"""A new network, probe, optimiser, figure of a paper and kernel are one file each; docs/architecture.md says so."""

import json
import re
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from unlazy import _registry, cli
from unlazy.lab import instantiate, parse, read_run
from unlazy.papers import choose

ROOT = Path(__file__).parents[1]

FILES = {
    "network": '''
"""A network with an oscillating feature map."""

import jax
import jax.numpy as jnp

from unlazy.networks import Network


class Waves(Network):
    """f(x) = (1/m) Σ_j cos(w_j·x).

    Parameters
    ----------
    width
        Number of waves m.
    """

    w: jax.Array

    def __init__(self, width: int, inputs: int, *, key):
        self.w = jax.random.normal(key, (width, inputs))

    def __call__(self, x):
        return jnp.mean(jnp.cos(x @ self.w.T), axis=1)
''',
    "probe": '''
"""A probe of the residuals."""

import jax.numpy as jnp

from unlazy.probes import Probe


class LargestResidual(Probe):
    """max_i |f(x_i) - y_i|."""

    def __call__(self, obs):
        return jnp.max(jnp.abs(obs.outputs - obs.data.y))
''',
    "optimiser": '''
"""An optimiser that uses signs only."""

import optax

from unlazy.flows import Optimiser


class SignDescent(Optimiser):
    """The sign of the gradient."""

    def transform(self):
        return optax.scale_by_sign()
''',
    "paper": '''
"""A figure of a paper."""

from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers import Claim, Panel

PAPER = {"key": "newton2026", "authors": "A. Newton", "title": "Waves", "arxiv": "2601.00001"}


class Figure1(Panel):
    """Figure 1: the loss of waves."""

    key, title = "newton2026/fig1", "Figure 1: waves"
    caption = "Training loss against t."
    scales = {"quick": "m = 4", "paper": "m = 8"}

    def recipes(self, scale, seeds=None):
        recipe = Recipe(
            name="waves",
            data={"kind": "random-labels", "n": 5, "d": 3},
            network={"kind": "waves", "width": {"quick": 4, "paper": 8}[scale]},
            flow={"kind": "descent", "rate": 0.1},
            times=[0.0, 1.0],
            probes=["train-loss", "largest-residual"],
            seeds=seeds or 1,
        )
        return {"waves": recipe}

    def claims(self, results):
        first, last = results["waves"]["train-loss"].values[0]
        return [Claim("the loss falls", "it falls", f"from {first:.3g} to {last:.3g}", bool(last < first))]

    def draw(self, results):
        figure, (axes,) = canvas()
        axes.plot(results["waves"]["time"], results["waves"]["train-loss"][0])
        return figure


fig1 = Figure1()
''',
    "kernel": '''
"""A kernel of degree three."""

import jax.numpy as jnp

from unlazy.networks import Embedding


class Cubes(Embedding):
    """Φ(x) = (x_a x_b x_c), with the kernel (x·z/d)³."""

    def draw(self, inputs, activation, *, key):
        return self

    def size(self, inputs):
        return inputs**3

    def __call__(self, x):
        return jnp.einsum("na,nb,nc->nabc", x, x, x).reshape(len(x), -1)

    def kernel(self, x, z):
        return (x @ z.T / x.shape[1]) ** 3
''',
}


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Give a function that adds files to an empty package, which is on the path and named in UNLAZY_PLUGINS."""
    home, name = tmp_path / "home", "newcomer"
    (home / name).mkdir(parents=True)
    (home / name / "__init__.py").write_text("")
    monkeypatch.setattr("sys.path", [str(home), *sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNLAZY_PLUGINS", name)

    def added(*files):
        for file in files:
            (home / name / f"{file}.py").write_text(FILES[file])
        _registry._members.cache_clear()
        _registry._plugin_modules.cache_clear()

    yield added
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]
    _registry._members.cache_clear()
    _registry._plugin_modules.cache_clear()


def run(**sections):
    """Build what a recipe names, as every command does; give its first network, data set, flow and probes."""
    table = {
        "data": {"kind": "random-labels", "n": 5, "d": 3},
        "network": {"kind": "two-layer", "width": 4},
        "flow": {"kind": "descent", "rate": 0.1},
        "times": [0.0, 1.0],
        "probes": ["train-loss"],
        "dtype": "float32",
    }
    made = instantiate(parse(table | sections))
    return made, made.flow(made.networks[0], made.data[0], made.times, made.probes)


def test_a_network_is_one_file(add):
    add("network")
    made, trained = run(network={"kind": "waves", "width": 4}, probes=["train-loss", "kernel", "weight-movement"])
    x, w = np.asarray(made.data[0].x), np.asarray(made.networks[0].w)
    assert np.allclose(made.networks[0](made.data[0].x), np.cos(x @ w.T).mean(axis=1), atol=1e-6)
    assert trained.observed["train-loss"][-1] < trained.observed["train-loss"][0]
    slopes = np.sin(x @ w.T) / w.shape[0]
    assert np.allclose(made.networks[0].tangent_kernel(made.data[0].x), slopes @ slopes.T * (x @ x.T), atol=1e-5)


def test_a_probe_is_one_file(add):
    add("probe")
    _, trained = run(probes=["largest-residual"])
    residual = np.abs(np.asarray(trained.final(trained.data.x) - trained.data.y)).max()
    assert np.isclose(trained.observed["largest-residual"][-1], residual, rtol=1e-5)


def test_an_optimiser_is_one_file(add):
    add("optimiser")
    optimised = {"kind": "descent", "rate": 0.25, "optimiser": "sign-descent"}
    made, trained = run(flow=optimised, times=[0.0, 0.25], network={"kind": "two-layer", "width": 4, "scaling": "ntk"})
    moved = np.abs(np.asarray(trained.final.w - made.networks[0].w))
    assert np.allclose(moved, 0.25, rtol=1e-5)  # one step along the sign moves every weight by the rate


def test_a_kernel_is_one_file(add):
    add("kernel")
    made, trained = run(network={"kind": "two-layer", "width": 4, "embedding": "cubes"})
    embedding, x = made.networks[0].embedding, made.data[0].x
    phi = embedding(x)
    assert np.allclose(embedding.kernel(x, x), phi @ phi.T / phi.shape[1], rtol=1e-4, atol=1e-5)
    assert made.networks[0].w.shape == (4, 27)
    assert jnp.isfinite(trained.observed["train-loss"]).all()


def test_a_figure_of_a_paper_is_one_file(add, capsys):
    add("network", "probe", "paper")
    (panel,) = choose("newton2026/fig1")
    with pytest.raises(SystemExit) as left:
        cli.main(["reproduce", panel.key, "--json"])
    printed = capsys.readouterr()
    assert left.value.code == 0, printed.err
    record = json.loads(printed.out)
    assert [claim["outcome"] for claim in record["claims"]] == ["holds"]
    (path,) = Path("runs").glob("waves-*.nc")
    assert {"train-loss", "largest-residual"} <= set(read_run(path).data_vars)


def test_the_walk_is_short_and_names_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^([0-9]+)\. ", page, flags=re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, len(steps) + 1))
    assert len(steps) < 30
    for name in re.findall(r"`([a-z_0-9/]+(?:[.]py|/))`", page):
        assert (ROOT / "src" / "unlazy" / name).exists() or (ROOT / name).exists(), name
    recipe = tomllib.loads((ROOT / "examples" / "two_scalings.toml").read_text(encoding="utf-8"))
    assert recipe["data"]["n"] == 60  # as the page says
