"""Small models in plain JAX and Equinox, each with something that a tangent kernel or a tracer could get wrong.

Each is a function ``apply(params, x)``, its parameters, and the shape of one sample.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

KEY = jax.random.key(3)


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.fold_in(KEY, seed), shape) / max(shape[0], 1) ** 0.5


def broadcast(b, y):
    return jnp.broadcast_to(b, y.shape)


def mlp(p, x):
    for layer in p["layers"][:-1]:
        x = jnp.tanh(x @ layer["w"] + broadcast(layer["b"], x @ layer["w"]))
    return x @ p["layers"][-1]["w"] / 2.0


def mlp_params():
    layers = [{"w": normal(4, 6, seed=1), "b": normal(6, seed=2)}, {"w": normal(6, 5, seed=3), "b": normal(5, seed=4)}]
    return {"layers": [*layers, {"w": normal(5, 3, seed=5)}]}


def scalar(p, x):
    return jnp.tanh(x @ p["w"].T) @ (p["a"] * 0.3)


def cnn(p, x):
    x = jax.nn.relu(
        jax.lax.conv_general_dilated(x, p["first"], (2, 1), [(1, 2), (0, 1)], rhs_dilation=(1, 2))
        + jnp.broadcast_to(p["bias"].reshape(1, -1, 1, 1), (x.shape[0], 4, 4, 5))
    )
    x = jnp.tanh(jax.lax.conv_general_dilated(x, p["grouped"], (1, 1), "SAME", feature_group_count=2))
    x = jax.lax.conv_general_dilated(x, p["spread"], (1, 1), [(1, 0), (0, 0)], lhs_dilation=(2, 1))
    x = jax.lax.conv_general_dilated(x, p["last"], (1, 1), "SAME", dimension_numbers=("NCHW", "HWIO", "NHWC"))
    return jnp.mean(x, axis=(1, 2))


def cnn_params():
    return {
        "first": normal(4, 2, 3, 2, seed=1),
        "bias": normal(4, seed=2),
        "grouped": normal(6, 2, 3, 3, seed=3),
        "spread": normal(4, 6, 2, 2, seed=4),
        "last": normal(2, 2, 4, 3, seed=5),
    }


def tied(p, x):
    h = jnp.tanh(x @ p["w"])
    h = jnp.tanh(h @ p["w"])  # the same weight again
    h = jnp.tanh(h @ p["w"].T)  # and transposed
    return h @ p["out"]


def tied_autoencoder(p, x):
    return jnp.tanh(x @ p["w"]) @ p["w"].T


def tied_otherwise(p, x):
    h = jnp.tanh(x @ p["w"])  # then half of its rows
    return jnp.tanh(h[:, :2] @ p["w"][:2]) + h @ jnp.diag(p["d"])


def scanned(p, x):
    def layer(h, block):
        w, b = block
        h = jnp.tanh(h @ w + broadcast(b, h))
        return h, jnp.sum(h, axis=1)

    h, seen = jax.lax.scan(layer, x, (p["w"], p["b"]))
    return jnp.concatenate([h, seen.T], axis=1)


def stacked_by_hand(p, x):
    for index in range(3):
        x = jnp.tanh(x @ p["w"][index] + broadcast(p["b"][index], x))
    return x


def recurrent(p, x):
    def step(h, token):
        h = jnp.tanh(h @ p["w"] + token @ p["u"])
        return h, None

    start = jnp.zeros((x.shape[0], 4))
    return jax.lax.scan(step, start, jnp.swapaxes(x, 0, 1), reverse=True)[0]


def long_scan(p, x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), x, length=70)[0]


def attention(p, x):
    def norm(h):
        centred = h - jnp.mean(h, axis=-1, keepdims=True)
        h = centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
        return h * broadcast(p["gain"], h) + broadcast(p["shift"], h)

    def split(h):
        return h.reshape(*h.shape[:2], 2, 3)

    h = norm(x)
    q, k = split(h @ p["q"]), split(h @ p["k"])
    v = jnp.einsum("bte,ehd->bthd", h, p["v"])
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k), axis=-1)
    h = x + jnp.einsum("bhts,bshd,hde->bte", weights, v, p["o"])
    return jnp.mean(h + jax.nn.gelu(norm(h) @ p["up"]) @ p["down"], axis=1)


def attention_params():
    return {
        "q": normal(4, 6, seed=1),
        "k": normal(4, 6, seed=2),
        "v": normal(4, 2, 3, seed=3),
        "o": normal(2, 3, 4, seed=4),
        "up": normal(4, 7, seed=5),
        "down": normal(7, 4, seed=6),
        "gain": 1 + normal(4, seed=7),
        "shift": normal(4, seed=8),
    }


def residual(p, x):
    block = jax.checkpoint(lambda w, h: h + jnp.tanh(h @ w))
    return jax.jit(lambda w, h: block(w, block(w, h)))(p["a"], x) @ p["b"]


@jax.custom_jvp
def odd(x):
    return x


odd.defjvp(lambda primals, tangents: (primals[0], 3 * tangents[0]))  # not its derivative: it must be respected


@jax.custom_vjp
def linear(w, x):
    return x @ w


linear.defvjp(lambda w, x: (x @ w, (w, x)), lambda r, g: (2 * r[1].T @ g, g @ r[0].T))


def custom(p, x):
    return linear(p["b"], odd(jnp.tanh(x @ odd(p["a"]))))


def inner_vmap(p, x):
    return jax.vmap(lambda one: p["b"] @ jnp.tanh(p["a"] @ one + p["c"]))(x)


def normalised(p, x):
    w = p["w"] / jnp.linalg.norm(p["w"], axis=0, keepdims=True)
    return jnp.tanh(x @ w) @ (p["left"] @ p["right"])


def tokens(p, x):
    h = p["table"][x] + jnp.broadcast_to(p["where"], (*x.shape, 4))
    return jnp.mean(jnp.tanh(h @ p["w"]) @ p["table"].T, axis=1)


def module(model, x):
    return jax.vmap(model)(x)


class Net(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP
    name: str = eqx.field(static=True, default="net")

    def __call__(self, x):
        h = jax.nn.relu(self.conv(x))
        h = eqx.nn.AvgPool2d(2, 2)(h)
        return self.mlp(self.norm(h.reshape(-1)))


def net():
    keys = jax.random.split(KEY)
    mlp = eqx.nn.MLP(12, 2, 5, 1, key=keys[1])
    return Net(eqx.nn.Conv2d(1, 3, 3, padding=1, stride=1, key=keys[0]), eqx.nn.LayerNorm(12), mlp)


MODELS = {
    "mlp": (mlp, mlp_params, (4,)),
    "scalar": (scalar, lambda: {"w": normal(6, 4, seed=1), "a": normal(6, seed=2)}, (4,)),
    "cnn": (cnn, cnn_params, (2, 6, 6)),
    "tied": (tied, lambda: {"w": normal(4, 4, seed=1), "out": normal(4, 2, seed=2)}, (4,)),
    "tied autoencoder": (tied_autoencoder, lambda: {"w": normal(4, 3, seed=1)}, (4,)),
    "tied otherwise": (tied_otherwise, lambda: {"w": normal(4, 4, seed=1), "d": normal(4, seed=2)}, (4,)),
    "scan": (scanned, lambda: {"w": normal(3, 4, 4, seed=1), "b": normal(3, 4, seed=2)}, (4,)),
    "stacked by hand": (stacked_by_hand, lambda: {"w": normal(3, 4, 4, seed=1), "b": normal(3, 4, seed=2)}, (4,)),
    "recurrent": (recurrent, lambda: {"w": normal(4, 4, seed=1), "u": normal(3, 4, seed=2)}, (5, 3)),
    "long scan": (long_scan, lambda: {"w": normal(4, 4, seed=1)}, (4,)),
    "attention": (attention, attention_params, (5, 4)),
    "residual, remat, jit": (residual, lambda: {"a": normal(4, 4, seed=1), "b": normal(4, 2, seed=2)}, (4,)),
    "own derivatives": (custom, lambda: {"a": normal(4, 5, seed=1), "b": normal(5, 2, seed=2)}, (4,)),
    "vmap": (inner_vmap, lambda: {"a": normal(5, 4, seed=1), "b": normal(2, 5, seed=2), "c": normal(5, seed=3)}, (4,)),
    "functions of parameters": (
        normalised,
        lambda: {"w": normal(4, 5, seed=1), "left": normal(5, 2, seed=2), "right": normal(2, 3, seed=3)},
        (4,),
    ),
    "equinox": (module, net, (1, 4, 4)),
}


def drawn(name, n=5, dtype=None):
    """A model by name, with its parameters and a batch."""
    apply, params, sample = MODELS[name]
    x = jax.random.normal(jax.random.fold_in(KEY, 99), (n, *sample))
    cast = lambda leaf: leaf.astype(dtype) if dtype and eqx.is_inexact_array(leaf) else leaf  # noqa: E731
    return apply, jax.tree.map(cast, params()), cast(x)
