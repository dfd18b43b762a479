"""Eq. 44 for the networks of a recipe, which are drawn again: what is known before training."""

from __future__ import annotations

import functools
import json

import msgspec

from unlazy.lab import Recipe, instantiate, parse
from unlazy.networks import ConvNet
from unlazy.papers.zhou2023.theorems import Prediction, predict


def predictions(recipe: Recipe) -> tuple[Prediction, ...]:
    """Predict the training of every seed of a recipe; its name, times and probes do not matter."""
    return _predictions(msgspec.structs.replace(recipe, name="run", times=[0.0], probes=[]).json())


@functools.lru_cache(maxsize=16)
def _predictions(written: str) -> tuple[Prediction, ...]:
    made = instantiate(parse(json.loads(written)))
    return tuple(
        predict(network, data, made.flow.loss)
        for network, data in zip(made.networks, made.data, strict=True)
        if isinstance(network, ConvNet)
    )
