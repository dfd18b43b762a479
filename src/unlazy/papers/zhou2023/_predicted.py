"""Eq. 44 for the networks of a recipe, which are drawn again: what is known before training."""

from __future__ import annotations

import functools
import json

from unlazy.lab import bring_to_life, parse
from unlazy.networks import ConvNet
from unlazy.theory.zhou2023 import Prediction, predict


@functools.lru_cache(maxsize=16)
def predictions(written: str) -> tuple[Prediction, ...]:
    """Predict the training of every seed of a recipe, given as it is stored."""
    made = bring_to_life(parse(json.loads(written)))
    return tuple(
        predict(network, data, made.flow.loss)
        for network, data in zip(made.networks, made.data, strict=True)
        if isinstance(network, ConvNet)
    )
