"""A package that a user wrote, in a folder of its own: on the path only, or installed with an entry point."""

import itertools
import string
import sys

import pytest

from unlazy import _registry, cli

PARTS = '''
"""Members of all kinds that a user may write."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy.activations import Activation, Custom, Tanh, as_activation
from unlazy.data import Dataset
from unlazy.losses import CustomLoss
from unlazy.networks import Network
from unlazy.probes import Probe


def two_blobs(n: int = 12, apart: float = 1.0, *, key) -> Dataset:
    """Two Gaussian clouds.

    Parameters
    ----------
    n
        Number of samples.
    apart
        How far the clouds are apart.
    """
    signs = jnp.where(jnp.arange(n) % 2, 1.0, -1.0)
    return Dataset(jax.random.normal(key, (n, 3)) + apart * signs[:, None], signs, name="two blobs")


def arrays(n=8):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3)).astype("float32"), rng.integers(0, 2, n)


def _curve(h):
    return h + jnp.sin(h) ** 2


snake = Custom(_curve)


def soft_snake(h, a=1.0):
    return h + jnp.sin(a * h) ** 2 / a


def fourth(f, y, scale=1.0):
    return scale * (f - y) ** 4


class Additive(Network):
    """f(x) = σ(x w) summed over features.

    Parameters
    ----------
    width
        Number of features.
    activation
        σ.
    """

    w: jax.Array
    activation: Activation = eqx.field(static=True)

    def __init__(self, width: int, inputs: int, activation: Activation = Tanh(), *, key):
        self.w = jax.random.normal(key, (inputs, width)) / inputs**0.5
        self.activation = as_activation(activation)

    def __call__(self, x):
        return jnp.mean(self.activation(x @ self.w), axis=1)


class WeightNorm(Probe):
    """Length of the weights."""

    power: float = eqx.field(static=True, default=2.0)

    def __call__(self, obs):
        return jnp.sum(jnp.abs(obs.network.w) ** self.power)


def largest(obs):
    return jnp.max(jnp.abs(obs.outputs))
'''

THEORY = '''
"""A theorem that a user wrote."""

from typing import ClassVar

import numpy as np

from unlazy.probes import TrainLoss
from unlazy.theory import Example, Finding, Hypothesis, Theorem, through


class LossFalls(Theorem):
    """Along gradient flow the loss never grows."""

    key: ClassVar[str] = "{name}2026/falls"
    source: ClassVar[str] = "A user (2026)"
    statement: ClassVar[str] = "Along gradient flow the loss never grows."
    probes: ClassVar[tuple] = (TrainLoss(),)
    example: ClassVar[Example] = Example(print)
    counterexample: ClassVar[Example] = Example(print)

    def read(self, run):
        yield Hypothesis("two times", len(run.times) > 1, len(run.times), 2)
        return run

    def conclude(self, setting):
        loss = np.asarray(through(setting, TrainLoss()))
        falls = bool(np.all(np.diff(loss) <= 1e-9))
        why = f"The loss went from {{loss[0]:.3g}} to {{loss[-1]:.3g}}."
        return Finding.judge(falls, why, 1.0, {{"last": float(loss[-1])}})
'''

RECIPE = """
name = "mine"
seeds = 2
times = [0, 1]
probes = ["train-loss", "weight-norm", {{ kind = "{name}.parts:largest", as = "largest" }}]
data = {{ kind = "two-blobs", n = 10 }}
flow = {{ kind = "gradient-flow", loss = {{ kind = "{name}.parts:fourth", scale = 0.5, reduction = "sum" }} }}

[network]
kind = "additive"
width = 6
activation = {{ kind = "{name}.parts:soft_snake", a = 0.5 }}
"""

_numbers = itertools.count()


@pytest.fixture(params=["path", "installed"])
def package(request, tmp_path, tmp_path_factory, monkeypatch):
    """Give the name of a package whose author never touched unlazy; the current folder holds a recipe."""
    name = f"mypkg{string.ascii_lowercase[next(_numbers)]}"
    home, work = tmp_path / "home", tmp_path / "work"
    (home / name).mkdir(parents=True)
    work.mkdir()
    (home / name / "__init__.py").write_text("")
    (home / name / "parts.py").write_text(PARTS)
    (home / name / "theory.py").write_text(THEORY.format(name=name))
    (work / "mine.toml").write_text(RECIPE.format(name=name))
    monkeypatch.setattr("sys.path", [str(home), *sys.path])
    monkeypatch.chdir(work)
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path_factory.getbasetemp() / "plugin-cache"))
    if request.param == "path":
        monkeypatch.setenv("UNLAZY_PLUGINS", name)
    else:
        info = home / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[unlazy]\nmine = {name}\n")
    _registry._installed.cache_clear()
    yield name
    _registry._installed.cache_clear()
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


@pytest.fixture
def call(capsys):
    """Call the command line; give its exit status, what it printed, and what it said on the side."""

    def called(*arguments):
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return left.value.code, printed.out, printed.err

    return called
