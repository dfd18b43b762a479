"""Gradient flow θ' = -R ∇L(θ) to one tolerance, by the method that suits the problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy._registry import check_maker, find, kebab
from unlazy._types import Count, Positive
from unlazy.data import Dataset
from unlazy.flows.exponential import Exponential
from unlazy.flows.method import Coordinates, Flow, Method, count
from unlazy.flows.optimisers import positive
from unlazy.flows.runge_kutta import RungeKutta
from unlazy.flows.stabilised import Stabilised
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, with_fields

_OPTIONS = ("loss", "tolerance", "max_steps", "coordinates", "precision", "memory", "devices")
# These are found without the registry, because modules that the registry imports make flows by these methods.
_OURS = {kebab(one.__name__): one for one in (Exponential, Stabilised, RungeKutta)}
_FINE = 1e-6  # below this a method of fifth order pays
_MAX_OUTPUTS = 3000  # n k beyond which an eigendecomposition per step costs more than it saves
_LARGE = 2.0**28  # m n² above which single precision pays
_SINGLE = 1e-5  # the finest tolerance that float32 products do not spoil


class GradientFlow(Flow):
    """Follows the gradient flow of any network and loss to one ``tolerance``, by the method that suits the problem.

    The tolerance bounds the error of each step in what is averaged over neurons: the root mean square of the error in
    the outputs, on the training inputs and up to 64 test inputs, relative to that of the targets. Single neurons may be
    off by more, above all at kinks. ``stats["error"]`` adds up the estimates.

    Parameters
    ----------
    loss
        The loss to descend.
    tolerance
        Largest error of a step. For a method with ``rtol`` and ``atol`` these are the tolerance and 1 % of it.
    max_steps
        Number of steps, accepted or not, after which a run ends with `Status.step_limit`.
    method
        ``"auto"``: `Exponential` for squared loss on a smooth two-layer network (up to 3000 outputs n k), `Stabilised`
        for other losses, networks and sizes and wherever there are kinks, and `RungeKutta` for tolerances below 1e-6
        and for networks from small weights; the tolerance then bounds the relative error of the parameters. Or the
        name of any `Method` in the registry, your own included, or ``package.module:Thing``; it receives those of the
        other options that it has. Or a `Method` with all its options; no other option may then be given.
    coordinates, memory, devices
        As for `Exponential`.
    precision
        ``"full"``, ``"mixed"`` (see `Exponential`), or ``"auto"``: mixed for large problems in float64 whose tolerance
        float32 products do not touch. ``stats`` says what was chosen.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=positive)
    max_steps: np.ndarray = eqx.field(default=1_000_000, converter=count)
    method: Any = "auto"  # str | Method: in a recipe a name, which stays one
    coordinates: Coordinates = eqx.field(static=True, default="auto")
    precision: Literal["auto", "full", "mixed"] = eqx.field(static=True, default="auto")
    memory: Positive | None = eqx.field(static=True, default=None)
    devices: Count | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.method != "auto":
            self._named()

    def resolve(self, network: Network, data: Dataset) -> Method:
        """Choose method, coordinates and precision."""
        method = (self._chosen(network, data) if self.method == "auto" else self._named()).resolve(network, data)
        precise = self.precision != "auto" or not hasattr(method, "tolerance") or float(self.tolerance) < _SINGLE
        if precise or getattr(method, "coordinates", None) != "gram" or data.x.dtype != jnp.float64:
            return method
        form = network.gram_form(data)
        large = form is not None and (form.neurons or 0) * float(data.n) ** 2 >= _LARGE
        return with_fields(method, precision="mixed") if large and hasattr(method, "precision") else method

    def resume(self, previous: Method) -> Method:
        """Continue with the same method in the same coordinates, to the tolerance of this flow."""
        own = None if self.method == "auto" else self._named()
        if isinstance(self.method, str) and previous.automatic:
            own = self._made(type(previous))
        if own is None:
            name = type(previous).__name__
            raise UserError(f"A run by {name} cannot be continued as gradient flow: extend it by the same flow.")
        return own.resume(previous)

    def _chosen(self, network: Network, data: Dataset) -> Method:
        if float(self.tolerance) < _FINE or network.small_initial_outputs:
            return self._made(RungeKutta)
        # At kinks both methods need as many steps, and Chebyshev stages cost less than an eigendecomposition.
        solvable = self.loss.quadratic and data.y.size <= _MAX_OUTPUTS and not network.has_kinks
        return self._made(Exponential if solvable and network.cheap_kernel else Stabilised)

    def _named(self) -> Method:
        """Return the method that was given, itself or by name, and reject options that it does not have."""
        given, name, handed = self.method, type(self.method).__name__, set()
        if isinstance(given, str):
            name, given = given, _OURS.get(kebab(given)) or find("flow", given)
        if not isinstance(given, Method):
            check_maker("flow", given, name)
            handed, given = set(self._options(given)), self._made(given)
        if not isinstance(given, Method):
            raise UserError(f"The flow '{name}' is not a method of integration: run it instead of GradientFlow.")
        standard = GradientFlow()
        for option in {*_OPTIONS} - handed - ({"tolerance"} if "rtol" in handed else set()):
            if not eqx.tree_equal(getattr(self, option), getattr(standard, option)):
                raise UserError(
                    f"GradientFlow cannot hand the option '{option}' on to the method '{name}': leave it out, or give "
                    "the method itself with its own options."
                )
        return given

    def _made(self, maker: Callable[..., Any]) -> Any:
        return maker(**self._options(maker))

    def _options(self, maker: Callable[..., Any]) -> dict[str, Any]:
        """Return those of this flow's options that a method has, and the tolerances of Diffrax if it has those."""
        values = {name: getattr(self, name) for name in _OPTIONS}
        values["precision"] = "full" if self.precision == "auto" else self.precision
        values["tolerance"] = values["rtol"] = float(self.tolerance)
        values |= {"atol": 1e-2 * float(self.tolerance), "max_steps": int(self.max_steps)}
        taken = inspect.signature(maker).parameters
        return {name: value for name, value in values.items() if name in taken}
