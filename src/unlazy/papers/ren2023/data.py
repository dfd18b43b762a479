"""Spherically symmetric inputs for ren2023: three laws of the radius, fixed samples, and a source of fresh ones.

The target is relu(1 - |x|), or relu(1 - |P x|) with P the projection onto a ``subspace`` (section 5 of the paper). The
subspace is spanned by the first axes: a symmetric initialisation does not distinguish them from any others.

Radii are drawn from a table of the law's distribution function: the probability of each cell is exact, and inside a
cell (less than 1e-3 wide in the bulk, 2 % in a tail) radii are uniform in 1/(1 + r). This runs in compiled code, unlike
`sample_radii`, which is exact.
"""

import dataclasses
import functools
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._types import Count, Inputs, KeyLike, Outputs, Positive, PRNGKey, Share
from unlazy.data import Dataset, Source, checks
from unlazy.papers.ren2023.radial import gauss_legendre, radial_cdf, radial_quadrature

RadialLaw = Literal["heavy-tailed", "gaussian", "ball"]

_FARTHEST = 1e9  # radius at which the table of the heavy-tailed law ends and its tail 1/r begins
_RAREST = 1e-12  # smallest P(|x| > r) of a sample
_SMALLEST_PART = 1e-6  # smallest probability of a truncated law, so that rounding does not matter
_SURVIVAL = 1e-18  # P(|x| > r) at which quadratures of light tails end


class SphericalSource(Source):
    """Fresh samples of a spherically symmetric law, with ren2023's target (used in its Appendix E).

    Parameters
    ----------
    d
        Number of inputs.
    law, scale
        "heavy-tailed" (section 2, with αβ = ``scale``), "gaussian" (N(0, scale²/d) in each coordinate, so that |x| is
        near scale) or "ball" (uniform in the ball of radius ``scale``).
    stratified
        Draw one radius from each of n equally likely shells, which removes nearly all randomness of the radii.
    tail
        Share of the samples that is drawn uniformly in log P(|x| > r) instead, so that large radii are frequent;
        weights correct for it.
    truncate
        Radius below which the law is conditioned to lie.
    subspace
        Dimension of the subspace on which the target depends; the whole space by default.
    """

    d: Count = eqx.field(static=True)
    law: RadialLaw = eqx.field(static=True, default="heavy-tailed")
    scale: Positive = eqx.field(static=True, default=1.0)
    stratified: bool = eqx.field(static=True, default=True)
    tail: Share = eqx.field(static=True, default=0.0)
    truncate: Positive | None = eqx.field(static=True, default=None)
    subspace: Count | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.truncate is not None:
            inside = 1 - float(survival(self.truncate, self.law, self.d, self.scale))
            if inside < _SMALLEST_PART:
                raise UserError(
                    f"Only {inside:.1g} of the inputs have |x| < truncate = {self.truncate:g}, too few to draw from: "
                    "use a larger radius."
                )
        if self.subspace is not None:
            checks.count("d", self.d, self.subspace)

    def draw(self, n: int, *, key: KeyLike) -> Dataset:
        """Draw n new samples, with weights where ``tail`` is not 0."""
        radius_key, direction_key = jax.random.split(as_key(key))
        beyond, weight = self._probabilities(n, radius_key)
        r = quantile(beyond, self.law, self.d, self.scale)
        direction = jax.random.normal(direction_key, (n, self.d))
        x = (r / jnp.linalg.norm(direction, axis=1))[:, None] * direction
        return Dataset(x, target(x, self.subspace), weight=weight, name=f"{self.law}, d = {self.d}")

    def _probabilities(self, n: int, key: PRNGKey) -> tuple[Float[Array, " n"], Float[Array, " n"] | None]:
        """Draw P(|x| > r) of each sample, and return it with the weights."""
        split_key, place_key = jax.random.split(key)
        place = jax.random.uniform(place_key, (n,))
        if self.stratified:
            place = (jnp.arange(n, dtype=place.dtype) + place) / n
        least = _RAREST
        if self.truncate is not None:  # given |x| <= R, P(|x| > r) lies between P(|x| > R) and 1
            least = max(least, float(survival(self.truncate, self.law, self.d, self.scale)))
        even = least + (1 - least) * place
        if not self.tail:
            return even, None
        reach = -math.log(least)
        far = jnp.exp(-reach * place)
        chosen = jax.random.uniform(split_key, (n,)) < self.tail
        beyond = jnp.where(chosen, far, even)
        density = (1 - self.tail) / (1 - least) + self.tail / (reach * beyond)
        return beyond, 1 / (density * (1 - least))


def target(x: Inputs, subspace: int | None = None) -> Outputs:
    """Compute relu(1 - |P x|); P projects onto the first axes, as many as ``subspace``, or is the identity."""
    return jnp.maximum(1 - jnp.linalg.norm(x if subspace is None else x[:, :subspace], axis=1), 0)


def survival(r: float | np.ndarray, law: RadialLaw, d: int, scale: float = 1.0) -> np.ndarray:
    """Compute P(|x| > r) at radii r above 0; ``law``, ``d`` and ``scale`` are those of `SphericalSource`."""
    radius = np.asarray(r, float)
    if law == "heavy-tailed":
        return np.asarray(1 - radial_cdf(radius, d, scale))
    if law == "gaussian":
        return np.asarray(special.gammaincc(d / 2, d * (radius / scale) ** 2 / 2))
    return np.asarray(-np.expm1(d * np.log(np.minimum(radius / scale, 1.0))))


@functools.lru_cache(maxsize=16)
def _table(law: RadialLaw, d: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate P(|x| > r), rising from 0 to 1, and 1/(1 + r) there."""
    if law == "heavy-tailed":
        # The density oscillates with a period of about π/c; each of the first 64 periods gets tens of cells.
        unit = math.exp(-math.lgamma(d / 2 + 1) / d) / (2 * math.sqrt(math.pi * d) * scale)  # 1/c
        near = np.linspace(0, (d / 2 + 64 * math.pi) * unit, 8192)[1:]
        radii = np.concatenate([near, np.geomspace(near[-1], max(_FARTHEST, 2 * near[-1]), 1024)[1:]])
    elif law == "gaussian":
        radii = scale * np.linspace(0, math.sqrt(2 * float(special.gammainccinv(d / 2, 1e-30)) / d), 8193)[1:]
    else:
        radii = scale * np.linspace(0, 1, 8193)[1:] ** (1 / d)
    chance = np.minimum.accumulate(survival(radii, law, d, scale))
    last = [] if law != "heavy-tailed" else [0.0]  # its tail is 1/r to infinity
    ends = np.concatenate([last, (1 / (1 + radii))[::-1], [1.0]])
    return np.concatenate([last, chance[::-1], [1.0]]), ends


def quantile(beyond: Float[Array, " n"], law: RadialLaw, d: int, scale: float = 1.0) -> Float[Array, " n"]:
    """Return the radius r with P(|x| > r) = ``beyond``, by interpolation in a table; the law is that of `survival`."""
    chance, place = (jnp.asarray(values, beyond.dtype) for values in _table(law, d, scale))
    return 1 / jnp.interp(beyond, chance, place) - 1


@checked
def spherical(
    n: Count,
    d: int,
    law: RadialLaw = "heavy-tailed",
    scale: float = 1.0,
    n_test: int = 0,
    stratified: bool = True,
    tail: float = 0.0,
    truncate: float | None = None,
    subspace: int | None = None,
    *,
    key: KeyLike,
) -> Dataset:
    """Draw a fixed set of samples of a `SphericalSource`.

    Parameters
    ----------
    n, n_test
        Number of training and of test samples; test samples are drawn with ``tail = 0``.
    d, law, scale, stratified, tail, truncate, subspace
        Options of `SphericalSource`.
    key
        A JAX key or a seed.
    """
    checks.count("n_test", n_test, 0)
    train_key, test_key = jax.random.split(as_key(key))
    source = SphericalSource(d, law, scale, stratified, tail, truncate, subspace)
    train = source.draw(n, key=train_key)
    if not n_test:
        return train
    test = dataclasses.replace(source, tail=0.0).draw(n_test, key=test_key)
    return Dataset(train.x, train.y, test.x, test.y, weight=train.weight, name=train.name)


@checked
def spherical_quadrature(
    d: Count, law: RadialLaw = "heavy-tailed", scale: Positive = 1.0, order: int = 8, far: float = 1e9
) -> Dataset:
    """Return nodes x = r e_1 in d dimensions, targets relu(1 - r) and weights: a quadrature for expectations over |x|.

    It is exact up to its order for functions of |x|, such as everything that a network of infinite width computes
    (ren2023 section 3). The heavy-tailed law uses `radial_quadrature`; the others use Gauss-Legendre panels, with an
    edge at the kink r = 1.

    Parameters
    ----------
    d, law, scale
        Number of inputs, and the law of `SphericalSource` with its scale.
    order
        Number of nodes per panel.
    far
        Radius at which the quadrature of the heavy-tailed law ends.
    """
    checks.count("order", order, 2)
    if law == "heavy-tailed":
        nodes = radial_quadrature(d, scale, order, far=far)
        r, weight = np.asarray(nodes.x, float)[:, 0], np.asarray(nodes.weight, float)
    else:
        r, weight = _light(d, law, scale, order)
    dtype = jnp.result_type(float)
    return Dataset(
        jnp.zeros((r.size, d), dtype).at[:, 0].set(jnp.asarray(r, dtype)),
        jnp.asarray(np.maximum(1 - r, 0), dtype),
        weight=jnp.asarray(weight, dtype),
        name=f"quadrature, {law}, d = {d}",
    )


def _light(d: int, law: RadialLaw, scale: float, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of a law without a heavy tail."""
    if law == "ball":
        end = scale
        log_density = lambda r: math.log(d) + (d - 1) * np.log(r) - d * math.log(scale)  # noqa: E731
    else:
        end = scale * math.sqrt(2 * float(special.gammainccinv(d / 2, _SURVIVAL)) / d)
        rate = d / (2 * scale**2)
        constant = math.log(2) + d / 2 * math.log(rate) - math.lgamma(d / 2)
        log_density = lambda r: constant + (d - 1) * np.log(r) - rate * r**2  # noqa: E731
    # Both laws have their mass within a few 1/√d of the end: panels a quarter as wide resolve it.
    edges = np.unique([*np.linspace(0, end, 16 + 4 * math.ceil(math.sqrt(d))), *([1.0] if end > 1 else [])])
    r, width = gauss_legendre(edges, order)
    weight = width * np.exp(log_density(r))
    kept = weight > 1e-20
    return r[kept], weight[kept]
