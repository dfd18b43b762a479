"""Gram coordinates are the same network and the same flow: only rounding tells them from weights."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu
from unlazy.data import Dataset
from unlazy.flows import Adam, Descent, GradientFlow, Momentum, RungeKutta
from unlazy.networks import Layout, TangentModel, TwoLayer
from unlazy.probes import FeatureMovement, Kernel, TestOutputs, TrainOutputs, WeightMovement

EXAMPLES = TwoLayer.examples(key=jax.random.key(8))
contract = pytest.mark.parametrize(("network", "data"), EXAMPLES)
HEUN = diffrax.Heun()
CASES = [(lambda c: RungeKutta(step=0.25, solver=HEUN, coordinates=c), *example) for example in EXAMPLES] + [
    (lambda c: Descent(rate=0.1, optimiser=Momentum(0.5), coordinates=c), *EXAMPLES[0]),
    (lambda c: Descent(rate=0.1, batch=3, coordinates=c), *EXAMPLES[4]),
    # With kinks too, until rounding opens or shuts a gate: here it does not.
    (
        lambda c: Descent(rate=0.1, coordinates=c),
        eqx.tree_at(lambda net: net.activation, EXAMPLES[0][0], Relu()),
        EXAMPLES[0][1],
    ),
]


@contract
def test_the_start_is_the_same(network, data):
    weights, x, x_test = network.prepare(data)
    gram, places, places_test = network.gram_form(data).prepare(Layout())
    close(gram(places), weights(x), rel=1e-10, abs=1e-12)
    one, other = (net.layers()["hidden"].preactivations(at) for net, at in ((gram, places), (weights, x)))
    close(one, other, rel=1e-9, abs=1e-11)
    close(gram.tangent_kernel(places), weights.tangent_kernel(x), rel=1e-9, abs=1e-11)
    if data.x_test is not None:
        close(gram(places_test), weights(x_test), rel=1e-9, abs=1e-11)
        close(gram.tangent_kernel(places_test), weights.tangent_kernel(x_test), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("flow", "network", "data"), CASES)
def test_every_step_is_the_same(flow, network, data):
    probes = [TrainOutputs(), FeatureMovement(), WeightMovement(), Kernel()]
    probes += [TestOutputs()] if data.x_test is not None else []
    weights, gram = (flow(c)(network, data, [0.5, 2.0], probes) for c in ("weights", "gram"))
    for here, there in zip(jax.tree.leaves(gram.observed), jax.tree.leaves(weights.observed), strict=True):
        close(here, there, rel=1e-10, abs=1e-10)
    close(gram.final(data.x), weights.final(data.x), rel=1e-10, abs=1e-10)  # and back in weights
    assert isinstance(gram.final, TwoLayer)


def test_the_controlled_flow_agrees_to_its_tolerance():
    network, data = EXAMPLES[0]
    runs = [
        RungeKutta(rtol=1e-11, atol=1e-12, coordinates=c)(network, data, [20.0], [TestOutputs()])
        for c in ("weights", "gram")
    ]
    close(runs[1].observed["test-outputs"], runs[0].observed["test-outputs"], rel=1e-9, abs=1e-10)


def test_more_points_than_features_and_repeated_points():
    keys = jax.random.split(jax.random.key(0))
    x = jnp.repeat(jax.random.normal(keys[0], (9, 2)), 2, axis=0)
    data = Dataset(x, jax.random.normal(keys[1], (18,)))
    network = TwoLayer(6, 2, key=keys[0])
    weights, gram = (
        RungeKutta(step=0.25, solver=HEUN, coordinates=c)(network, data, [5.0]) for c in ("weights", "gram")
    )
    close(gram.final.w, weights.final.w, rel=1e-9, abs=1e-11)


def test_what_gram_coordinates_cannot_do_is_refused():
    network, data = EXAMPLES[0]
    with pytest.raises(UserError, match="exact only where steps are linear in gradients"):
        Descent(optimiser=Adam(), coordinates="gram")(network, data, [1.0])
    with pytest.raises(UserError, match="exact only where steps are linear in gradients"):
        Descent(clip_norm=1.0, coordinates="gram")(network, data, [1.0])
    with pytest.raises(UserError, match="this TangentModel has none"):
        GradientFlow(coordinates="gram")(TangentModel(network), data, [1.0])


def test_probes_can_read_weights_and_settings_in_gram_coordinates():
    """A probe of a user's own may ask the network for its parameters, whatever the coordinates."""

    def of(obs):
        return jnp.sum(obs.network.w**2) + obs.network.width + obs.network.scaling.rate

    data = Dataset(jax.random.normal(jax.random.key(0), (6, 9)), jnp.linspace(-1, 1, 6))
    network = TwoLayer(8, 9, key=1)
    run = GradientFlow(coordinates="gram")(network, data, [0, 5], {"own": of})
    expected = [float(jnp.sum(net.w**2) + net.width + net.scaling.rate) for net in (run.start, run.final)]
    assert run.stats["coordinates"] == "gram"
    np.testing.assert_allclose(run.observed["own"], expected, rtol=1e-12)
