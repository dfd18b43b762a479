"""Checks for extensions: call them on your own members in your tests.

    from unlazy.testing import check_activation
    from mypackage import Snake

    def test_snake():
        check_activation(Snake())

Each check raises an `AssertionError` with a sentence that says what does not hold. All of unlazy's own members pass the
same checks.
"""

from unlazy.testing.activations import ACTIVATION_CHECKS, check_activation
from unlazy.testing.claims import check_panel, check_theorem
from unlazy.testing.members import (
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
from unlazy.testing.networks import NETWORK_CHECKS, check_network

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
