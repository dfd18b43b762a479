"""The solution operator F of Appendix D.3, acting on trajectories of weights that are known at the times of a run.

A trajectory W' = (w_1', w_2') is mapped to
F_1(W')(t) = w_1(0) - ∫ Σ_p π_p d_p φ_1(x_p) B_k(x_p) ds and F_2(W')(t) = w_2(0) - ∫ Σ_p π_p d_p φ_2(H_2(x_p)) ds,
where d, B and H_2 are those of W'(s). A solution of the mean-field ODEs is a fixed point.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Activation
from unlazy.papers.aiad2026.theorems.setting import Setting, drawn_features, integrated
from unlazy.theory.coupling import neurons_of

_DRAWN = 4096  # neurons that represent an infinite first block in norms: their error is about 1 %
_REACH = 50.0  # activations are examined on |h| < 50, and on twice that to see whether they are bounded
_POINTS = 40_001


class Path(NamedTuple):
    """A trajectory of weights at the times of a run, with the start of the run.

    Attributes
    ----------
    channels
        f_k at the training points: (times, n, r).
    first
        w_1 - w_1(0): (times, neurons, r). An infinite first block is represented by neurons drawn from its law.
    second
        w_2 - w_2(0): (times, neurons).
    """

    channels: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def scaled(self, first: float, second: float) -> "Path":
        """Multiply the changes since the start: zeros give a network at rest.

        Parameters
        ----------
        first, second
            Factors of the changes of w_1 and w_2.
        """
        channels = self.channels[:1] + first * (self.channels - self.channels[:1])
        return Path(channels, first * self.first, second * self.second)


def trajectory_distance(one: Path, other: Path) -> np.ndarray:
    """Compute ‖W' - W''‖_t of Appendix D.2 at every time t.

    It is the larger of max_k E[sup_{s<=t} |w_1' - w_1''|²]^½ and E[sup_{s<=t} |w_2' - w_2''|²]^½.

    Parameters
    ----------
    one, other
        Two trajectories with the same start.
    """
    first, second = (np.maximum.accumulate(np.square(a - b), axis=0) for a, b in zip(one[1:], other[1:], strict=True))
    return np.sqrt(np.maximum(first.mean(axis=1).max(axis=1), second.mean(axis=1)))


class Sizes(NamedTuple):
    """The quantities in the constants of Lemmas D.2 to D.4; each is the largest along a trajectory."""

    slope: float  # Σ_p π_p |d_p|
    values: float  # E[φ_2(H_2)²]^½ at any training point
    signal: float  # |B_k| at any training point
    weight: float  # E[|w_2| |L|_1], where |L|_1 = Σ_k |L_{c,k}|
    mixed: float  # E[|w_2| |L|_1 |L_k|]


class Picard(Setting):
    """A run of three layers, and the operator F that has the run as its fixed point."""

    @functools.cached_property
    def features(self) -> np.ndarray:
        """φ_1(L^0 x_p): (neurons, n). Those of an infinite first block are drawn from a fixed seed."""
        return drawn_features(self, _DRAWN)

    @functools.cached_property
    def gram(self) -> np.ndarray:
        """K_μ0 at the training points."""
        return self.kernel(self.x)

    @functools.cached_property
    def path(self) -> Path:
        """The trajectory of the run, as it was observed."""
        channels, rows = self.drive.channels[:, : self.run.data.n], neurons_of(self.run)
        second = rows["block-2"][:, :, 0] - rows["block-2"][:1, :, 0]
        if "block-1" in rows:
            first = rows["block-1"] - rows["block-1"][:1]
        else:  # eq. 14, with the Γ that gives these channels
            gamma = np.einsum("pq,tqk->tpk", np.linalg.pinv(self.gram), channels[:1] - channels)
            first = -np.einsum("jp,tpk->tjk", self.features, gamma)
        return Path(channels, first, second)

    def at(self, first: np.ndarray, second: np.ndarray) -> Path:
        """Return the trajectory with given changes of weights; the first block must be finite.

        Parameters
        ----------
        first, second
            w_1 - w_1(0) and w_2 - w_2(0), as in `Path`.
        """
        moved = np.einsum("tjk,jp->tpk", first, self.features) / first.shape[1]
        return Path(self.path.channels[:1] + moved, first, second)

    @functools.cached_property
    def _forces(self) -> Callable[[Array, Array], tuple[Array, Array, list[Array]]]:
        """Compute π_p d_p B_k(x_p) and Σ_p π_p d_p φ_2(H_2(x_p)) at every time, and sizes; compiled once."""
        data, loss, block = self.run.data, self.run.loss, self.second
        start, mixing = cast(Array, block.a)[:, 0], jnp.abs(block.w)
        total = mixing.sum(axis=1)

        def one(now: tuple[Array, Array]) -> tuple[Array, Array, list[Array]]:
            hidden, weights = block.hidden(now[0].T), start + now[1]
            values, slopes = block.activation(hidden), block.activation.derivative(hidden)
            slope = loss.slope(weights @ values / block.width, data.y, data.weight)
            signal = (slopes * weights[:, None]).T @ block.w / block.width
            heavy = jnp.abs(weights) * total / block.width
            sizes = [
                jnp.sum(jnp.abs(slope)),
                jnp.sqrt(jnp.max(jnp.mean(jnp.square(values), axis=0))),
                jnp.max(jnp.abs(signal)),
                jnp.sum(heavy),
                jnp.max(heavy @ mixing),
            ]
            return slope[:, None] * signal, values @ slope, sizes

        return jax.jit(lambda channels, second: jax.lax.map(one, (channels, second)))

    def apply(self, path: Path) -> tuple[Path, float, Sizes]:
        """Compute F(W'), a bound on its integration error in the norm of `trajectory_distance`, and the sizes of W'.

        Parameters
        ----------
        path
            The trajectory W'.
        """
        dtype = self.run.data.x.dtype
        below, above, large = self._forces(jnp.asarray(path.channels, dtype), jnp.asarray(path.second, dtype))
        times = self.run.times
        (gamma, wrong), (second, error) = (integrated(times, np.asarray(one, float)) for one in (below, above))
        sizes = Sizes(*(float(jnp.max(size)) for size in large))
        channels = self.path.channels[:1] - np.einsum("pq,tqk->tpk", self.gram, gamma)
        first = -np.einsum("jp,tpk->tjk", self.features, gamma)
        return Path(channels, first, -second), max(error, self.feature_size * wrong * len(self.x)), sizes

    @property
    def feature_size(self) -> float:
        """The largest E[φ_1(x_p)²]^½."""
        return float(np.sqrt(np.max(np.diag(self.gram))))

    def lipschitz(self, one: Sizes, other: Sizes) -> float:
        """Compute c in ‖F(W') - F(W'')‖_t <= c ∫ ‖W' - W''‖_s ds (Lemma D.4) from the sizes of both trajectories.

        With κ = max_p E[φ_1²]^½, ℓ and s the Lipschitz constants of φ_2 and φ_2', λ that of the loss's slope:
        |Δŷ| <= y δ with y = sup E[φ_2²]^½ + ℓ κ E[|w_2| |L|_1]; |ΔB_k| <= b δ with
        b = ℓ E[L_k²]^½ + s κ E[|L_k| |L|_1 |w_2|]; and c is the larger of κ (λ y sup|B| + b Σ π|d|) and
        λ y sup E[φ_2²]^½ + ℓ κ E[|L|_1²]^½ Σ π|d|. As the same bound on |ΔH_2| holds for all neurons, no event of small
        probability has to be excluded.

        Parameters
        ----------
        one, other
            The sizes that `apply` returned for the two trajectories.
        """
        most, mixing, phi = Sizes(*map(max, one, other)), np.abs(self.mixing), self.second.activation
        total, kappa, curve = mixing.sum(axis=1), self.feature_size, float(self.shares.sum()) * self.loss_slope
        output = most.values + phi.lipschitz * kappa * most.weight
        signal = phi.lipschitz * float(np.sqrt(np.mean(mixing**2, axis=0).max())) + curvature(phi) * kappa * most.mixed
        below = kappa * (curve * output * most.signal + signal * most.slope)
        above = curve * output * most.values + phi.lipschitz * kappa * float(np.sqrt(np.mean(total**2))) * most.slope
        return max(below, above)


@functools.lru_cache(maxsize=32)
def curvature(activation: Activation) -> float:
    """Compute sup |φ''| on |h| < 50, the Lipschitz constant of φ'; infinite where φ has a kink."""
    if activation.kinks:
        return float("inf")
    return float(jnp.max(jnp.abs(activation.second_derivative(jnp.linspace(-_REACH, _REACH, _POINTS)))))


@functools.lru_cache(maxsize=32)
def ceiling(activation: Activation) -> float:
    """Compute sup |φ|; infinite where φ still grows from |h| = 50 to 100."""
    near, far = (float(jnp.max(jnp.abs(activation(reach * jnp.linspace(-1, 1, _POINTS))))) for reach in (_REACH, 100.0))
    return far if far <= (1 + 1e-6) * near else float("inf")
