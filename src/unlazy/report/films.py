"""Films: the observations of probes as frames, with a slider on the page that moves through time.

The table `_FILMS` lists the probes that are filmed: features h_i at two inputs, cosines between the weights of a
condensing layer, channel functions, f along rays, and the neurons of a block or of the second layer. The page shows the
last frame; the others are stored in it as short strings, which its script draws when the slider is moved.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from unlazy._files import by_field, is_part, recipe_table
from unlazy._plain import is_number
from unlazy.figures.style import evenly

Ticks = list[tuple[float, str]]  # position in pixels, and label
WIDTH, HEIGHT = 240, 200  # of the drawing, in pixels
_UNIT = 10  # coordinates are stored in tenths of a pixel
_MOST_LINES, _MOST_DOTS, _MOST_CELLS = 7, 1000, 64  # the palette has seven colours; more dots hide each other
_FEW_DOTS = 60
_MOST_FILMS = 6  # under one slider
_LEVELS = 32  # of a cosine: more cannot be distinguished, and would make some pictures five times as large


@dataclass(frozen=True)
class Track:
    """One moving part of a film: dots, a line, or a picture."""

    kind: str  # "dots", "line" or "picture"
    colour: int
    frames: list[str]  # base64: coordinates as 16-bit numbers, or a PNG
    last: str  # what the page shows at first: a path, or the address of a picture
    few: bool = False  # so few dots that they must be large to be seen


@dataclass(frozen=True)
class Film:
    """The film of one run: fixed axes and moving tracks."""

    title: str
    x_label: str
    y_label: str
    x_ticks: Ticks
    y_ticks: Ticks
    tracks: list[Track]


@dataclass(frozen=True)
class Reel:
    """Films under one slider."""

    what: str
    times: list[float]
    films: list[Film]

    @property
    def data(self) -> dict[str, Any]:
        """The data that the page's script needs."""
        tracks = [{"kind": track.kind, "frames": track.frames} for film in self.films for track in film.tracks]
        return {"times": [f"{t:g}" for t in self.times], "tracks": tracks}


def reels(runs: Mapping[str, xr.Dataset], frames: int) -> list[Reel]:
    """Make all films of these runs (by label): of several widths the largest, and of several seeds the first."""
    found: dict[tuple[str, tuple[float, ...]], list[Film]] = {}
    for label, run in _widest(runs).items():
        times = run["time"].values
        shown = evenly(len(times), frames)
        for kind, name, options in _probes(run) if len(shown) > 1 else ():
            what, make = _FILMS[kind]
            for film in make(run, name, options, shown, label):
                found.setdefault((what, tuple(times[shown])), []).append(film)
    kinds = list(dict.fromkeys(what for what, _ in found))  # films of one kind together, whatever the runs' times
    together = sorted(found.items(), key=lambda one: kinds.index(one[0][0]))
    return [Reel(what, list(times), films[:_MOST_FILMS]) for (what, times), films in together]


def _probes(run: xr.Dataset) -> Iterable[tuple[str, str, dict[str, Any]]]:
    """Yield kind, name in the result, and options of every probe of a stored run that can be filmed."""
    for section in recipe_table(run.attrs.get("recipe")).get("probes", []):
        options = {"kind": section} if isinstance(section, str) else dict(section)
        if options.get("when", "always") == "always" and str(options.get("kind")) in _FILMS:
            yield options["kind"], options.get("as", options["kind"]), options


def _widest(runs: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Of runs that differ in nothing but widths, choose the one with most neurons."""
    best: dict[str, tuple[float, str]] = {}
    for label, run in runs.items():
        fields = by_field(recipe_table(run.attrs.get("recipe")) | {"name": ""}, "recipe")
        sizes = [fields.pop(name) for name in list(fields) if re.fullmatch(r"recipe\.network\b.*\.widths?", name)]
        width = sum(size for one in sizes for size in (one if isinstance(one, list) else [one]) if is_number(size))
        same = json.dumps(fields, sort_keys=True)
        if width >= best.get(same, (-1.0, ""))[0]:
            best[same] = (width, label)
    chosen = {label for _, label in best.values()}
    return {label: run for label, run in runs.items() if label in chosen}


# ---------------------------------------------------------------- what is filmed


def _features(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for variable in map(str, run.data_vars):
        if variable.startswith(f"{name}.") and variable.endswith(".train"):
            x, y = (run[one].values[0, shown, :_MOST_DOTS] for one in (variable, variable[: -len("train")] + "test"))
            yield _film("dots", label, "h_i(x₁), x₁ in the training set", "h_i(x₂), x₂ in the test set", x, {1: y})


def _neurons(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for title, rows in _matrices(run, name, shown, label):
        if rows.shape[-1] >= 2:
            x, y = rows[:, :_MOST_DOTS, 0], rows[:, :_MOST_DOTS, 1]
            yield _film("dots", title, "first trained entry of a neuron", "second", x, {1: y})


def _second_layer(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    rows = run[f"{name}.neurons"].values[0, shown, :_MOST_DOTS]
    yield _film("dots", label, "w₂ of a neuron", "b₂", rows[..., 0], {1: rows[..., 1]})


def _profile(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    radius, mean, limit = (run[f"{name}.{one}"].values[0, shown] for one in ("radius", "mean", "limit"))
    yield _film("line", f"{label}: f blue, f̃ orange", "|x|", "", radius, {1: mean, 2: limit})


def _cosines(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for title, matrices in _matrices(run, name, shown, label):
        chosen = evenly(matrices.shape[-1], _MOST_CELLS)
        yield _heat(title, matrices.shape[-1], matrices[:, chosen][:, :, chosen])


def _weights(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    """Show cosines between observed vectors, ordered by their component along the main direction at the end."""
    for title, observed in _matrices(run, name, shown, label):
        vectors = np.nan_to_num(observed)
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(float).tiny)
        order = np.argsort(np.linalg.svd(unit[-1], full_matrices=False)[0][:, 0])
        some = unit[:, order[evenly(len(order), _MOST_CELLS)]]
        yield _heat(title, len(order), some @ np.swapaxes(some, 1, 2))


def _heat(title: str, count: int, matrices: np.ndarray) -> Film:
    frames = [_png(matrix) for matrix in matrices]
    track = Track("picture", 0, frames, f"data:image/png;base64,{frames[-1]}")
    words = f"{count} vectors, ordered by direction"
    return Film(f"{title}: blue -1, white 0, red 1", words, "", [], [], [track])


def _functions(run: xr.Dataset, name: str, options: dict[str, Any], shown: np.ndarray, label: str) -> Iterable[Film]:
    for title, values in _matrices(run, name, shown, label):  # (frames, points, channels)
        line = np.linspace(float(options.get("low", -1.0)), float(options.get("high", 1.0)), values.shape[1])
        thin, count = evenly(len(line), 101), values.shape[2]
        x = np.broadcast_to(line[thin], (len(values), len(thin)))
        more = f" (the first {_MOST_LINES} of {count})" if count > _MOST_LINES else ""
        channels = {k: values[:, thin, k] for k in range(min(count, _MOST_LINES))}
        yield _film("line", title + more, "x", "", x, channels)


def _matrices(run: xr.Dataset, name: str, shown: np.ndarray, label: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a title and the values of the first seed for every variable of a probe that is a matrix at each time."""
    for one in map(str, run.data_vars):
        if is_part(one, name) and run[one].ndim == 4 and run[one].dims[:2] == ("seed", "time"):
            yield f"{label}, {one.rpartition('.')[2]}", run[one].values[0, shown]


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


def _axis(values: np.ndarray, size: int, flip: bool = False) -> tuple[Callable[[Any], np.ndarray], Ticks]:
    """Return a function that maps values to pixels, in the same way in all frames, and the ticks of the axis."""
    from matplotlib.ticker import MaxNLocator

    finite = np.asarray(values, float)[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    room = 0.04 * (high - low) or max(abs(high), 1.0) * 0.5
    low, high = low - room, high + room

    def pixels(values: Any) -> np.ndarray:
        share = (np.asarray(values, float) - low) / (high - low)
        return size * (1 - share if flip else share)

    inside = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    return pixels, [(round(float(pixels(tick)), 1), f"{tick + 0.0:.3g}") for tick in inside]


def _film(kind: str, title: str, x_label: str, y_label: str, x: np.ndarray, curves: dict[int, np.ndarray]) -> Film:
    """Draw lines or dots by colour; x and the values of every curve have the shape (frames, points)."""
    across, x_ticks = _axis(x, WIDTH)
    up, y_ticks = _axis(np.stack(list(curves.values())), HEIGHT, flip=True)
    few = kind == "dots" and x.shape[1] <= _FEW_DOTS
    tracks = []
    for colour, y in curves.items():
        frames = [_points(across(a), up(b)) for a, b in zip(x, y, strict=True)]
        packed = [base64.b64encode(points.tobytes()).decode() for points in frames]
        tracks.append(Track(kind, colour, packed, _path(kind, frames[-1]), few))
    return Film(title, x_label, y_label, x_ticks, y_ticks, tracks)


def _points(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return points in tenths of a pixel, shape (count, 2), without those that are not finite."""
    points = np.stack([x, y], axis=-1)
    return np.clip(points[np.isfinite(points).all(axis=1)] * _UNIT, 0, 65535).round().astype("<u2")


def _path(kind: str, points: np.ndarray) -> str:
    """Return the path that the page's script draws from these points; a dot is a line of length 0 with round ends."""
    pairs = [f"{a / _UNIT:g} {b / _UNIT:g}" for a, b in points]
    if kind == "dots":
        return "".join(f"M{pair}h0" for pair in pairs)
    return "M" + "L".join(pairs) if pairs else ""


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
