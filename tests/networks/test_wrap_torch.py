"""PyTorch modules: the numbers of PyTorch, by way of networks, layers and probes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import foreign_models as foreign
import unlazy
from unlazy import Descent, GradientFlow, Linearised
from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.losses import Squared
from unlazy.networks import TorchNetwork
from unlazy.probes import Condensation, FeatureMovement, Kernel, Pruning, TrainLoss, WeightMovement

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")


def test_outputs_and_kernel_are_those_of_jax():
    data = foreign.samples()
    native, jax_one = unlazy.wrap(foreign.torch()), unlazy.wrap(foreign.equinox())
    np.testing.assert_allclose(native(data.x), foreign.by_hand(np.asarray(data.x)), rtol=1e-12)
    kernel = native.tangent_kernel(data.x)
    np.testing.assert_allclose(kernel, jax_one.tangent_kernel(data.x), rtol=1e-9, atol=1e-11)
    across = native.tangent_kernel(data.x, data.x_test)
    np.testing.assert_allclose(across, jax_one.tangent_kernel(data.x, data.x_test), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(native.output_kernel(data.x, data.x, 1), kernel[:, 1, :, 1], rtol=1e-12)


class Odd(torch.nn.Module):
    """A convolution, a linear layer that is called twice, a parameter of its own and a tied one."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 2)
        self.fc = torch.nn.Linear(8, 8)
        self.out = torch.nn.Linear(8, 2, bias=False)
        self.tied = torch.nn.Linear(8, 2)
        self.tied.weight = self.out.weight
        self.shift = torch.nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        h = torch.nn.functional.relu_(self.conv(x)).flatten(1)
        h = torch.tanh(self.fc(torch.tanh(self.fc(h))))
        return self.out(h) + self.shift * self.tied(h)


def brute_force(module, x, z, factors=None):
    """J R J^T by one backward pass per output and sample, over the module's own parameters."""
    named = dict(module.named_parameters())

    def rows(points):
        found = []
        for value in module(points).reshape(-1):
            grads = torch.autograd.grad(value, list(named.values()), retain_graph=True, allow_unused=True)
            each = zip(named, named.values(), grads, strict=True)
            scaled = [
                (factors or {}).get(name, 1.0) ** 0.5 * (torch.zeros_like(one) if grad is None else grad).reshape(-1)
                for name, one, grad in each
            ]
            found.append(torch.cat(scaled))
        return torch.stack(found)

    return (rows(x) @ rows(z).T).numpy()


def test_kernels_are_jacobians_of_any_module():
    torch.manual_seed(0)
    module = Odd().double()
    images, others = torch.randn(4, 1, 3, 3, dtype=torch.float64), torch.randn(3, 1, 3, 3, dtype=torch.float64)
    network = unlazy.wrap(module)
    kernel = network.tangent_kernel(jnp.asarray(images.numpy()), jnp.asarray(others.numpy()))
    np.testing.assert_allclose(np.asarray(kernel).reshape(8, 6), brute_force(module, images, others), rtol=1e-9)
    flat = unlazy.wrap(module, input_shape=(1, 3, 3))
    np.testing.assert_array_equal(flat(jnp.asarray(images.numpy()).reshape(4, 9)), network(jnp.asarray(images.numpy())))


class Reused(torch.nn.Module):
    """Linear layers whose parameters also enter outside of them, as tied weights do."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))) @ self.last.weight @ self.first.weight + self.first.bias[:3]


def test_a_weight_that_is_used_outside_of_its_layer_counts():
    torch.manual_seed(0)
    module, x = Reused().double(), torch.randn(4, 3, dtype=torch.float64)
    kernel = unlazy.wrap(module).tangent_kernel(jnp.asarray(x.numpy()))
    np.testing.assert_allclose(np.asarray(kernel).reshape(12, 12), brute_force(module, x, x), rtol=1e-9)


class Attentive(torch.nn.Module):
    """Attention, whose fused form has no second derivatives, on an embedding that is also the read-out."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(5, 4)
        self.layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.layer(self.table(x.long()))[:, -1] @ self.table.weight[:2].T


class Recurrent(torch.nn.Module):
    """A recurrent layer, which PyTorch cannot map over samples."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = torch.nn.LSTM(1, 3, batch_first=True), torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.out(self.cell(x[..., None])[0][:, -1])


class Parametrised(torch.nn.Module):
    """A layer whose weight is computed from other parameters."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4))
        self.last = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("kind", [Attentive, Recurrent, Parametrised])
def test_unusual_modules_have_kernels_and_are_diagnosed(kind):
    torch.manual_seed(0)
    module = kind().double().eval()
    x = torch.randint(0, 5, (4, 3)).double()
    before = unlazy.wrap(module)
    points = jnp.asarray(x.numpy())
    kernel = np.asarray(before.tangent_kernel(points)).reshape(8, 8)
    np.testing.assert_allclose(kernel, brute_force(module, x, x).reshape(8, 8), rtol=1e-8, atol=1e-10)
    with torch.no_grad():
        for one in module.parameters():
            one.mul_(1.01)
    found = unlazy.diagnose(before, unlazy.wrap(module), Dataset(points, jnp.zeros((4, 2))))
    assert np.isfinite(found.whole.measured["linearisation error"].last)


RATES = {"0.weight": 2.0, "0.bias": 0.0, "2.weight": 1.0, "2.bias": 3.0, "4.weight": 0.0, "4.bias": 0.0}
RATES |= {"6.weight": 0.5, "6.bias": 1.0}


def test_layerwise_and_jacobian_kernels_agree_with_rates():
    module, x = foreign.torch(), foreign.samples().x
    network = unlazy.wrap(module, rates=RATES.get)
    assert network._signals(network._inputs(x)) is not None
    kernel = np.asarray(network.tangent_kernel(x)).reshape(12, 12)
    points = torch.tensor(np.asarray(x))
    np.testing.assert_allclose(kernel, brute_force(module, points, points, RATES), rtol=1e-9, atol=1e-11)
    by_jacobians = network._by_jacobians(network._inputs(x), network._inputs(x)).detach().numpy()
    np.testing.assert_allclose(kernel, by_jacobians.reshape(12, 12), rtol=1e-9, atol=1e-11)


def test_parameters_without_gradients_are_frozen():
    module = foreign.torch()
    module[0].weight.requires_grad_(False)
    assert dict(unlazy.wrap(module).rate_factors)["0.weight"] == 0.0
    assert dict(unlazy.wrap(module).rate_factors)["0.bias"] == 1.0


def test_layers_give_preactivations_and_weights():
    x = foreign.samples().x
    (w0, b0), (w1, b1), *_ = foreign.weights()
    layers = unlazy.wrap(foreign.torch()).layers()
    assert list(layers) == ["0", "2", "4", "6"]
    assert list(unlazy.networks.layers_on(unlazy.wrap(foreign.torch()), x)) == ["0", "2", "4"]  # without the read-out
    h = np.asarray(x) @ w0 + b0
    np.testing.assert_allclose(layers["0"].preactivations(x), h, rtol=1e-12)
    np.testing.assert_allclose(layers["2"].preactivations(x), np.tanh(h) @ w1 + b1, rtol=1e-12)
    np.testing.assert_allclose(layers["0"].weights(), np.concatenate([w0.T, b0[:, None]], axis=1), rtol=1e-12)


def test_an_activation_in_place_does_not_change_preactivations():
    conv = torch.nn.Conv2d(1, 2, 2, dtype=torch.float64)
    module = torch.nn.Sequential(conv, torch.nn.ReLU(inplace=True), torch.nn.Flatten(), torch.nn.Linear(8, 1).double())
    images = torch.randn(4, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer = unlazy.wrap(module).layers()["0"]
    wanted = conv(images).detach().permute(0, 2, 3, 1).reshape(16, 2)
    np.testing.assert_allclose(layer.preactivations(jnp.asarray(images.numpy())), wanted, rtol=1e-12)
    assert layer.kernels().shape == (2, 4)


def test_a_snapshot_does_not_follow_the_module():
    module, x = foreign.torch(), foreign.samples().x
    network = unlazy.wrap(module)
    before = network(x)
    with torch.no_grad():
        module[0].weight += 1.0
    np.testing.assert_array_equal(network(x), before)
    after = network.with_model(module)
    np.testing.assert_allclose(after(x), module(torch.tensor(np.asarray(x))).detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(network.model(torch.tensor(np.asarray(x))).detach().numpy(), before, rtol=1e-12)
    assert network.model.training
    np.testing.assert_array_equal(network.with_model(module.state_dict())(x), after(x))


def test_probes_by_hand_are_those_of_jax():
    data = foreign.samples()
    module = foreign.torch()
    start = unlazy.wrap(module)
    with torch.no_grad():
        for one in module.parameters():
            one += 0.1
    now = start.with_model(module)
    first = unlazy.wrap(foreign.equinox())
    arrays, rest = eqx.partition(first.parameters, eqx.is_inexact_array)
    shifted = first.with_model(eqx.combine(jax.tree.map(lambda leaf: leaf + 0.1, arrays), rest))
    for probe in (TrainLoss(), Kernel()):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10),
            probe.of(now, start, data, Squared()),
            probe.of(shifted, first, data, Squared()),
        )
    moved = WeightMovement().of(now, start, data, Squared())
    np.testing.assert_allclose(moved["0"], np.full(5, 0.1 * 4**0.5), rtol=1e-9)  # three weights and a bias
    assert FeatureMovement().of(now, start, data, Squared())["0"] > 0
    assert set(Condensation().of(now, start, data, Squared())) == {"0", "2", "4"}  # without the read-out


@pytest.mark.parametrize("flow", [GradientFlow(), Descent(rate=0.1), Linearised()])
def test_flows_do_not_train_it(flow):
    with pytest.raises(UserError, match=r"Sequential is a PyTorch module, which is trained in a loop of your own"):
        flow(unlazy.wrap(foreign.torch()), foreign.samples(), [0, 1.0])


def test_a_probe_that_needs_more_says_so():
    network, data = unlazy.wrap(foreign.torch()), foreign.samples()
    with pytest.raises(UserError, match="does not define `outgoing`"):
        Pruning().of(network, network, data, Squared())
    with pytest.raises(UserError, match="cannot be called inside transformations of JAX"):
        jax.jit(network.__call__)(data.x)


def test_mistakes_are_explained():
    with pytest.raises(UserError, match=r"running averages \(BatchNorm1d\), which training .* state='freeze'"):
        unlazy.wrap(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    normed = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).double()
    network, x = unlazy.wrap(normed, state="freeze"), foreign.samples().x
    np.testing.assert_allclose(network(x), np.concatenate([network(x[i : i + 1]) for i in range(6)]), rtol=1e-12)
    assert network.tangent_kernel(x).shape == (6, 2, 6, 2)
    with pytest.raises(UserError, match="Flatten has no parameters"):
        unlazy.wrap(torch.nn.Flatten())
    with pytest.raises(UserError, match=r"cannot be called on a batch of shape \(2, 5\) .*: give input_shape"):
        unlazy.wrap(torch.nn.Linear(3, 2))(jnp.ones((2, 5)))
    with pytest.raises(UserError, match=r"gives outputs of shape \(2, 4, 2\) on a batch of shape \(2, 4, 3\)"):
        unlazy.wrap(torch.nn.Linear(3, 2))(jnp.ones((2, 4, 3)))
    with pytest.raises(UserError, match=r"differ in: 1\.bias, 1\.weight, 2\.bias"):
        unlazy.wrap(foreign.torch()).with_model(torch.nn.Sequential(foreign.torch()[0], foreign.torch()[6]))
    with pytest.raises(UserError, match=r"give wrap\(module\), here Linear, alone"):
        unlazy.wrap(torch.nn.Linear(3, 2), {})


def test_one_layer_alone_is_a_network():
    network = unlazy.wrap(torch.nn.Linear(3, 1, dtype=torch.float64))
    x = foreign.samples().x
    assert isinstance(network, TorchNetwork)
    np.testing.assert_allclose(network.tangent_kernel(x), np.asarray(x) @ np.asarray(x).T + 1, rtol=1e-12)
    assert network.layers()["module"].weights().shape == (1, 4)
    assert Dataset(x, np.ones(6)).y.shape == network(x).shape


def test_checkpoints_are_diagnosed_as_those_of_jax():
    data = foreign.samples()
    found, twin = (
        unlazy.diagnose(unlazy.wrap(make()), unlazy.wrap(make(0.1)), data) for make in (foreign.torch, foreign.equinox)
    )
    assert found.answer is twin.answer
    for name in ("kernel drift", "linearisation error", "output change"):
        np.testing.assert_allclose(found.whole.measured[name].values, twin.whole.measured[name].values, rtol=1e-8)
    changes = [[part.measured["feature change"].last for part in one.layers.values()] for one in (found, twin)]
    np.testing.assert_allclose(*changes, rtol=1e-8)
    assert len(changes[0]) == 3
