"""Gradient flow itself, θ' = -R ∇L(θ): one tolerance, and the method that suits the problem."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError, suggest
from unlazy.data import Dataset
from unlazy.flows._base import Flow, Stepper
from unlazy.flows._coordinates import Coordinates, cheapest
from unlazy.flows._state import count, number
from unlazy.flows.exponential import Exponential
from unlazy.flows.runge_kutta import RungeKutta
from unlazy.flows.stabilised import Stabilised
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network

Method = Literal["auto", "exponential", "stabilised", "runge-kutta"]
Precision = Literal["auto", "full", "mixed"]

_METHODS: dict[str, type[Exponential | Stabilised | RungeKutta]] = {
    "exponential": Exponential,
    "stabilised": Stabilised,
    "runge-kutta": RungeKutta,
}
_FINE = 1e-6  # below this a method of fifth order pays
_MOST_OUTPUTS = 3000  # n k beyond which an eigendecomposition a step costs more than it saves
_LARGE = 2.0**28  # m n² from which on single precision pays
_SINGLE = 1e-5  # the finest tolerance that float32 products do not spoil


class GradientFlow(Flow):
    """Follows the gradient flow of any network and loss to one ``tolerance``, by the method that suits the problem.

    The tolerance bounds the error of each step in what is averaged over neurons: the root mean square of the error in
    the outputs, on the training inputs and up to 64 test inputs, relative to that of the targets. Single neurons may be
    off by more, above all at kinks. ``stats["error"]`` adds up the estimates.

    ``method="auto"`` takes `Exponential` for squared loss on a smooth two-layer network (up to 3000 outputs n k),
    `Stabilised` for other losses, networks and sizes and wherever there are kinks, and `RungeKutta` for tolerances
    below 1e-6 and for networks from small weights: the tolerance then bounds the relative error of the parameters.
    Coordinates, memory and devices are those of these methods. ``precision="auto"`` is mixed for large problems in
    float64 whose tolerance float32 products do not touch. ``stats`` says what was chosen.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=number)
    max_steps: np.ndarray = eqx.field(default=1_000_000, converter=count)
    method: Method = eqx.field(static=True, default="auto")
    coordinates: Coordinates = eqx.field(static=True, default="auto")
    precision: Precision = eqx.field(static=True, default="auto")
    memory: float | None = eqx.field(static=True, default=None)
    devices: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.method not in ("auto", *_METHODS):
            raise UserError(f"There is no method '{self.method}'. {suggest(self.method, ['auto', *_METHODS])}")
        if not (float(self.tolerance) > 0 and np.isfinite(float(self.tolerance))):
            raise UserError(f"The tolerance is a positive number, not {float(self.tolerance):g}: try 1e-4.")

    def settle(self, network: Network, data: Dataset, runs: int = 1) -> Stepper:
        """Choose method, coordinates and precision."""
        method = self._method(network, data)
        coordinates = cheapest(network, data) if self.coordinates == "auto" else self.coordinates
        precision = self.precision
        if precision == "auto":
            single = coordinates == "gram" and data.x.dtype == jnp.float64 and float(self.tolerance) >= _SINGLE
            form = network.gram_form(data)
            large = form is not None and (form.neurons or 0) * float(data.n) ** 2 >= _LARGE
            precision = "mixed" if single and large and method != "runge-kutta" else "full"
        return self._made(method, coordinates, precision).settle(network, data, runs)

    def resume(self, settled: Flow) -> Stepper:
        """Go on by the same method in the same coordinates, to this flow's tolerance."""
        for name, kind in _METHODS.items():
            if isinstance(settled, kind):
                return self._made(name, settled.coordinates, settled.precision)
        raise UserError(f"A run by {type(settled).__name__} cannot go on as gradient flow: extend it by the same flow.")

    def _made(self, method: str, coordinates: str, precision: str) -> Any:
        common: dict[str, Any] = {
            "loss": self.loss,
            "max_steps": int(self.max_steps),
            "coordinates": coordinates,
            "precision": precision,
            "memory": self.memory,
            "devices": self.devices,
        }
        if method == "runge-kutta":
            return RungeKutta(rtol=float(self.tolerance), atol=1e-2 * float(self.tolerance), **common)
        kind = Exponential if method == "exponential" else Stabilised
        return kind(tolerance=float(self.tolerance), **common)

    def _method(self, network: Network, data: Dataset) -> str:
        if self.method != "auto":
            return self.method
        if float(self.tolerance) < _FINE or network.small_initial_outputs:
            return "runge-kutta"
        # At kinks both methods need as many steps, and Chebyshev stages cost less than an eigendecomposition.
        solvable = self.loss.quadratic and data.y.size <= _MOST_OUTPUTS and not network.has_kinks
        return "exponential" if solvable and network.cheap_kernel else "stabilised"
