"""The runs to which the theorems of zhou2023 apply: the network, Assumptions 1 to 4, and a small problem."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.flows import RungeKutta, Trajectory
from unlazy.networks import ConvNet, Network
from unlazy.papers.zhou2023.theorems.dynamics import Prediction, order, predict
from unlazy.papers.zhou2023.theorems.structure import TwoLayerForm, two_layer_form
from unlazy.probes import InputWeights, OutgoingWeights, Probe
from unlazy.theory import Hypothesis, Reading, require, require_type, through
from unlazy.theory.hypotheses import gradient_flow

AUTHORS = "Zhou, Zhou, Li, Xu (2023)"
_WINDOW = np.linspace(-10.0, 10.0, 8193)  # where the largest |σ''| is searched for ...
_TAIL = np.array([-100.0, -50.0, -20.0, 20.0, 50.0, 100.0])  # ... and where |σ''| must not be larger
_CHANCE = 6.0  # standard errors by which a variance may be off


def form_of(network: Network) -> TwoLayerForm | None:
    """Return a network as the paper writes it, or None if it has another form."""
    try:
        return two_layer_form(network)
    except UserError:
        return None


def is_known(network: Network) -> bool:
    """Return whether a network has the paper's form: a sum over the neurons of one layer, all parameters trained."""
    return form_of(network) is not None


def read_form(run: Trajectory) -> Reading[TwoLayerForm]:
    """Require a network of the paper's form."""
    what = "two layers that are both trained, as a sum over neurons"
    return (yield from require_type(what, form_of(run.start), TwoLayerForm))


def weights_of(network: Network) -> tuple[Probe, ...]:
    """Return the probe of θ_W,β = (W_β; b_β) of every channel; none for a network of another form."""
    form = form_of(network)
    return () if form is None else (InputWeights((form.layer,)),)


def one_size(form: TwoLayerForm) -> tuple[Hypothesis, float]:
    """Require that all parameters start with one standard deviation ε, in a flow without learning-rate factors.

    If the network states its ``scales``, these are used. Otherwise ε is the root mean square of all parameters, and
    those of both layers must agree with it within six standard errors.
    """
    named = getattr(form.network, "scales", None)
    both = [form.weights.ravel(), form.readouts.ravel()]
    if named is None:
        square = float(np.mean(np.concatenate(both) ** 2))
        off = [abs(np.mean(one**2) / max(square, 1e-300) - 1) <= _CHANCE * math.sqrt(2 / one.size) for one in both]
        epsilon, alike = math.sqrt(square), square > 0 and all(off)
    else:
        epsilon, alike = float(named[0]), len(set(named)) == 1
    alike = alike and len(form.weights) > 1 and bool(np.allclose(form.rates, 1.0, rtol=1e-5))
    what = "all weights drawn with one standard deviation ε and trained at rate 1, several channels"
    return Hypothesis(what, alike), epsilon


def largest_slopes(activation: Activation) -> float:
    """Compute C_L of Assumption 1, the larger of sup |σ'| and sup |σ''|, of an activation; it may be infinite.

    The second is the largest value on a fine grid of [-10, 10], or infinite if |σ''| is larger at ±20, ±50 or ±100 by
    more than 1 %.
    """
    near, far = (
        float(np.abs(np.asarray(activation.second_derivative(jnp.asarray(at)))).max()) for at in (_WINDOW, _TAIL)
    )
    bent = near if far <= 1.01 * near else math.inf
    return max(float(activation.lipschitz), bent)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A run of the paper's network, and the prediction of eq. 44 for it."""

    run: Trajectory
    form: TwoLayerForm  # its network at the start
    epsilon: float  # standard deviation of all weights at the start
    prediction: Prediction
    end: float  # T_eff of eq. 54, of the linear flow

    @property
    def inside(self) -> np.ndarray:
        """Which of the run's times lie in (0, T_eff]."""
        return (self.run.times > 0) & (self.run.times <= self.end * (1 + 1e-9))

    def weights(self) -> np.ndarray:
        """Return θ_W,β at every time of the run: (times, M, m² + 1)."""
        return np.asarray(through(self.run, InputWeights((self.form.layer,)))[self.form.layer], float)


def first_assumption(sigma: Activation) -> Reading[float]:
    """Require Assumption 1 of an activation, and return C_L."""
    smooth = not sigma.kinks and sigma.multiplicity == 1
    yield from require(Hypothesis("Assumption 1: σ twice differentiable with σ(0) = 0 and σ'(0) ≠ 0", smooth))
    slopes = largest_slopes(sigma)
    yield from require(Hypothesis("Assumption 1: |σ'| and |σ''| bounded, by C_L", math.isfinite(slopes), slopes))
    return slopes


def read(run: Trajectory, zeros: bool = True) -> Reading[Setting]:
    """Require the paper's network with small weights, Assumptions 1 to 4, and a flow observed before T_eff.

    With ``zeros``, pixels and targets may be 0, contrary to Assumption 2: 1/c ≤ |x|, |y| ≤ c is read as a lower and an
    upper bound of both. The upper bounds always hold for finitely many images.
    """
    form = yield from read_form(run)
    if not zeros:
        zero = float(np.mean(np.asarray(run.data.x) == 0))
        yield Hypothesis("Assumption 2: |x| bounded away from 0 (share of zero pixels)", zero == 0, zero, 0.0)
        least = float(np.abs(np.asarray(run.data.y)).min())
        yield Hypothesis("Assumption 2, also for targets: min |y| > 0", least > 0, least, 0.0)
    yield from first_assumption(form.activation)
    alike, epsilon = one_size(form)
    yield from require(alike)
    gamma = order(epsilon, len(form.weights))
    # Outputs of small weights are tiny, so methods that control only the error of outputs lose track of the weights.
    relative_tolerance = hasattr(run.flow, "rtol")
    yield from require(
        Hypothesis("Assumption 3 with γ = -log ε² / log M > 1", gamma > 1, gamma, 1.0),
        gradient_flow(run),
        Hypothesis("weights integrated to a relative tolerance (method runge-kutta)", relative_tolerance),
    )
    prediction = predict(run.start, run.data, run.loss)
    gap = prediction.linear.gap / float(prediction.linear.values[0])
    yield from require(Hypothesis("Assumption 4: a spectral gap λ_1 > λ_2, as a share of λ_1", gap > 1e-8, gap))
    setting = Setting(run, form, epsilon, prediction, prediction.effective_time(epsilon))
    first = float(np.min(run.times, where=run.times > 0, initial=np.inf))
    what = "an observation of the run in (0, T_eff], T_eff of eq. 54"
    yield Hypothesis(what, bool(setting.inside.any()), None if np.isinf(first) else first, setting.end)
    return setting


def small_images(*, scale: float = 1e-6, zero: bool = False, activation: str = "tanh") -> Trajectory:
    """Train 32 kernels of 3 x 3 pixels on six images of 6 x 6 pixels up to T_eff.

    ``scale`` is the standard deviation of all weights at the start, ``activation`` the name of the activation; if
    ``zero``, the images have a column of zeros.
    """
    data = six_images(zero=zero)
    options = {"scale": scale, "rescaled": True, "activation": activation}
    network = ConvNet((32,), 3, image=(1, 6, 6), key=jax.random.key(1), **options)
    found = predict(network, data)
    end = found.effective_time(scale) or 1 / float(found.linear.values[0])
    probes = [*weights_of(network), OutgoingWeights(("conv1",))]
    return RungeKutta(rtol=1e-6)(network, data, np.linspace(0.0, end, 4), probes)


def six_images(*, zero: bool = False) -> Dataset:
    """Draw six images of 6 x 6 pixels in [0.2, 1], with a column of zeros if ``zero``, and targets in [1, 3]."""
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.uniform(keys[0], (6, 1, 6, 6), minval=0.2)
    x = jnp.where(jnp.arange(6) == 0, 0.0, x) if zero else x
    return Dataset(x, jax.random.uniform(keys[1], (6,), minval=1.0, maxval=3.0), name="six small images")
