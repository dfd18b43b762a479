"""Films: what probes saw, frame by frame, where time is the point. A slider on the page moves through them.

Which probes are filmed is a table here: features h_i at two inputs, cosines between the weights of a condensing layer,
channel functions, f along rays, and the neurons of a block or of the second layer. The last frame is drawn into the
page; the others wait in it as short strings, which its script draws when the slider asks for them.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from unlazy._files import recipe_table

WIDTH, HEIGHT = 240, 200  # of the drawing, in pixels
_UNIT = 10  # coordinates are kept in tenths of a pixel
_MOST_LINES, _MOST_DOTS, _MOST_CELLS = 7, 1000, 64  # the palette has seven colours; more dots hide each other
_FEW_DOTS = 60
_MOST_FILMS = 6  # under one slider
_LEVELS = 32  # of a cosine: more are not told apart, and a picture of random ones would weigh five times as much


@dataclass(frozen=True)
class Track:
    """One thing that moves: a path of dots or a line, or a picture."""

    kind: str  # "dots", "line" or "picture"
    colour: int
    frames: list[str]  # base64: coordinates as 16-bit numbers, or a PNG
    last: str  # what the page shows at first: a path, or the address of a picture
    few: bool = False  # so few dots that they must be large to be seen


@dataclass(frozen=True)
class Film:
    """What one run shows: axes that stay, and tracks that move."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    tracks: list[Track]


@dataclass(frozen=True)
class Reel:
    """Films under one slider."""

    what: str
    times: list[float]
    films: list[Film]

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script needs."""
        tracks = [{"kind": track.kind, "frames": track.frames} for film in self.films for track in film.tracks]
        return {"times": [f"{t:g}" for t in self.times], "tracks": tracks}


def reels(runs: Mapping[str, xr.Dataset], frames: int) -> list[Reel]:
    """Film all that can be filmed of these runs (by label): of several widths the widest, and of seeds the first."""
    if frames < 2:
        return []
    found: dict[tuple[str, tuple[float, ...]], list[Film]] = {}
    for label, run in _widest(runs).items():
        times = run["time"].values
        shown = np.unique(np.linspace(0, len(times) - 1, min(frames, len(times))).round().astype(int))
        if len(shown) < 2:
            continue
        for kind, name, options in _probes(run):
            if kind in _FILMS:
                what, make = _FILMS[kind]
                for film in make(run, name, options, shown, label):
                    found.setdefault((what, tuple(times[shown])), []).append(film)
    kinds = list(dict.fromkeys(what for what, _ in found))  # of one kind together, whatever the runs' times
    together = sorted(found.items(), key=lambda one: kinds.index(one[0][0]))
    return [Reel(what, list(times), films[:_MOST_FILMS]) for (what, times), films in together]


def _probes(run: xr.Dataset) -> Iterable[tuple[str, str, dict[str, Any]]]:
    """Kind, name in the result, and options of every probe of a stored run that looked more than once."""
    for section in recipe_table(run.attrs.get("recipe")).get("probes", []):
        options = {"kind": section} if isinstance(section, str) else dict(section)
        if options.get("when", "always") == "always" and isinstance(options.get("kind"), str):
            yield options["kind"], options.get("as", options["kind"]), options


def _widest(runs: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Of runs that differ in nothing but widths, keep the one with most neurons."""
    best: dict[str, tuple[float, str]] = {}
    for label, run in runs.items():
        recipe = recipe_table(run.attrs.get("recipe"))
        network = recipe.get("network")
        width = _strip(network) if isinstance(network, dict) else 0.0
        recipe.pop("name", None)
        same = json.dumps(recipe, sort_keys=True)
        if width >= best.get(same, (-1.0, ""))[0]:
            best[same] = (width, label)
    chosen = {label for _, label in best.values()}
    return {label: run for label, run in runs.items() if label in chosen}


def _strip(network: dict[str, Any]) -> float:
    """Take the widths out of a network's options and add them up."""
    total = 0.0
    for name, value in list(network.items()):
        if name in ("width", "widths"):
            sizes = value if isinstance(value, list) else [value]
            total += sum(float(size) for size in sizes if str(size).replace(".", "").isdigit())
            del network[name]
        elif isinstance(value, dict):
            total += _strip(value)
    return total


# ---------------------------------------------------------------- what is filmed


def _features(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for variable in map(str, run.data_vars):
        if variable.startswith(f"{name}.") and variable.endswith(".train"):
            x, y = (run[one].values[0, shown, :_MOST_DOTS] for one in (variable, variable[: -len("train")] + "test"))
            yield _dots(label, "h_i(x₁), x₁ in the training set", "h_i(x₂), x₂ in the test set", x, y)


def _neurons(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for variable in _of(run, name, 4):
        rows = run[variable].values[0, shown, :_MOST_DOTS]
        if rows.shape[-1] >= 2:
            block = variable.rpartition(".")[2]
            title = f"{label}, {block}"
            yield _dots(title, "first trained entry of a neuron", "second", rows[..., 0], rows[..., 1])


def _second_layer(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    rows = run[f"{name}.neurons"].values[0, shown, :_MOST_DOTS]
    yield _dots(label, "w₂ of a neuron", "b₂", rows[..., 0], rows[..., 1])


def _profile(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    radius, mean, limit = (run[f"{name}.{one}"].values[0, shown] for one in ("radius", "mean", "limit"))
    x, y = _Scale(radius, WIDTH), _Scale(np.stack([mean, limit]), HEIGHT, flip=True)
    tracks = []
    for colour, values in ((1, mean), (2, limit)):
        frames = [_packed(x(a), y(b)) for a, b in zip(radius, values, strict=True)]
        tracks.append(Track("line", colour, frames, _path("line", x(radius[-1]), y(values[-1]))))
    yield Film(f"{label}: f blue, f̃ orange", "|x|", "", x.ticks, y.ticks, tracks)


def _cosines(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for variable in _of(run, name, 4):
        matrices = run[variable].values[0, shown]
        kept = _some(matrices.shape[-1])
        yield _heat(f"{label}, {variable.rpartition('.')[2]}", matrices.shape[-1], matrices[:, kept][:, :, kept])


def _weights(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    """Cosines between the vectors that a probe kept, in the order of their part along the main direction at the end."""
    for variable in _of(run, name, 4):
        vectors = np.nan_to_num(run[variable].values[0, shown])
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(float).tiny)
        order = np.argsort(np.linalg.svd(unit[-1], full_matrices=False)[0][:, 0])
        some = unit[:, order[_some(len(order))]]
        yield _heat(f"{label}, {variable.rpartition('.')[2]}", len(order), some @ np.swapaxes(some, 1, 2))


def _some(count: int) -> np.ndarray:
    """As many indices as a picture can show, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_CELLS)).round().astype(int))


def _heat(title: str, count: int, matrices: np.ndarray) -> Film:
    frames = [_png(matrix) for matrix in matrices]
    track = Track("picture", 0, frames, f"data:image/png;base64,{frames[-1]}")
    words = f"{count} vectors, those of a direction together"
    return Film(f"{title}: blue -1, white 0, red 1", words, "", [], [], [track])


def _functions(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for variable in _of(run, name, 4):
        values = run[variable].values[0, shown]  # (frames, points, channels)
        line = np.linspace(float(options.get("low", -1.0)), float(options.get("high", 1.0)), values.shape[1])
        thin = np.unique(np.linspace(0, len(line) - 1, min(len(line), 101)).round().astype(int))
        channels = values[:, thin, :_MOST_LINES]
        x, y = _Scale(line, WIDTH), _Scale(channels, HEIGHT, flip=True)
        tracks = []
        for k in range(channels.shape[2]):
            frames = [_packed(x(line[thin]), y(one[:, k])) for one in channels]
            tracks.append(Track("line", k, frames, _path("line", x(line[thin]), y(channels[-1, :, k]))))
        more = f" (the first {_MOST_LINES} of {values.shape[2]})" if values.shape[2] > _MOST_LINES else ""
        title = f"{label}, {variable.rpartition('.')[2]}{more}"
        yield Film(title, "x", "", x.ticks, y.ticks, tracks)


def _of(run: xr.Dataset, name: str, axes: int) -> list[str]:
    """Variables of a probe with so many axes."""
    names = [str(one) for one in run.data_vars if str(one) == name or str(one).startswith(f"{name}.")]
    return [one for one in names if run[one].ndim == axes and run[one].dims[:2] == ("seed", "time")]


_FILMS: dict[str, tuple[str, Callable[..., Iterable[Film]]]] = {
    "feature-pair": ("Features h_i at two inputs, a dot for each neuron", _features),
    "trained-neurons": ("Neurons of a block", _neurons),
    "second-layer": ("Neurons of the second layer", _second_layer),
    "radial-profile": ("f along rays", _profile),
    "input-weights": ("Cosines between the weights of a layer", _weights),
    "cosine-matrix": ("Cosines between the weights of a layer", _cosines),
    "channels": ("Channel functions", _functions),
    "backward-signals": ("Backpropagated signals of the channels", _functions),
    "preactivations": ("Neurons as functions of the input", _functions),
}


# ---------------------------------------------------------------- how it is drawn


class _Scale:
    """Maps values to pixels, the same in all frames, so that what moves on the page has moved."""

    def __init__(self, values: np.ndarray, size: int, flip: bool = False) -> None:
        finite = np.asarray(values, float)[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
        room = 0.04 * (high - low) or max(abs(high), 1.0) * 0.5
        self.low, self.high, self.size, self.flip = low - room, high + room, size, flip

    def __call__(self, values: np.ndarray) -> np.ndarray:
        share = (np.asarray(values, float) - self.low) / (self.high - self.low)
        return self.size * (1 - share if self.flip else share)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        from matplotlib.ticker import MaxNLocator

        inside = [tick for tick in MaxNLocator(4).tick_values(self.low, self.high) if self.low <= tick <= self.high]
        return [(round(float(self(np.asarray(tick))), 1), f"{tick + 0.0:.3g}") for tick in inside]


def _dots(title: str, x_label: str, y_label: str, x: np.ndarray, y: np.ndarray) -> Film:
    across, up = _Scale(x, WIDTH), _Scale(y, HEIGHT, flip=True)
    frames = [_packed(across(a), up(b)) for a, b in zip(x, y, strict=True)]
    track = Track("dots", 1, frames, _path("dots", across(x[-1]), up(y[-1])), few=x.shape[1] <= _FEW_DOTS)
    return Film(title, x_label, y_label, across.ticks, up.ticks, [track])


def _points(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Points in tenths of a pixel, (count, 2); those that are not finite are left out."""
    points = np.stack([x, y], axis=-1)
    return np.clip(points[np.isfinite(points).all(axis=1)] * _UNIT, 0, 65535).round().astype("<u2")


def _packed(x: np.ndarray, y: np.ndarray) -> str:
    return base64.b64encode(_points(x, y).tobytes()).decode()


def _path(kind: str, x: np.ndarray, y: np.ndarray) -> str:
    """The path that the page's script would draw from the same points: a dot is a line of no length with round ends."""
    points = [f"{a / _UNIT:g} {b / _UNIT:g}" for a, b in _points(x, y)]
    if kind == "dots":
        return "".join(f"M{point}h0" for point in points)
    return "M" + "L".join(points) if points else ""


def _png(matrix: np.ndarray) -> str:
    from matplotlib import colormaps
    from PIL import Image

    colours = (255 * colormaps["RdBu_r"](np.linspace(0, 1, _LEVELS))[:, :3]).round().astype(np.uint8)
    levels = np.clip((np.nan_to_num(matrix) + 1) / 2 * (_LEVELS - 1), 0, _LEVELS - 1).round().astype(np.uint8)
    picture = Image.fromarray(levels)
    picture.putpalette(colours.tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, format="png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
