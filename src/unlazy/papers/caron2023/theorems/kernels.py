"""Kernels of caron2023: the mean NTG, its two parts, its random limit and how far it varies from start to start.

With features Φ in place of inputs (the inputs themselves without an embedding) and A_j = diag(σ'(h_j)) Φ Φ^T
diag(σ'(h_j)) / d the NTG is Σ_j λ_j A_j, a sum of independent matrices with the same mean Θ*. So its mean and its
variance at the start follow from Θ* and from C_0 = E‖A_j - Θ*‖_F²:

    E‖Σ_j c_j (A_j - Θ*)‖_F² = C_0 Σ_j c_j².
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy.activations import Activation, Erf, LeakyRelu, Relu
from unlazy.networks import Asymmetrical, FirstNodes, NodeKernels, TwoLayer, with_fields


def mean_ntg(activation: Activation, x: Float[Array, "n d"]) -> np.ndarray:
    """Θ*(x, x') = (x·x'/d) E[σ'(w·x/√d) σ'(w·x'/√d)], w ~ N(0, I) (eq. 9).

    In closed form for ReLU and erf, by quadrature for other smooth activations. It does not depend on width or scaling.
    """
    return np.asarray(NodeKernels(activation).tangent(x, x), float)


def smallest_mean_eigenvalue(activation: Activation, x: Float[Array, "n d"]) -> float:
    """κ_n = eig_min(Θ*(X)) (eq. 10)."""
    return float(np.linalg.eigvalsh(mean_ntg(activation, x))[0])


def node_variance(activation: Activation, x: Float[Array, "n d"]) -> float:
    """C_0(X) = Σ_{i,i'} (x_i·x_i'/d)² Var(σ'(w·x_i/√d) σ'(w·x_i'/√d)): how far A_j is from its mean (eq. 12)."""
    gram = x @ x.T / x.shape[1]
    variances = jnp.diagonal(gram)
    square = _squared_slopes(activation, variances[:, None], variances[None, :], gram)
    return float(jnp.sum(gram**2 * square)) - float(np.sum(mean_ntg(activation, x) ** 2))


def _squared_slopes(
    activation: Activation, q1: Float[Array, "n 1"], q2: Float[Array, "1 n"], c: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    """E[σ'(u)² σ'(v)²] for a centred Gaussian pair."""
    if isinstance(activation, Relu):
        return activation.dual_derivative(q1, q2, c)  # σ'² = σ'
    if isinstance(activation, LeakyRelu):  # σ'² is again 1 on the right and constant on the left
        square = activation.slope**2
        return LeakyRelu(square).dual_derivative(q1, q2, c) if square < 1 else jnp.ones_like(c)
    if isinstance(activation, Erf):  # σ'² = 2/√π times the slope of erf(√2 h) / √2
        return activation.lipschitz**2 * activation.dual_derivative(2 * q1, 2 * q2, 2 * c)
    return activation.pair_expectation(lambda h: jnp.square(activation.derivative(h)), q1, q2, c)


class Parts(NamedTuple):
    """The NTG in two parts (eq. 14): that of the symmetric share γ/m of each node, and that of the rest."""

    symmetric: np.ndarray  # Θ^(1), whose mean at the start is γ Θ*
    rest: np.ndarray  # Θ^(2)


def parts(network: TwoLayer, x: Float[Array, "n d"]) -> Parts:
    """Split the NTG of a network with one output by its node variances, λ = λ^(1) + λ^(2) (eq. 14).

    Each part is computed as the NTG itself, by one product over neurons, without arrays of size n x n x m.
    """
    squares = network.s**2
    symmetric = asymmetrical_nodes(network).gamma * jnp.mean(squares)
    scales = jnp.full_like(squares, jnp.sqrt(symmetric)), jnp.sqrt(jnp.maximum(squares - symmetric, 0))
    return Parts(*(np.asarray(with_fields(network, s=one).tangent_kernel(x, x), float) for one in scales))


class Limit(NamedTuple):
    """The NTG of infinitely many nodes, as far as the first m determine it (Prop. 3.3)."""

    ntg: np.ndarray  # E[Θ_∞ | w_1 ... w_m]
    rest: float  # root mean square distance of Θ_∞ from it, due to the nodes after the m-th


def limit_ntg(network: TwoLayer, x: Float[Array, "n d"]) -> Limit:
    """Θ_∞ = γ Θ* + (1-γ) Σ_j λ̃_j A_j given the nodes of ``network``; those after the m-th are averaged over.

    For a network with one output whose node variances sum to 1 (the asymmetrical and NTK scalings); x are its inputs.
    With γ = 1 the limit is Θ* itself, and nothing is random.
    """
    node, tilde = asymmetrical_nodes(network), _tilde(network)
    features = network.embedding(x)
    scales = jnp.asarray(np.sqrt((1 - node.gamma) * tilde), network.s.dtype)
    own = np.asarray(with_fields(network, s=scales).tangent_kernel(x, x), float)
    mean = (1 - (1 - node.gamma) * tilde.sum()) * mean_ntg(network.activation, features)
    beyond = max(node.weights.power_sum(2.0) - float(tilde @ tilde), 0.0)
    return Limit(own + mean, (1 - node.gamma) * (beyond * node_variance(network.activation, features)) ** 0.5)


def distance_to_limit(network: TwoLayer, x: Float[Array, "n d"]) -> float:
    """Root mean square, over starts, of ‖Θ_m - E[Θ_∞ | w_1 ... w_m]‖_F: what Prop. 3.3 says vanishes as m grows.

    Both are sums over the same nodes, with weights λ_{m,j} and (1-γ) λ̃_j. They differ by γ/m, and by the share of the
    weights that nodes after the m-th have.
    """
    node = asymmetrical_nodes(network)
    apart = node.variances(network.width) - (1 - node.gamma) * _tilde(network)
    return float((node_variance(network.activation, network.embedding(x)) * (apart @ apart)) ** 0.5)


def asymmetrical_nodes(network: TwoLayer) -> Asymmetrical:
    """Return the node weights of eq. 1; scalings with equal nodes have γ = 1."""
    node = network.scaling.node
    return node if isinstance(node, Asymmetrical) else Asymmetrical(1.0, FirstNodes(1))


def _tilde(network: TwoLayer) -> np.ndarray:
    """λ̃_1 ... λ̃_m of a network whose nodes are those of eq. 1."""
    node = network.scaling.node
    if not isinstance(node, Asymmetrical) and node != -0.5:
        raise UserError(
            f"Nodes of size m^{node:g} are not those of caron2023 eq. 1: use scaling=asymmetrical(gamma, Zipf(alpha)) "
            "or ntk."
        )
    return asymmetrical_nodes(network).weights.normalised(network.width)
