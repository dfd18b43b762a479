"""Checks for extensions: call them on your own members in your tests.

    from unlazy.testing import check_activation
    from mypackage import Snake

    def test_snake():
        check_activation(Snake())

Each check raises an `AssertionError` with a sentence that says what does not hold. All of unlazy's own members pass the
same checks.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

if TYPE_CHECKING:
    from unlazy.testing.activations import ACTIVATION_CHECKS as ACTIVATION_CHECKS, check_activation as check_activation
    from unlazy.testing.claims import check_panel as check_panel, check_theorem as check_theorem
    from unlazy.testing.members import check_data as check_data, check_embedding as check_embedding
    from unlazy.testing.members import check_flow as check_flow, check_law as check_law, check_loss as check_loss
    from unlazy.testing.members import check_optimiser as check_optimiser, check_probe as check_probe
    from unlazy.testing.members import check_scaling as check_scaling, check_schedule as check_schedule
    from unlazy.testing.networks import NETWORK_CHECKS as NETWORK_CHECKS, check_network as check_network
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
