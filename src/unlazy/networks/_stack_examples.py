"""Small stacks that show all of the class: what the contracts in the tests run on."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from unlazy._types import PRNGKey
from unlazy.activations import LeakyRelu, Relu, Sigmoid, Tanh
from unlazy.data import Dataset
from unlazy.networks.laws import Constant, Eye, Grid, Normal, Sphere, Tied, Uniform


def examples(key: PRNGKey) -> list[tuple[dict[str, Any], Dataset]]:
    """Options of a stack, and data that it fits."""
    keys = iter(jax.random.split(key, 16))
    x, y, x_test, y_test = (jax.random.normal(next(keys), shape) for shape in ((7, 3), (7,), (4, 3), (4,)))
    data = Dataset(x, y, x_test, y_test, name="example")
    several = Dataset(x, jnp.stack([y, -y, y**2], axis=1), name="example with three outputs")
    many = Dataset(jax.random.normal(next(keys), (6, 9)), y[:6], name="example with many inputs")

    def one(widths: tuple[float, ...] = (8, 7), inputs: int = 3, **options: Any) -> dict[str, Any]:
        usual = {"ranks": 2, "activation": Tanh(), "key": next(keys)}
        return {"widths": widths, "inputs": inputs, **usual, **options}

    slope = LeakyRelu(0.3)
    learner: dict[str, Any] = {
        "ranks": 1,
        "train": ("w", "wb"),
        "features": (Sphere(), Normal()),
        "bias": (False, Constant(0.5)),
        "amplitude": (Tied(), Constant(1.0)),
        "activation": Relu(),
    }
    return [
        (one(), data),
        (one((8, 7, 6), ranks=(2, 2), train=("ac", "wa", "bc"), activation=(Tanh(), Sigmoid(), slope)), data),
        (one((8, 7, 6), train="wabc", skip=True, parameterisation="standard"), data),
        (
            one((5, 6), ranks=5, outputs=3, amplitude=(Eye(), Uniform()), train="wbc", parameterisation="standard"),
            several,
        ),
        (one(inputs=9, features=Grid(), outputs=None), many),
        (one(**{**learner, "activation": Tanh()}), data),
        (one((math.inf, 7), amplitude=(Normal(mean=(1.0, -0.5)), Normal())), data),
        (one((math.inf, 7), **learner), data),
        (one(**learner, clip=(0.1, 0.2, 0.3)), data),
    ]
