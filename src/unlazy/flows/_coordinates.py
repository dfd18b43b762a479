"""In which coordinates, in what precision and on how much memory a network is trained."""

from __future__ import annotations

from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from unlazy._errors import UserError
from unlazy._memory import GIB, must_fit, total
from unlazy.data import Dataset
from unlazy.flows._base import Flow, Stepper
from unlazy.flows._outputs import WATCHED
from unlazy.networks import AXIS, Layout, Network, Prepared, with_fields

Coordinates = Literal["auto", "weights", "gram"]
Precision = Literal["full", "mixed"]
F = TypeVar("F", bound="Coordinated")

_LEAST_SLAB = 256


class Coordinated(Stepper):
    """A flow that can follow a network in weights or, where a layer is trained on fixed features, in Gram coordinates.

    ``coordinates="auto"`` takes the cheaper of the two: a gradient costs 4 m D n operations in weights and 2 m n² in
    Gram coordinates, which are the same flow up to rounding. An infinite embedding (D = ∞) has Gram coordinates only.

    ``precision="mixed"`` (Gram coordinates, float64 data) makes matrix products and activations in float32 and adds up
    coefficients, outputs and residuals in float64.

    ``memory``, in GiB, bounds what a run in Gram coordinates may take (all that is free, if left out): where not
    everything fits, neurons are gone through slab by slab, at up to twice the work. ``devices`` share the neurons
    between them; if left out all devices do whose number divides the width.
    """

    coordinates: Coordinates = eqx.field(static=True, default="auto")
    precision: Precision = eqx.field(static=True, default="full")
    memory: float | None = eqx.field(static=True, default=None)
    devices: int | None = eqx.field(static=True, default=None)

    def settle(self: F, network: Network, data: Dataset, runs: int = 1) -> F:
        """Choose coordinates where that was left open, and refuse what cannot work."""
        _check(self)
        chosen, form = self.coordinates, network.gram_form(data)
        if chosen == "auto":
            chosen = cheapest(network, data) if self.exact_in_gram() is None else "weights"
        elif chosen == "gram":
            if form is None:
                raise UserError(
                    "coordinates='gram' needs a layer that is trained on fixed features, and this "
                    f"{type(network).__name__} has none: use coordinates='weights'."
                )
            reason = self.exact_in_gram()
            if reason is not None:
                raise UserError(reason)
        unfit = chosen != "gram" or data.x.dtype != jnp.float64 or form is None or form.neurons is None
        if self.precision == "mixed" and unfit:
            raise UserError(
                "precision='mixed' is for Gram coordinates of a TwoLayer network on float64 data, not for "
                f"{chosen} of a {type(network).__name__} on {data.x.dtype}: use precision='full'."
            )
        settled = with_fields(self, coordinates=chosen)
        settled.layout(network, data, runs)  # refuses what does not fit
        return settled

    def exact_in_gram(self) -> str | None:
        """Say why this flow is not the same in Gram coordinates, if it is not."""
        return None

    def layout(self, network: Network, data: Dataset, runs: int = 1) -> Layout:
        """Say how neurons are gone through: in slabs if not everything fits, on which devices, in which precision."""
        form = network.gram_form(data) if self.coordinates == "gram" else None
        if form is None or form.neurons is None:
            return Layout()
        limit = None if self.memory is None else self.memory * GIB
        size, product = data.x.dtype.itemsize, 4 if self.precision == "mixed" else data.x.dtype.itemsize
        m, n, watched = form.neurons, data.n, min(WATCHED, 0 if data.x_test is None else data.x_test.shape[0])
        points = n + (0 if data.x_test is None else data.x_test.shape[0])
        row = points * product + 5 * n * size  # one neuron: h_0, and B at the start, before, now, next, and its change
        must_fit(
            runs * m * row + _LEAST_SLAB * 8 * (n + watched) * product,
            f"A run of {runs} x {m:,} neurons on {n:,} training and {points - n:,} test points",
            "take fewer neurons, float32 or mixed precision, or a smaller test set",
            limit,
        )
        on_the_way = 8 * (n + watched) * product  # what one pass makes of one neuron
        # By default by the size of the machine, not by what is free just now: a second run must do the same.
        room = (total() / 2 if limit is None else limit) - runs * m * row
        slab = None
        if m * on_the_way > room:
            slab = 2 ** int(np.log2(max(_LEAST_SLAB, room / on_the_way)))
        return Layout(slab, _mesh(m, self.devices) if runs == 1 else None, self._product())

    def _product(self) -> jnp.dtype | None:
        return jnp.dtype(jnp.float32) if self.precision == "mixed" else None

    def resume(self, settled: Flow) -> Stepper:
        """Go on in the coordinates of the run."""
        if not isinstance(settled, Coordinated):
            return self
        return with_fields(self, coordinates=settled.coordinates, precision=settled.precision)

    def prepare(self, network: Network, data: Dataset, layout: Layout) -> Prepared:
        """Do the frozen work once, in the coordinates chosen."""
        form = network.gram_form(data) if self.coordinates == "gram" else None
        return network.prepare(data) if form is None else form.prepare(layout)


def _check(flow: Coordinated) -> None:
    for name, known in (("coordinates", ("auto", "weights", "gram")), ("precision", ("full", "mixed"))):
        if getattr(flow, name) not in known:
            words = ", ".join(f"'{one}'" for one in known)
            raise UserError(f"{name.capitalize()} are one of {words}, not '{getattr(flow, name)}'.")
    if flow.memory is not None and not flow.memory > 0:
        raise UserError(f"Memory is a positive number of GiB, not {flow.memory:g}.")
    if flow.devices is not None and not 1 <= flow.devices <= len(jax.devices()):
        raise UserError(f"There are {len(jax.devices())} devices here, so devices = {flow.devices} is not possible.")


def cheapest(network: Network, data: Dataset) -> Literal["weights", "gram"]:
    """Choose coordinates by the cost of a gradient: 4 m D n operations in weights, 2 m n² in Gram coordinates."""
    form = network.gram_form(data)
    return "weights" if form is None or data.n >= 2 * form.features else "gram"


def _mesh(width: int, devices: int | None) -> jax.sharding.Mesh | None:
    if devices is not None and width % devices:
        raise UserError(f"{width:,} neurons cannot be shared evenly between {devices} devices: take a multiple.")
    count = next(k for k in range(len(jax.devices()), 0, -1) if width % k == 0) if devices is None else devices
    if count == 1:
        return None
    return jax.sharding.Mesh(np.asarray(jax.devices()[:count]), (AXIS,), axis_types=(AxisType.Auto,))
