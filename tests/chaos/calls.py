"""Random calls of the Python API, good and bad: each must work or raise a `UserError`.

`random_call` draws a call from any source of randomness with the methods of `random.Random`, such as what
`hypothesis.strategies.randoms()` gives. `outcome` makes the call and says what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import numpy as np

import unlazy
from unlazy._errors import UserError

NAN, INF = float("nan"), float("inf")
_X, _Y = np.linspace(-1.0, 1.0, 8).reshape(4, 2), np.array([0.5, -0.5, 1.0, 0.0])
# What may be given for anything. Sizes are small or impossible, so that no call takes long.
_ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    2.5,
    3,
    NAN,
    INF,
    -INF,
    1e-320,
    1e300,
    10**18,
    2**31,
    1j,
    "",
    "a",
    "8",
    b"x",
]
_ODD += [
    [],
    [1],
    [2, 3],
    (4, 4),
    ["a"],
    {},
    {"a": 1},
    object(),
    int,
    np.zeros(2),
    np.zeros((2, 0)),
    np.float16(1),
    print,
]
_WORDS = [
    "tanh",
    "relu",
    "ntk",
    "mean-field",
    "infinite",
    "quadratic",
    "normal",
    "uniform",
    "adam",
    "momentum",
    "constant",
]
_WORDS += [
    "squared",
    "logistic",
    "cross-entropy",
    "mean",
    "sum",
    "weights",
    "gram",
    "full",
    "mixed",
    "kernel",
    "two-layer",
]


def _two_layer(**options: Any) -> unlazy.TwoLayer:
    return unlazy.TwoLayer(**({"width": 3, "inputs": 2, "key": 0} | options))


def _dataset(**parts: Any) -> unlazy.Dataset:
    return unlazy.Dataset(**({"x": _X, "y": _Y} | parts))


def _run(flow: Any, network: Any = None, data: Any = None, times: Any = (0, 1), **options: Any) -> Any:
    network, data = _two_layer() if network is None else network, _dataset() if data is None else data
    return flow(network, data, times, **options)


def _conv(**options: Any) -> unlazy.ConvNet:
    return unlazy.ConvNet(**({"channels": (2,), "kernel": 2, "image": (1, 3, 3), "key": 0} | options))


def _stack(**options: Any) -> unlazy.MeanFieldStack:
    return unlazy.MeanFieldStack(**({"widths": (3, 3), "inputs": 2, "ranks": 2, "key": 0} | options))


# Each maker with the arguments that may be replaced, and values that work.
_CALLS: dict[Callable[..., Any], dict[str, list[Any]]] = {
    _two_layer: {
        "width": [1, 4],
        "inputs": [2],
        "outputs": [None, 2],
        "activation": ["tanh", "relu"],
        "embedding": ["identity", "quadratic"],
        "scaling": ["ntk", "mean-field"],
        "readout": [1.0, [1.0, 2.0, 3.0]],
        "weights": ["normal"],
        "bias": [True, False],
        "scale": [0.5],
        "symmetrised": [False],
        "train_readout": [True],
        "key": [0, 7],
    },
    _conv: {
        "channels": [(1,), (2, 2)],
        "kernel": [2],
        "outputs": [None, 2],
        "image": [(1, 3, 3)],
        "dense": [None, 3],
        "gamma": [0.5, 2.0],
        "linear": [None, 0.1],
        "scale": [None, 0.1],
        "rescaled": [True, False],
        "key": [0],
    },
    _stack: {
        "widths": [(3, 3), (INF, 3)],
        "inputs": [2],
        "outputs": [None, 2],
        "ranks": [2, (2,)],
        "train": ["ac", "wabc"],
        "parameterisation": ["mean-field", "standard"],
        "activation": ["relu"],
        "features": [None, "normal"],
        "bias": [True],
        "skip": [True],
        "clip": [None],
        "key": [0],
    },
    _dataset: {
        "x": [_X, _X.tolist()],
        "y": [_Y, _Y.tolist()],
        "x_test": [None, _X],
        "y_test": [None, _Y],
        "weight": [None, np.ones(4)],
        "held_out": [None],
        "name": ["mine"],
    },
    unlazy.data.random_labels: {"n": [3], "d": [2], "key": [0]},
    unlazy.data.single_index: {"n": [3], "d": [2], "link": ["tanh"], "noise": [0.1], "n_test": [2], "key": [0]},
    unlazy.data.sphere_sine: {"n": [3], "d": [2], "noise": [0.1], "n_test": [2], "n_held": [1], "key": [0]},
    unlazy.data.cosine: {"n": [3], "frequency": [2.0], "n_test": [2], "key": [0]},
    unlazy.data.two_sided_step: {"delta": [1.0], "amplitude": [1.0]},
    unlazy.data.one_hot: {"labels": [[0, 1]], "classes": [None, 3]},
    unlazy.GradientFlow: {
        "loss": ["squared"],
        "tolerance": [1e-3],
        "max_steps": [100],
        "method": ["auto", "stabilised"],
        "coordinates": ["auto"],
        "precision": ["full"],
        "memory": [None, 1.0],
        "devices": [None],
    },
    unlazy.Descent: {
        "loss": ["squared"],
        "rate": [0.5],
        "optimiser": ["adam", "momentum"],
        "schedule": ["constant"],
        "batch": [None, 2],
        "clip_norm": [None, 1.0],
        "stop_loss": [None, 0.1],
        "source": [None],
    },
    unlazy.RungeKutta: {"rtol": [1e-4], "atol": [1e-4], "max_steps": [100], "step": [None, 0.1], "loss": ["squared"]},
    unlazy.flows.Momentum: {"decay": [0.5], "nesterov": [True]},
    unlazy.flows.Adam: {"b1": [0.5], "b2": [0.9], "eps": [1e-8]},
    unlazy.flows.StepDecay: {"factor": [0.5], "every": [2]},
    unlazy.flows.Cosine: {"steps": [5], "floor": [0.0]},
    unlazy.flows.Piecewise: {"factors": [[1.0, 0.5]], "steps": [[3]]},
    unlazy.Kernel: {"samples": [None, 2], "output": [None, 0]},
    unlazy.Squared: {"reduction": ["mean", "sum"], "half": [True]},
    unlazy.Zipf: {"alpha": [0.5]},
    unlazy.networks.Normal: {"spread": [1.0], "mean": [0.0, (1.0, 2.0)]},
    unlazy.RandomLayers: {"widths": [(2,)], "activation": [None, "relu"]},
    unlazy.Infinite: {"depth": [1], "activation": [None]},
}
_RUNS: dict[str, list[Any]] = {
    "network": [None],
    "data": [None],
    "times": [(0, 1), [0.0, 2.0], np.array([0.0, 1.0])],
    "probes": [(), ["train-loss"], "train-loss", ["kernel", "train-loss"]],
    "key": [None, 0],
}
_FLOWS: list[Callable[[], Any]] = [
    lambda: unlazy.Descent(rate=0.5),
    lambda: unlazy.Descent(rate=1e30),
    lambda: unlazy.GradientFlow(max_steps=200),
    lambda: unlazy.Linearised(),
]


def random_call(random: Random) -> tuple[str, Callable[[], Any]]:
    """Draw a call of the API: some arguments that work, and up to two that are odd.

    Parameters
    ----------
    random
        The source of randomness.

    Returns
    -------
    tuple
        A description of the call, and a function without arguments that makes it.
    """
    if random.random() < 0.2:
        flow, options = random.randrange(len(_FLOWS)), _drawn(random, _RUNS)
        return f"flow {flow}({_shown(options)})", lambda: _run(_FLOWS[flow](), **options)
    maker = random.choice(list(_CALLS))
    options = _drawn(random, _CALLS[maker])
    return f"{maker.__name__.strip('_')}({_shown(options)})", lambda: maker(**options)


def _drawn(random: Random, known: dict[str, list[Any]]) -> dict[str, Any]:
    options = {name: random.choice(values) for name, values in known.items() if random.random() < 0.5}
    for _ in range(random.randrange(3)):
        name = random.choice([*known, "widht"]) if random.random() < 0.9 else "x" * random.randrange(1, 4)
        options[name] = random.choice(_ODD if random.random() < 0.8 else _WORDS)
    return options


def _shown(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={' '.join(repr(value).split())[:40]}" for name, value in options.items())


def outcome(call: Callable[[], Any]) -> str:
    """Make a call: "fine", "refused", or "nonsense" for a finished run whose network or loss is not finite.

    Any exception but a `UserError` is passed on.

    Parameters
    ----------
    call
        What `random_call` returned.
    """
    try:
        made = call()
    except UserError as error:
        return "refused" if str(error).rstrip().endswith((".", "?")) and "\n" not in str(error) else "nonsense"
    if isinstance(made, unlazy.Trajectory) and made.status is unlazy.Status.finished:
        loss = made.loss(made.final(made.data.x), made.data.y, made.data.weight)
        arrays = [leaf for leaf in jax.tree.leaves(made.final) if isinstance(leaf, jax.Array)]
        if not all(np.isfinite(np.asarray(one)).all() for one in [loss, *arrays] if one.dtype.kind == "f"):
            return "nonsense"
    return "fine"


SECONDS = 60.0  # of computing for one call
MOST = 300  # calls in one process
MEMORY = 12 * 2**30  # of address space, of which JAX takes several for itself


def calls(numbers, seed, place):
    """Make a random call for each of the numbers; return the row of the table, and what went wrong."""
    from collections import Counter

    from forked import Patient

    def trial(number):
        description, call = random_call(Random(f"{seed} {number}"))
        try:
            return outcome(call), description
        except KeyboardInterrupt:
            return "stopped", description
        except Exception as error:
            return "raw exception", f"{description}: {type(error).__name__}: {error}"

    tally, wrong, patient = Counter(), [], Patient(trial, place, SECONDS, MOST, MEMORY)
    for number, found in patient.run(numbers):
        if isinstance(found, str):
            found = " ".join(found.split()[:2]), f"{random_call(Random(f'{seed} {number}'))[0]}: {found}"
        result, words = found
        tally[result] += 1
        if result not in ("fine", "refused"):
            wrong.append(f"call {number}: {result}: {words}")
    wrong += patient.tracebacks
    return [{"what": "random calls", "trials": tally.total()} | dict(tally) | {"peak MiB": patient.peak}], wrong
