"""Descent against loops written by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Linear
from unlazy.data import Dataset
from unlazy.flows import (
    Adam,
    ByLayer,
    Constant,
    Cosine,
    Descent,
    Momentum,
    OnStagnation,
    Piecewise,
    Plain,
    RungeKutta,
    Status,
    StepDecay,
    Transform,
)
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import TwoLayer, ntk, split_trained
from unlazy.probes import TrainLoss

M, D, N = 7, 3, 10


@pytest.fixture(scope="module")
def network():
    return TwoLayer(M, D, scaling=ntk, key=jax.random.key(0))


@pytest.fixture(scope="module")
def data():
    k1, k2 = jax.random.split(jax.random.key(1))
    return Dataset(jax.random.normal(k1, (N, D)), jax.random.normal(k2, (N,)))


def gradient_by_hand(w, a, x, y):
    """NumPy, from chen2022 eq. 8 with the NTK scaling and the mean loss."""
    h = x @ w.T / np.sqrt(D)
    residual = np.tanh(h) @ a / np.sqrt(M) - y
    return ((residual[:, None] * (1 - np.tanh(h) ** 2)) * a / np.sqrt(M)).T @ x / np.sqrt(D) / len(y)


def test_plain_descent_is_the_loop_by_hand(network, data):
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    w = w.copy()
    for _ in range(40):
        w -= 0.3 * gradient_by_hand(w, a, x, y)
    run = Descent(rate=0.3)(network, data, [12.0])
    assert run.stats["steps"] == 40
    close(run.final.w, w, rel=1e-10)


@pytest.mark.parametrize(
    ("optimiser", "reference"),
    [
        (Plain(), optax.sgd(0.05)),
        (Momentum(0.8), optax.sgd(0.05, 0.8)),
        (Momentum(0.8, nesterov=True), optax.sgd(0.05, 0.8, nesterov=True)),
        (Adam(), optax.adam(0.05)),
        (Transform(optax.scale_by_rms()), optax.rmsprop(0.05)),
    ],
)
def test_optimisers_are_optax_with_the_rate_apart(network, data, optimiser, reference):
    trained, frozen = split_trained(network)
    state = reference.init(trained)
    for _ in range(15):
        slope = jax.grad(lambda t: 0.5 * jnp.mean((eqx.combine(t, frozen)(data.x) - data.y) ** 2))(trained)
        updates, state = reference.update(slope, state, trained)
        trained = optax.apply_updates(trained, updates)
    run = Descent(rate=0.05, optimiser=optimiser)(network, data, [0.75])
    close(run.final.w, trained.w, rel=1e-9)


def test_learning_rate_factors_multiply_the_direction(data):
    """As with parameter groups: Adam forgets the size of a gradient, but not its group's learning rate."""
    slow = TwoLayer(M, D, key=jax.random.key(0))  # mean field: factor m
    run = Descent(rate=1e-3, optimiser=Adam())(slow, data, [1e-3])
    first = np.abs(np.asarray(run.final.w - slow.w))
    close(np.median(first), 1e-3 * M, rel=1e-3)


def test_descent_converges_to_the_flow_at_first_order(network, data):
    exact = RungeKutta(rtol=1e-10, atol=1e-11)(network, data, [4.0]).final.w
    rates = np.array([0.2, 0.1, 0.05, 0.025])
    errors = [np.linalg.norm(Descent(rate=rate)(network, data, [4.0]).final.w - exact) for rate in rates]
    assert np.polyfit(np.log(rates), np.log(errors), 1)[0] == pytest.approx(1, abs=0.1)


def test_norm_clipping_is_that_of_the_whole_gradient(network, data):
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    slope = gradient_by_hand(w, a, x, y)
    bound = 0.5 * np.linalg.norm(slope)
    run = Descent(rate=1.0, clip_norm=float(bound))(network, data, [1.0])
    close(run.final.w, w - 0.5 * slope, rel=1e-10)


def test_sample_clipping_is_inside_the_average(network, data):
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    singles = np.stack([gradient_by_hand(w, a, x[i : i + 1], y[i : i + 1]) for i in range(N)])
    norms = np.linalg.norm(singles.reshape(N, -1), axis=1)
    radius = float(np.median(norms))
    clipped = singles * np.minimum(1, radius / norms)[:, None, None]
    run = Descent(rate=1.0, clip_sample=radius)(network, data, [1.0])
    close(run.final.w, w - clipped.mean(axis=0), rel=1e-10)
    free = Descent(rate=1.0, clip_sample=1e9)(network, data, [3.0])
    close(free.final.w, Descent(rate=1.0)(network, data, [3.0]).final.w, rel=1e-10)


def test_sample_clipping_in_blocks_with_weights(network, data, monkeypatch):
    weight = jnp.linspace(0.5, 2.0, N)
    weighted = Dataset(data.x, data.y, weight=weight)
    for loss in (Squared("mean"), Squared("sum")):
        whole = Descent(loss, rate=0.1, clip_sample=0.2)(network, weighted, [0.3]).final.w
        # Room for the gradients of three samples: blocks of 3, 3, 3 and 1.
        monkeypatch.setattr("unlazy.flows.descent._CLIP_BYTES", 3 * M * D * 8)
        other = TwoLayer(M, D, scaling=ntk, key=jax.random.key(0))
        blocks = Descent(loss, rate=0.1, clip_sample=0.2, clip_norm=1e9)(other, weighted, [0.3]).final.w
        close(blocks, whole, rel=1e-12)
        monkeypatch.undo()


@pytest.mark.parametrize("batch", [2, 3, 10, 64])
def test_an_epoch_sees_every_sample_once(network, batch):
    """With inputs so far apart that gradients do not mix, an epoch's steps must add up to all samples."""
    data = Dataset(1e-9 * jnp.eye(N, D) + jnp.ones((N, D)) * 1e-12, jnp.arange(1.0, N + 1))
    batches = -(-N // min(batch, N))
    run = Descent(Squared("sum"), rate=1.0, batch=batch)(network, data, [float(batches)])
    full = Descent(Squared("sum"), rate=1.0)(network, data, [1.0])
    # f stays 0 to 1e-9, so the order of the samples does not matter.
    close(np.asarray(run.final.w - network.w), np.asarray(full.final.w - network.w), rel=1e-5, abs=1e-20)


def test_a_small_last_batch_weighs_by_its_own_size(network):
    data = Dataset(1e-9 * jnp.ones((3, D)), jnp.array([1.0, 1.0, 1.0]))
    run = Descent(Squared("mean"), rate=1.0, batch=2)(network, data, [2.0])
    one = Descent(Squared("mean"), rate=1.0)(network, data, [1.0])
    # Two batches of equal targets, each averaged over its own samples: twice the full gradient.
    close(np.asarray(run.final.w - network.w), 2 * np.asarray(one.final.w - network.w), rel=1e-5, abs=1e-22)


def test_batches_are_shuffled_by_key(network, data):
    one, same, other = (
        Descent(rate=0.1, batch=3)(network, data, [1.0], key=jax.random.key(k)).final.w for k in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_schedules_count_time_as_the_sum_of_rates(network, data):
    flow = Descent(rate=0.5, schedule=StepDecay(0.5, 4))
    run = flow(network, data, [1.0, 2.0, 2.6], [TrainLoss()])
    # Rates: four of 0.5, four of 0.25, then 0.125.
    close(run.times, [1.0, 2.0, 2.5])
    assert run.stats["steps"] == 6
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    w = w.copy()
    for rate in (0.5, 0.5, 0.5, 0.5, 0.25, 0.25):
        w -= rate * gradient_by_hand(w, a, x, y)
    close(run.final.w, w, rel=1e-10)
    with pytest.raises(UserError, match="never reach t = 100"):
        flow(network, data, [100.0])
    close(Cosine(10)(jnp.array([0, 5, 10])), [1.0, 0.5, 0.0], abs=1e-12)
    close(Constant()(jnp.arange(3)), np.ones(3))
    close(Piecewise((1.0, 0.5, 2.0), (2, 3))(jnp.arange(5)), [1.0, 1.0, 0.5, 2.0, 2.0])
    with pytest.raises(UserError, match="one step for each factor but the first"):
        Piecewise((1.0, 0.5))
    with pytest.raises(UserError, match="increasing"):
        Piecewise((1.0, 0.5, 0.2), (3, 3))


def reduced_by_hand(losses, factors, window, wait):
    """The factor in each epoch and after the last, from the mean losses of epochs, as the authors' loop has it."""
    level, since, found = 0, 0, [factors[0]]
    for epoch in range(1, len(losses) + 1):
        since += 1
        recent, older = losses[max(0, epoch - window) : epoch], losses[max(0, epoch - 2 * window) : epoch - window]
        if epoch >= 2 * window and np.mean(recent) >= np.mean(older) and since >= wait and level < len(factors) - 1:
            level, since = level + 1, 0
        found.append(factors[level])
    return found


@pytest.mark.parametrize(("batch", "rate"), [(None, 200.0), (4, 25.0)])
def test_a_rate_falls_when_the_loss_stagnates(network, data, batch, rate):
    """A rate at which descent oscillates is reduced; losses and factors of each epoch are those of a loop."""
    schedule = OnStagnation((1.0, 0.25, 0.05), window=2, wait=3)
    flow = Descent(rate=rate, batch=batch, schedule=schedule)
    epoch = 1 if batch is None else 3  # the last minibatch has two samples
    steps = range(40 * epoch + 1)
    run = flow(network, data, [rate * one for one in steps], {"w": lambda obs: obs.network.w})
    close(run.times, rate * np.arange(len(steps)))  # as if the factor were 1
    w = run.observed["w"]
    plain = Descent(rate=1.0, batch=batch)
    state, losses, factors = run.run_state.state.memory.reaction, [], []
    reaction = schedule.begin(jnp.zeros(()))
    values = np.random.default_rng(0).uniform(1, 2, 60)
    for step, one in enumerate(np.repeat(values, 3)):  # the schedule by itself, on made-up losses
        factors.append(float(schedule.current(reaction, jnp.asarray(step))))
        reaction = schedule.react(reaction, jnp.asarray(one), jnp.asarray(step % 3 == 2))
    assert factors[::3] == reduced_by_hand(list(values), schedule.factors, 2, 3)[:-1]
    assert set(factors) == set(schedule.factors)
    assert int(state.level) > 0
    if batch is None:  # every step of descent, by hand
        a, x, y = (np.asarray(part) for part in (network.a, data.x, data.y))
        losses = [float(np.mean((np.tanh(x @ v.T / np.sqrt(D)) @ a / np.sqrt(M) - y) ** 2) / 2) for v in w]
        rates = reduced_by_hand(losses[:-1], schedule.factors, 2, 3)
        for now, then, factor in zip(w, w[1:], rates, strict=False):
            close(then, now - rate * factor * gradient_by_hand(now, a, x, y), rel=1e-9)
        assert rates[-1] == schedule.factors[int(state.level)]
    assert plain(network, data, [3.0]).run_state.state.memory.reaction is None


def test_stagnation_goes_on_where_a_run_is_extended(network, data):
    flow = Descent(rate=200.0, schedule=OnStagnation((1.0, 0.1), window=2, wait=3))
    whole = flow(network, data, [2000.0, 8000.0])
    part = flow.extend(flow(network, data, [2000.0]), [8000.0])
    assert np.array_equal(whole.final.w, part.final.w)
    assert int(part.run_state.state.memory.reaction.level) == 1
    with pytest.raises(UserError, match="each entry is in range: give a number above 0"):
        OnStagnation((1.0, 0.0))
    with pytest.raises(UserError, match="empty list"):
        OnStagnation(())


def losses_by_hand(network, data, rate, epochs):
    """Losses before each step of plain descent, and the weights after each."""
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    losses, weights = [], [w]
    for _ in range(epochs):
        losses.append(float(np.mean((np.tanh(x @ w.T / np.sqrt(D)) @ a / np.sqrt(M) - y) ** 2) / 2))
        w = w - rate * gradient_by_hand(w, a, x, y)
        weights.append(w)
    return np.array(losses), weights


def test_a_run_stops_at_a_loss_and_stays_there(network, data):
    losses, weights = losses_by_hand(network, data, 0.5, 40)
    bound = float(losses[20] + losses[21]) / 2  # the loss before step 21 is the first below it
    flow = Descent(rate=0.5, stop_loss=bound)
    run = flow(network, data, [2.5, 5.0, 11.0, 12.0, 20.0], {"w": lambda obs: obs.network.w})
    assert run.status is Status.loss_reached
    assert run.status.ok
    assert run.stats["steps"] == 22  # the step of that epoch is still taken
    assert run.times.tolist() == [2.5, 5.0, 11.0, 12.0, 20.0]
    for seen, steps in zip(run.observed["w"], (5, 10, 22, 22, 22), strict=True):
        close(seen, weights[steps], rel=1e-10)
    close(run.final.w, weights[22], rel=1e-10)
    assert np.array_equal(run.final.w, Descent(rate=0.5)(network, data, [11.0]).final.w)  # bit for bit
    later = Descent(rate=0.5, stop_loss=bound, stop_after=30)(network, data, [20.0])
    assert later.stats["steps"] == 30
    never = Descent(rate=0.5, stop_loss=1e-30)(network, data, [20.0])
    assert never.status is Status.finished
    assert never.stats["steps"] == 40


def test_a_run_that_stops_can_be_extended(network, data):
    losses, _ = losses_by_hand(network, data, 0.5, 40)
    flow = Descent(rate=0.5, stop_loss=float(losses[21]) * (1 + 1e-9))
    whole = flow(network, data, [5.0, 20.0])
    for first in (5.0, 15.0):  # before the stop, and after
        part = flow.extend(flow(network, data, [first]), [20.0], {"w": lambda obs: obs.network.w})
        assert part.status is Status.loss_reached
        assert np.array_equal(part.final.w, whole.final.w)
        assert np.array_equal(part.observed["w"][0], whole.final.w)
    with pytest.raises(UserError, match="extended with the same value"):
        Descent(rate=0.5, stop_loss=1e-9).extend(whole, [30.0])


def test_each_seed_stops_by_itself(data):
    networks = [TwoLayer(M, D, scaling=ntk, key=jax.random.key(k)) for k in range(3)]
    flow = Descent(rate=0.5, batch=4, stop_loss=0.3)  # batches: seeds are trained in turn
    together = flow.over_seeds(networks, data, [30.0])
    single = [flow(network, data, [30.0], key=k) for k, network in enumerate(networks)]
    assert [one.stats["steps"] for one in together] == [one.stats["steps"] for one in single]
    assert len({one.stats["steps"] for one in together}) > 1
    assert all(one.stats["steps"] % 3 == 0 for one in together)  # at the end of an epoch of three minibatches
    for one, other in zip(together, single, strict=True):
        close(one.final.w, other.final.w, rel=1e-12)


def test_an_optimiser_takes_over_below_a_loss(network, data):
    trained, frozen = split_trained(network)
    adam, momentum = optax.adam(0.05), optax.sgd(0.05, 0.5)
    states, switched, steps = [adam.init(trained), momentum.init(trained)], False, []
    value = jax.value_and_grad(lambda t: 0.5 * jnp.mean((eqx.combine(t, frozen)(data.x) - data.y) ** 2))
    bound = 0.8 * float(value(trained)[0])
    for _ in range(25):
        loss, slope = value(trained)
        steps.append(switched)
        updates, states[switched] = (adam, momentum)[switched].update(slope, states[switched], trained)
        trained = optax.apply_updates(trained, updates)
        switched = switched or float(loss) < bound
    assert 0 < sum(steps) < 25
    flow = Descent(rate=0.05, optimiser=Adam(), then=Momentum(0.5), switch_loss=bound)
    run = flow(network, data, [1.25])
    close(run.final.w, trained.w, rel=1e-9)
    part = flow.extend(flow(network, data, [0.5]), [1.25])
    assert np.array_equal(part.final.w, run.final.w)
    for options in ({"then": Plain()}, {"switch_loss": 0.1}):
        with pytest.raises(UserError, match="give both"):
            Descent(**options)(network, data, [1.0])
    assert Descent(then=Adam(), switch_loss=0.1).resolve(network, data).coordinates == "weights"


def test_layers_have_schedules_of_their_own(data):
    from unlazy.networks import MeanFieldStack

    stack = MeanFieldStack((8, 7, 6), D, ranks=2, activation="tanh", key=jax.random.key(3))
    flow = Descent(rate=0.1, schedule=ByLayer(("blocks[0]", "blocks[2].a"), (StepDecay(0.5, 1), Cosine(2))))
    run = flow(stack, data, [0.3])
    assert run.times.tolist() == pytest.approx([0.3])  # time is that of the common schedule
    trained, frozen = split_trained(stack)
    for step in range(3):
        slope = jax.grad(lambda t: 0.5 * jnp.mean((eqx.combine(t, frozen)(data.x) - data.y) ** 2))(trained)
        first, last = 0.5**step, (1.0, 0.5, 0.0)[step]
        blocks = []
        for level, (block, change) in enumerate(zip(trained.blocks, slope.blocks, strict=True)):
            a, c = (first, first) if level == 0 else (last, 1.0) if level == 2 else (1.0, 1.0)
            moved = (block.a - 0.1 * a * stack.blocks[level].width * change.a, block.c - 0.1 * c * change.c)
            blocks.append(eqx.tree_at(lambda b: (b.a, b.c), block, moved))
        trained = eqx.tree_at(lambda t: t.blocks, trained, tuple(blocks))
    for block, wanted in zip(run.final.blocks, trained.blocks, strict=True):
        close(block.a, wanted.a, rel=1e-9)
        close(block.c, wanted.c, rel=1e-9, abs=1e-14)
    with pytest.raises(UserError, match=r"begins with 'blocks\[5\]'; there are blocks\[0\]"):
        Descent(schedule=ByLayer(("blocks[5]",), (Constant(),)))(stack, data, [1.0])
    with pytest.raises(UserError, match="give one for each"):
        ByLayer(("w",), ())
    with pytest.raises(UserError, match="must depend on the step alone"):
        ByLayer(("w",), (OnStagnation(),))


def test_the_common_schedule_of_layers_may_react(network, data):
    stagnation = OnStagnation((1.0, 0.1), window=2, wait=3)
    plain = Descent(rate=200.0, schedule=stagnation)(network, data, [4000.0])
    layered = Descent(rate=200.0, schedule=ByLayer(("w",), (Constant(),), stagnation))(network, data, [4000.0])
    assert int(plain.run_state.state.memory.reaction.level) == 1
    assert np.array_equal(plain.final.w, layered.final.w)


def test_numbers_of_switches_stops_and_stagnation_do_not_recompile(network, data, compilations):
    def run(switch, stop, after, factors, wait):
        schedule = ByLayer(("w",), (Constant(),), OnStagnation(factors, 2, wait))
        flow = Descent(
            rate=0.1,
            schedule=schedule,
            optimiser=Adam(),
            then=Plain(),
            switch_loss=switch,
            stop_loss=stop,
            stop_after=after,
        )
        flow(network, data, [1.0])

    run(0.1, 1e-3, 5, (1.0, 0.5), 3)
    compilations.count = 0
    run(0.2, 1e-2, 7, (1.0, 0.3), 4)
    assert compilations.count == 0


def test_times_are_rounded_to_steps(network, data):
    run = Descent(rate=0.4)(network, data, [0.5, 1.0], [TrainLoss()])
    close(run.times, [0.4, 0.8])


def test_divergence_is_a_status(network, data):
    linear = TwoLayer(M, D, scaling=ntk, activation=Linear(), key=jax.random.key(0))
    run = Descent(rate=100.0)(linear, data, [1e5], [TrainLoss()])
    assert run.status in (Status.diverged, Status.not_finite)
    assert run.stats["steps"] < 100


def test_cross_entropy_classifies(data):
    labels = jax.nn.one_hot((data.x[:, 0] > 0).astype(int) + (data.x[:, 1] > 0), 3)
    network = TwoLayer(64, D, 3, scaling=ntk, key=jax.random.key(0))
    run = Descent(CrossEntropy(), rate=1.0)(network, Dataset(data.x, labels), [3000.0])
    assert np.array_equal(np.argmax(run.final(data.x), 1), np.argmax(labels, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "rate = 0.0 is not in range: give a number above 0"),
        ({"rate": np.nan}, "rate = nan"),
        ({"batch": 0}, "batch = 0 is not in range: give a number of at least 1"),
        ({"clip_norm": -1.0}, "clip_norm = -1.0 is not in range"),
        ({"clip_sample": 0.0}, "clip_sample = 0.0 is not in range"),
        ({"stop_loss": 0.0}, "stop_loss = 0.0 is not in range"),
    ],
)
def test_settings_that_cannot_work_are_refused(network, data, options, message):
    with pytest.raises(UserError, match=message):
        Descent(**options)(network, data, [1.0])


def test_changing_the_rate_does_not_recompile(network, data, compilations):
    Descent(rate=0.1, optimiser=Momentum(0.5))(network, data, [1.0])
    compilations.count = 0
    Descent(rate=0.2, optimiser=Momentum(0.5))(network, data, [3.0])
    assert compilations.count == 0
