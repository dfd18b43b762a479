"""Films: which runs are shown, that frames are what probes saw, and that the last one is drawn into the page."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from made_up import filmed, stored_run
from unlazy.lab import read_run
from unlazy.report.films import HEIGHT, WIDTH, reels


@pytest.fixture
def run(tmp_path):
    return read_run(stored_run(tmp_path, **filmed()))


def decoded(frame):
    return np.frombuffer(base64.b64decode(frame), "<u2").reshape(-1, 2) / 10


def test_all_that_can_be_filmed_is(run):
    found = reels({"a": run}, 13)
    assert [reel.what.split()[0] for reel in found] == ["Features", "Cosines", "Channel", "Neurons"]
    for reel in found:
        assert reel.times == [0.0, 1.0, 10.0]
        assert all(len(track.frames) == 3 for film in reel.films for track in film.tracks)


def test_a_frame_is_what_was_seen(run):
    (film,) = reels({"a": run}, 13)[0].films
    x, y = (run[f"feature-pair.hidden.{which}"].values[0] for which in ("train", "test"))
    for t, frame in enumerate(film.tracks[0].frames):
        dots = decoded(frame)
        assert np.all((dots >= 0) & (dots[:, :1] <= WIDTH) & (dots[:, 1:] <= HEIGHT))
        # A fit of pixels by values is exact up to the tenth of a pixel that is kept, with the same scale in all frames.
        for pixels, values, every, size in ((dots[:, 0], x[t], x, WIDTH), (HEIGHT - dots[:, 1], y[t], y, HEIGHT)):
            room = 0.04 * np.ptp(every)
            wanted = size * (values - every.min() + room) / (np.ptp(every) + 2 * room)
            np.testing.assert_allclose(pixels, wanted, atol=0.051)


def test_the_last_frame_is_drawn(run):
    for reel in reels({"a": run}, 13):
        for film in reel.films:
            for track in film.tracks:
                if track.kind == "picture":
                    assert track.last == f"data:image/png;base64,{track.frames[-1]}"
                    assert base64.b64decode(track.frames[0]).startswith(b"\x89PNG")
                    continue
                numbers = track.last.replace("h0", "").replace("L", "M").strip("M").split("M")
                drawn = np.array([[float(part) for part in pair.split()] for pair in numbers])
                np.testing.assert_allclose(drawn, decoded(track.frames[-1]), atol=1e-9)


def test_channels_are_lines_of_their_own(run):
    (film,) = reels({"a": run}, 13)[2].films
    assert [track.colour for track in film.tracks] == list(range(7))
    assert "the first 7 of 9" in film.title


def test_what_the_papers_panels_keep_is_filmed(tmp_path):
    """zhou2023 keeps the weights, of which cosines are shown; ren2023 the second layer and f along rays."""
    angles = np.linspace(0, 3, 100) * np.array([1.0, 0.5, 0.0])[:, None]  # at the end all have one direction
    signs = np.where(np.arange(100) % 2, 1.0, -1.0)[:, None]
    weights = signs * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    variables = {
        "input-weights.conv1-kernels": weights[None],
        "second-layer.neurons": np.ones((1, 3, 4, 2)),
        "second-layer.weight": np.ones((1, 3)),
        **{f"radial-profile.{name}": np.ones((1, 3, 9)) for name in ("radius", "mean", "limit", "largest")},
    }
    probes = [{"kind": "input-weights", "layers": ["conv1-kernels"]}, "second-layer", "radial-profile"]
    run = read_run(stored_run(tmp_path, probes=probes, variables=variables))
    cosines, neurons, rays = reels({"a": run}, 13)
    assert [len(reel.films) for reel in (cosines, neurons, rays)] == [1, 1, 1]
    assert len(rays.films[0].tracks) == 2
    pictures = [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in cosines.films[0].tracks[0].frames]
    assert pictures[0].shape == (64, 64)
    block = pictures[-1] // 16  # below or above zero: two groups, each of one sign, after ordering
    assert np.all(block[:32, :32] == 1)
    assert np.all(block[32:, 32:] == 1)
    assert np.all(block[:32, 32:] == 0)
    assert len(np.unique(pictures[0])) > 10


def test_few_frames_are_spread_over_the_run(tmp_path):
    times = tuple(np.linspace(0.0, 40.0, 41))
    run = read_run(stored_run(tmp_path, **filmed(times)))
    assert reels({"a": run}, 5)[0].times == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert reels({"a": run}, 0) == reels({"a": run}, 1) == []


def test_of_several_widths_the_widest_is_shown(tmp_path):
    runs = {}
    for width in (8, 32, 16):
        for n in (5, 6):
            data = {"kind": "random-labels", "n": n, "d": 2}
            network = {"kind": "two-layer", "width": width}
            path = stored_run(tmp_path, f"m={width} n={n}", data=data, network=network, **filmed())
            runs[f"m={width} n={n}"] = read_run(path)
    assert [film.title for film in reels(runs, 3)[0].films] == ["m=32 n=5", "m=32 n=6"]


def test_what_is_not_finite_is_left_out(tmp_path):
    made = filmed()
    made["variables"]["feature-pair.hidden.train"][0, :, :3] = [np.nan, np.inf, -np.inf]
    run = read_run(stored_run(tmp_path, **made))
    (film,) = reels({"a": run}, 3)[0].films
    assert all(len(decoded(frame)) == 17 for frame in film.tracks[0].frames)


def test_runs_without_films_are_no_trouble(tmp_path):
    plain = read_run(stored_run(tmp_path))
    odd = plain.copy()
    odd.attrs["recipe"] = "no JSON"
    renamed = read_run(stored_run(tmp_path, probes=[{"kind": "channels", "as": "mine", "when": "end"}, "train-loss"]))
    assert reels({"a": plain, "b": odd, "c": renamed}, 13) == []


def test_a_renamed_probe_is_found(tmp_path):
    variables = {"mine.block-1": np.zeros((1, 3, 11, 2))}
    run = read_run(stored_run(tmp_path, probes=[{"kind": "channels", "as": "mine"}], variables=variables))
    (reel,) = reels({"a": run}, 13)
    assert len(reel.films[0].tracks) == 2
    json.dumps(reel.data, allow_nan=False)
