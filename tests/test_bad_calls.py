"""Bad calls of the Python API: each gets one sentence that names the argument, and never another exception."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unlazy
from unlazy._errors import UserError

NAN, INF = float("nan"), float("inf")
X, Y = np.linspace(-1.0, 1.0, 12).reshape(4, 3), np.array([0.5, -0.5, 1.0, 0.0])

# Calls that work, and calls that do not; the word after the arrow must be
# in the message.
CALLS = """
TwoLayer(4, 3, key=0)
TwoLayer(2.5, 3, key=0) -> width
TwoLayer("8", 3, key=0) -> width
TwoLayer(True, 3, key=0) -> width
TwoLayer(None, 3, key=0) -> width
TwoLayer([4], 3, key=0) -> width
TwoLayer(0, 3, key=0) -> width = 0
TwoLayer(-1, 3, key=0) -> width = -1
TwoLayer(NAN, 3, key=0) -> width
TwoLayer(INF, 3, key=0) -> width
TwoLayer(1j, 3, key=0) -> width
TwoLayer(10**15, 3, key=0) -> width
TwoLayer(2**30, 2**20, key=0) -> GiB
TwoLayer(4, 2.5, key=0) -> inputs
TwoLayer(4, 0, key=0) -> input
TwoLayer(4, 3, 0, key=0) -> output
TwoLayer(4, 3, "2", key=0) -> outputs
TwoLayer(4, 3) -> key
TwoLayer(4, 3, key=None) -> key
TwoLayer(4, 3, key=-1) -> key
TwoLayer(4, 3, key=2**40) -> key
TwoLayer(4, 3, key="0") -> key
TwoLayer(4, 3, key=1.5) -> key
TwoLayer(4, 3, key=np.zeros(3)) -> key
TwoLayer(4, 3, widht=3, key=0) -> widht
TwoLayer(4, 3, scaling=None, key=0) -> scaling
TwoLayer(4, 3, scaling="ntkk", key=0) -> ntkk
TwoLayer(4, 3, scaling=unlazy.Zipf, key=0) -> scaling
TwoLayer(4, 3, activation=None, key=0) -> activation
TwoLayer(4, 3, activation=3, key=0) -> activation
TwoLayer(4, 3, activation="tnah", key=0) -> tnah
TwoLayer(4, 3, embedding=3, key=0) -> embedding
TwoLayer(4, 3, embedding="nowhere", key=0) -> nowhere
TwoLayer(4, 3, readout=NAN, key=0) -> readout
TwoLayer(4, 3, readout=INF, key=0) -> readout
TwoLayer(4, 3, readout="1", key=0) -> readout
TwoLayer(4, 3, readout=[1.0, 2.0], key=0) -> readout
TwoLayer(4, 3, readout=np.array([1.0, NAN, 1.0, 1.0]), key=0) -> readout
TwoLayer(4, 3, weights=1.0, key=0) -> weights
TwoLayer(4, 3, bias=3, key=0) -> bias
TwoLayer(4, 3, bias=None, key=0) -> bias
TwoLayer(4, 3, scale=-1.0, key=0) -> scale
TwoLayer(4, 3, scale=NAN, key=0) -> scale
TwoLayer(4, 3, scale=1e-320, key=0) -> scale
TwoLayer(4, 3, symmetrised=1, key=0) -> symmetrised
TwoLayer(5, 3, symmetrised=True, key=0) -> even
TwoLayer(4, 3, train_readout="yes", key=0) -> train_readout
unlazy.networks.TwoLayerLimit(3, key=0)
unlazy.networks.TwoLayerLimit("3", key=0) -> inputs
unlazy.networks.TwoLayerLimit(3, heavy=1.5, key=0) -> heavy
unlazy.networks.TwoLayerLimit(3, tail=NAN, key=0) -> tail
unlazy.networks.TwoLayerLimit(3, start=None, key=0) -> start
unlazy.networks.TwoLayerLimit(3, start="cold", key=0) -> cold
unlazy.networks.TwoLayerLimit(3, readout=None, key=0) -> readout
ConvNet((2,), 3, image=(1, 5, 5), key=0)
ConvNet(2, 3, image=(1, 5, 5), key=0) -> channels
ConvNet((), 3, image=(1, 5, 5), key=0) -> layers
ConvNet((2.5,), 3, image=(1, 5, 5), key=0) -> channels
ConvNet((2,), "3", image=(1, 5, 5), key=0) -> kernel
ConvNet((2,), 9, image=(1, 5, 5), key=0) -> Kernels
ConvNet((2,), 3, image=(5, 5), key=0) -> images
ConvNet((2,), 3, image=25, key=0) -> image
ConvNet((2,), 3, image=(1, 5, 5), gamma=NAN, key=0) -> gamma
ConvNet((2,), 3, image=(1, 5, 5), gamma=1e6, key=0) -> gamma
ConvNet((2,), 3, image=(1, 5, 5), gamma=-1e6, key=0) -> gamma
ConvNet((2,), 3, image=(1, 5, 5), scale=0.0, key=0) -> scale
ConvNet((2,), 3, image=(1, 5, 5), scale=1e-320, key=0) -> scale
ConvNet((2,), 3, image=(1, 5, 5), scale=1e-200, rescaled=True, key=0) -> scale
ConvNet((2,), 3, image=(1, 5, 5), dense=0, key=0) -> dense
ConvNet((2,), 3, image=(1, 5, 5), linear="a", key=0) -> linear
MeanFieldStack((4, 4), 3, ranks=2, key=0)
MeanFieldStack(8, 3, key=0) -> widths
MeanFieldStack((8,), 3, key=0) -> two blocks
MeanFieldStack((8.5, 8), 3, key=0) -> neurons
MeanFieldStack(("8", 8), 3, key=0) -> widths
MeanFieldStack((8, NAN), 3, key=0) -> widths
MeanFieldStack((8, 8), 3, ranks=None, key=0) -> ranks
MeanFieldStack((8, 8), 3, ranks=0, key=0) -> ranks
MeanFieldStack((8, 8), 3, train=1, key=0) -> train
MeanFieldStack((8, 8), 3, train="xyz", key=0) -> xyz
MeanFieldStack((8, 8), 3, features=1.0, key=0) -> features
MeanFieldStack((8, 8), 3, parameterisation="ntk", key=0) -> parameterisation
MeanFieldStack((8, 8), 3, clip=(1.0, 1.0), key=0) -> clip
MeanFieldStack((8, 8), 3, activation=7, key=0) -> activation
TangentModel(NET)
TangentModel(3) -> centre
TangentModel(None) -> centre
TangentModel("two-layers") -> two-layers
unlazy.wrap(lambda p, x: x @ p, np.ones(3))
unlazy.wrap(3) -> Equinox
unlazy.wrap(None) -> Equinox
unlazy.wrap(lambda p, x: x @ p, np.ones(3), state="drop") -> state
unlazy.wrap(lambda p, x: x @ p, np.ones(3), squeeze="no") -> squeeze
unlazy.wrap(lambda p, x: x @ p, np.ones(3), input_shape="ab") -> input_shape
unlazy.wrap(NET) -> network already
Dataset(X, Y)
Dataset([[1.0, 2.0]], [1.0])
Dataset(X, None) -> y =
Dataset(None, Y) -> x =
Dataset("x", Y) -> x =
Dataset(X, "y") -> y =
Dataset(X, Y[:3]) -> 3 targets
Dataset(X[:, 0], Y) -> shape
Dataset(X, Y[:, None, None]) -> shape
Dataset(X[:0], Y[:0]) -> empty
Dataset(X + 1j, Y) -> complex
Dataset(X.astype(str), Y) -> text
Dataset(np.array([[object()] * 3] * 4), Y) -> objects
Dataset([[1.0], [1.0, 2.0]], [1.0, 2.0]) -> unequal
Dataset(X.astype("float16"), Y) -> float16
Dataset(jnp.asarray(X, jnp.bfloat16), Y) -> bfloat16
Dataset(X, Y, x_test=X) -> test
Dataset(X, Y, X, Y[:, None]) -> test sample
Dataset(X, Y, X[:, :2], Y) -> test sample
Dataset(X, Y, weight=np.ones(3)) -> Weights
Dataset(X, Y, held_out=3) -> held_out
Dataset(X, Y, name=3) -> name
Dataset(X, Y).astype("float16") -> float16
Dataset(X, Y).astype("number") -> number
unlazy.data.one_hot([0, 1, 2])
unlazy.data.one_hot([0.5]) -> Labels
unlazy.data.one_hot([]) -> Labels
unlazy.data.one_hot([0, 3], classes=2) -> classes
unlazy.data.one_hot([0, 1], classes="2") -> classes
unlazy.data.one_hot([0, 1], classes=1e300) -> classes
unlazy.data.one_hot([10**12]) -> GiB
unlazy.data.random_labels(4, 3, key=0)
unlazy.data.random_labels(0, 3, key=0) -> n
unlazy.data.random_labels(2.5, 3, key=0) -> n
unlazy.data.random_labels("4", 3, key=0) -> n
unlazy.data.random_labels(4, None, key=0) -> d
unlazy.data.random_labels(2**31, 3, key=0) -> n
unlazy.data.random_labels(10**9, 10**6, key=0) -> GiB
unlazy.data.random_labels(4, 2**63 - 1, key=0) -> d
unlazy.data.random_labels(4, 3) -> key
unlazy.data.quadratic_teacher(4, neurons=0, key=0) -> neurons
unlazy.data.quadratic_teacher(4, d=10**7, key=0) -> GiB
unlazy.data.orthogonal_clusters(4, d=1, key=0) -> d
unlazy.data.orthogonal_clusters(4, n_test=-1, key=0) -> n_test
unlazy.data.single_index(4, link="nothing", key=0) -> nothing
unlazy.data.single_index(4, noise=-1.0, key=0) -> noise
unlazy.data.sphere_sine(4, noise=NAN, key=0) -> noise
unlazy.data.sphere_sine(4, n_held=-1, key=0) -> n_held
unlazy.data.cosine(4, frequency=INF, key=0) -> frequency
unlazy.data.cosine(4, frequency="2", key=0) -> frequency
unlazy.data.cosine(2**30, n_test=2**30, key=0) -> GiB
unlazy.data.chirp(4, f1=None, key=0) -> f1
unlazy.data.two_sided_step(0.0) -> delta
unlazy.data.two_sided_step(amplitude=NAN) -> amplitude
unlazy.data.csv(3, key=0) -> path
GradientFlow()
GradientFlow(tolerance="a") -> tolerance
GradientFlow(tolerance=0) -> tolerance
GradientFlow(tolerance=-1e-3) -> tolerance
GradientFlow(tolerance=NAN) -> tolerance
GradientFlow(memory="1") -> memory
GradientFlow(method="euler-like") -> euler-like
GradientFlow(method=3) -> flow
GradientFlow(max_steps=0) -> steps
GradientFlow(max_steps=2.5) -> max_steps
GradientFlow(max_steps=10**12) -> steps
GradientFlow(coordinates="polar") -> coordinates
GradientFlow(precision="half") -> precision
GradientFlow(loss=None) -> loss
GradientFlow(devices=1.5) -> devices
GradientFlow()(None, DATA, [0, 1]) -> network
GradientFlow()(NET, None, [0, 1]) -> data
GradientFlow()(NET, (X, Y), [0, 1]) -> data
GradientFlow()(NET, DATA, "now") -> times
GradientFlow()(NET, DATA, None) -> times
GradientFlow()(NET, DATA, []) -> Times
GradientFlow()(NET, DATA, [1, 0]) -> Times
GradientFlow()(NET, DATA, [0, NAN]) -> times
GradientFlow()(NET, DATA, [0, 1j]) -> times
GradientFlow()(NET, DATA, [-1, 1]) -> t =
GradientFlow()(NET, DATA, [0, 1], probes=["train-los"]) -> train-los
GradientFlow()(NET, DATA, [0, 1], probes=3) -> probes
GradientFlow()(NET, DATA, [0, 1], probes=[3]) -> probe
GradientFlow()(NET, DATA, [0, 1], probes=[unlazy.TrainLoss]) -> TrainLoss()
GradientFlow()(NET, DATA, [0, 1], key="a") -> key
GradientFlow()(NET, NANS, [0, 1]) -> NaN
GradientFlow()(NET, WIDE, [0, 1]) -> features
GradientFlow().over_seeds([], DATA, [0, 1]) -> network
GradientFlow().over_seeds([NET], [DATA, DATA], [0, 1]) -> data
Descent(optimiser="adam", schedule="constant")
Descent(rate="a") -> rate
Descent(rate=None) -> rate
Descent(rate=1e-320) -> rate
Descent(rate=0.0) -> rate
Descent(rate=1e-12)(NET, DATA, [0, 1]) -> steps
Descent(optimiser=None) -> optimiser
Descent(optimiser="adamm") -> adamm
Descent(optimiser=optax.adam(0.1)) -> optimiser
Descent(schedule=None) -> schedule
Descent(schedule="cosine") -> steps
Descent(batch=2.5) -> batch
Descent(batch=0) -> batch
Descent(clip_norm="a") -> clip_norm
Descent(clip_norm=-1.0) -> clip_norm
Descent(stop_loss=NAN) -> stop_loss
Descent(source=3) -> source
Descent(loss="squard") -> squard
Descent(coordinates="gram", optimiser="adam")(NET, DATA, [0, 1]) -> Adam
Exponential(tolerance=1e-30)(NET, DATA, [0, 1]) -> tolerance
Exponential(step=-1.0) -> step
Exponential(loss="logistic")(NET, SIGNS, [0, 1]) -> quadratic
RungeKutta(rtol=0.0, atol=0.0)(NET, DATA, [0, 1]) -> rtol
RungeKutta(solver=3) -> solver
Stabilised(max_steps=-1) -> steps
Linearised(loss="cross-entropy")(NET, DATA, [0, 1]) -> quadratic
unlazy.flows.Momentum(1.5) -> decay
unlazy.flows.Momentum("a") -> decay
unlazy.flows.Adam(b1=1.0) -> b1
unlazy.flows.Adam(eps=NAN) -> eps
unlazy.flows.Transform(3) -> given
unlazy.flows.StepDecay(0.0, 10) -> factor
unlazy.flows.StepDecay(0.5, 0) -> every
unlazy.flows.Cosine(0) -> steps
unlazy.flows.Cosine(10, floor=-1.0) -> floor
unlazy.flows.Piecewise(["a"], []) -> factors
unlazy.flows.Piecewise([1.0, 0.5], [2**40]) -> steps
unlazy.flows.OnStagnation(window=0) -> window
unlazy.flows.OnStagnation(wait=-1) -> wait
Recorder(NET, DATA)
Recorder(3, DATA) -> network
Recorder(NET, 3) -> data
Recorder(NET, DATA, loss="squard") -> squard
Recorder(NET, DATA, snapshots="1") -> snapshots
Recorder(NET, DATA).trajectory() -> see
Recorder(NET, DATA).see("a", NET) -> step
unlazy.Kernel(samples="a") -> samples
unlazy.Kernel(samples=2.5) -> samples
unlazy.Kernel(samples=9).of(NET, NET, DATA, unlazy.Squared()) -> samples
unlazy.Kernel(output=3).of(NET, NET, DATA, unlazy.Squared()) -> output
unlazy.TestLoss().of(NET, NET, DATA, unlazy.Squared()) -> test set
unlazy.probes.FeaturePair(neurons=0) -> neurons
unlazy.Squared("meen") -> reduction
unlazy.Squared(half=3) -> half
unlazy.losses.CustomLoss(3) -> function
unlazy.Logistic().check(jnp.asarray(Y)) -> labels
unlazy.CrossEntropy().check(jnp.asarray(Y)) -> one-hot
unlazy.losses.SoftmaxSquared().check(-jnp.ones((3, 2))) -> one-hot
unlazy.Zipf(1.5) -> alpha
unlazy.Zipf(None) -> alpha
unlazy.asymmetrical(2.0, unlazy.Zipf(0.5)) -> gamma
unlazy.asymmetrical(0.5, 3) -> weights
unlazy.Scaling("a") -> node
unlazy.networks.Normal(-1.0) -> spread
unlazy.networks.Normal("a") -> spread
unlazy.networks.Uniform(NAN) -> reach
unlazy.RandomLayers(8) -> widths
unlazy.RandomLayers(()) -> width
unlazy.Infinite(0) -> depth
unlazy.kernels.tangent_kernel(3, np.ones(3), X) -> apply
unlazy.kernels.tangent_kernel(LINEAR, np.ones(3), X, outputs="some") -> outputs
unlazy.kernels.tangent_kernel(LINEAR, np.ones(3), X, outputs=5) -> output
unlazy.kernels.tangent_kernel(LINEAR, np.ones(3), X, method="slow") -> method
unlazy.kernels.tangent_kernel(LINEAR, np.ones(3), X, memory="1") -> memory
unlazy.kernels.tangent_kernel(LINEAR, np.ones(3), "x") -> batch
unlazy.kernels.tangent_kernel(LINEAR, np.ones(3), X, z="z") -> batch
unlazy.kernels.leading_eigenvalues(LINEAR, np.ones(3), X, 0) -> count
unlazy.Lab(3) -> folder
unlazy.Lab("runs", fresh="yes") -> fresh
unlazy.Lab("runs", snapshots=NAN) -> snapshots
unlazy.diagnose(3, DATA) -> make
unlazy.diagnose(lambda width, key: NET, DATA, 64) -> widths
unlazy.diagnose(lambda width, key: NET, DATA, (4, 8), seeds="2") -> seeds
"""
LINES = [line for line in CALLS.splitlines() if line]
BAD = [tuple(line.split(" -> ")) for line in LINES if " -> " in line]
GOOD = [line for line in LINES if " -> " not in line]


def linear(params, x):
    return x @ params


@pytest.fixture(scope="module")
def names():
    net = unlazy.TwoLayer(4, 3, key=0)
    made = {
        "NET": net,
        "DATA": unlazy.Dataset(X, Y),
        "NANS": unlazy.Dataset(X, np.where(Y > 0, Y, NAN)),
        "WIDE": unlazy.Dataset(np.ones((4, 5)), Y),
        "SIGNS": unlazy.Dataset(X, np.sign(Y + 0.1)),
        "LINEAR": linear,
    }
    plain = {"np": np, "jnp": jnp, "optax": optax, "unlazy": unlazy, "X": X, "Y": Y, "NAN": NAN, "INF": INF}
    return vars(SimpleNamespace(**made, **plain, **{one: getattr(unlazy, one) for one in unlazy.__all__}))


@pytest.mark.parametrize("call", GOOD)
def test_good_calls_work(call, names):
    eval(call, dict(names))


@pytest.mark.parametrize(("call", "word"), BAD)
def test_bad_calls_get_one_sentence_that_names_the_argument(call, word, names):
    with pytest.raises(UserError) as caught:
        eval(call, dict(names))
    message = str(caught.value)
    assert word in message
    assert message.endswith((".", "?"))
    assert "\n" not in message


def test_names_serve_wherever_a_recipe_takes_them():
    network = unlazy.TwoLayer(4, 3, scaling="ntk", embedding="quadratic", weights="uniform", bias="normal", key=0)
    assert network.scaling == unlazy.ntk
    stack = unlazy.MeanFieldStack([4, 4], 3, ranks=[2], amplitude=["normal", "uniform"], key=np.int64(0))
    assert stack.depth == 2
    flow = unlazy.Descent(rate=np.float32(0.5), loss="logistic", optimiser="momentum", schedule="constant")
    assert isinstance(flow.optimiser, unlazy.flows.Momentum)


def test_arguments_inside_compiled_code_are_left_alone():
    law = jax.jit(lambda spread: unlazy.networks.Constant(2.0).draw(2, 1, 1, key=jax.random.key(0)) * spread)
    assert law(2.0).tolist() == [[4.0], [4.0]]
    drawn = jax.jit(lambda key: unlazy.TwoLayer(4, 3, key=key).w)(jax.random.key(0))
    np.testing.assert_array_equal(drawn, unlazy.TwoLayer(4, 3, key=0).w)


def test_a_class_of_your_own_is_checked_by_its_annotations():
    class Shifted(unlazy.networks.Law):
        by: float = 0.0
        sign: bool = True

        def draw(self, rows, columns, fan_in, *, key):
            return jnp.full((rows, columns), self.by)

    assert Shifted(2).by == 2
    with pytest.raises(UserError, match="Shifted: by = 'a' is not a number"):
        Shifted("a")
    with pytest.raises(UserError, match="Shifted has no argument 'sing'"):
        Shifted(sing=True)
