"""Contracts for extensions: call one on a member of your own in your tests.

    from unlazy.testing import check_activation
    from mypackage import Snake

    def test_snake():
        check_activation(Snake())

Each raises `AssertionError` with a sentence that says what does not hold. unlazy's own members are held to the same.
"""

from unlazy.testing._activations import ACTIVATION_CHECKS, check_activation
from unlazy.testing._claims import check_panel, check_theorem
from unlazy.testing._members import (
    check_data,
    check_embedding,
    check_flow,
    check_law,
    check_loss,
    check_optimiser,
    check_probe,
    check_scaling,
    check_schedule,
)
from unlazy.testing._networks import NETWORK_CHECKS, check_network

__all__ = [
    "ACTIVATION_CHECKS",
    "NETWORK_CHECKS",
    "check_activation",
    "check_data",
    "check_embedding",
    "check_flow",
    "check_law",
    "check_loss",
    "check_network",
    "check_optimiser",
    "check_panel",
    "check_probe",
    "check_scaling",
    "check_schedule",
    "check_theorem",
]
