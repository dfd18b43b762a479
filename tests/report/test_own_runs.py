"""Reports of one's own runs: every probe, overlaid and grouped, with a table of settings and last values."""

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn import HOSTILE, Drawn, Page

from made_up import Ready, filmed, stored_run
from unlazy._files import write
from unlazy.lab import Store, Sweep, read
from unlazy.report import gather, reproduce, write_report
from unlazy.report.figures import own_runs
from unlazy.report.own_runs import families

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_scalings.toml"


def report(folder, *more):
    return Page(write_report(gather([folder, *more]), folder / "report.html"))


def cells(page):
    """The words of every row of every table, cell by cell."""
    rows = [re.split(r"</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", page.source, flags=re.DOTALL)]
    return [[" ".join(re.sub(r"<[^>]*>", "", cell).split()) for cell in row][:-1] for row in rows]


def sweep(folder, scalings=("ntk", "mean-field"), widths=(8, 16), seeds=2):
    """Store a sweep whose last training loss is the width plus 0.5 for the second seed, or half of it."""
    for scaling in scalings:
        for width in widths:
            end = width / (1 if scaling == "ntk" else 2)
            loss = np.array([[100.0, 50.0, end + 0.5 * seed] for seed in range(seeds)])
            variables = {"train-loss": loss, "kernel.drift": np.array([[0.0, 1e-3, 1.0]] * seeds)}
            network = {"kind": "two-layer", "width": width, "scaling": scaling}
            stored_run(folder, f"{scaling} {width}", seeds=seeds, variables=variables, network=network)


def test_the_example_of_the_readme_shows_its_losses(tmp_path):
    """The recipe has eight variables, and the losses come last by alphabet."""
    recipe = read(EXAMPLE)
    t = recipe.times.grid()
    names = ["feature-movement.hidden", "kernel.alignment", "kernel.drift", "kernel.drift_operator"]
    names += ["kernel.largest", "kernel.smallest", "test-loss", "train-loss"]
    variables = {name: np.exp(-t / 200)[None] * np.ones((3, 1)) for name in names}
    own = {"network": recipe.network, "data": recipe.data, "flow": recipe.flow, "seeds": recipe.seeds}
    stored_run(tmp_path, recipe.name, probes=recipe.probes, variables=variables, times=t, **own)
    page = report(tmp_path)
    assert "8 plots. 1: train loss against t; features in the NTK scaling. 2: test loss against t" in page.text
    for name in names:
        assert name in page.text
    (family,) = families(gather([tmp_path]))
    assert family.probes[:3] == ["train-loss", "test-loss", "feature-movement.hidden"]


def test_a_run_of_ones_own(tmp_path):
    loss = np.array([[1.0, 0.1, 1e-4], [2.0, 0.2, 2e-4]])
    stored_run(tmp_path, "my own", seeds=2, variables={"train-loss": loss, "flat": np.ones((2, 3))})
    page = report(tmp_path)
    for words in (
        "unlazy: 1 run ",
        "1 run; computing time 1.5 s.",
        "2 seeds, 3 times; finished.",
        "2 plots. 1: train loss against t (vertical axis logarithmic)",
        "Seeds: 0 to 1.",
        'name = "my own"',
        "method: descent",
    ):
        assert words in page.text
    assert cells(page) == [
        ["Probe", "Mean over seeds", "Smallest", "Largest"],
        ["train-loss", "0.00015", "0.0001", "0.0002"],
        ["flat", "1", "1", "1"],
    ]
    for words in ("claim", "Claim", "Paper", "panel", "not asked", "1 seeds", "0 of 0"):
        assert words not in page.text
    assert page.tags.count("svg") == 1


def test_one_seed_is_one_seed(tmp_path):
    stored_run(tmp_path, "alone")
    text = report(tmp_path).text
    assert "1 seed, 3 times" in text
    assert "1 seeds" not in text


def test_runs_are_overlaid_and_their_differences_named(tmp_path):
    sweep(tmp_path)
    page = report(tmp_path)
    assert "4 runs, 8 seeds, 3 times." in page.text
    assert "They differ in network.scaling (mean-field, ntk), network.width (8, 16)." in page.text
    assert page.tags.count("svg") == 1, "one figure for all runs"
    assert "Colour: network.scaling; dash pattern: network.width." in page.text
    assert "2 plots. 1: train loss against t; scaling = mean-field, width = 8, scaling = mean-field, width" in page.text
    assert page.tags.count("article") == 1
    assert "Recipes and provenance of 4 runs" in page.text


def test_the_table_has_settings_and_last_values(tmp_path):
    sweep(tmp_path)
    (family,) = families(gather([tmp_path]))
    assert (family.settings, family.probes) == (["scaling", "width"], ["train-loss", "kernel.drift"])
    found = {tuple(row.settings): row for row in family.rows}
    assert set(found) == {(scaling, width) for scaling in ("ntk", "mean-field") for width in ("8", "16")}
    loss = found["ntk", "16"].values[0]
    assert (loss.mean, loss.low, loss.high, found["ntk", "16"].count) == (16.25, 16.0, 16.5, 2)
    assert (loss.text, loss.range) == ("16.25", "16 to 16.5")
    assert found["mean-field", "8"].values[0].mean == 4.25
    assert not family.unfinished
    head, *rows = cells(report(tmp_path))
    assert head == ["scaling", "width", "seeds", "train-loss", "kernel.drift"]
    assert ["ntk", "16", "2", "16.25 16 to 16.5", "1 1 to 1"] in rows
    assert len(rows) == 4


def test_seeds_from_several_files_are_one_row(tmp_path):
    for seed in (0, 1):
        loss = {"train-loss": np.array([[3.0, 2.0, 1.0 + seed]])}
        path = stored_run(tmp_path, f"seed {seed}", variables=loss, seed=seed)
        with xr.open_dataset(path) as stored:
            run = stored.load().assign_coords(seed=[seed])
        path.unlink()
        write(run, path)
    (family,) = families(gather([tmp_path]))
    (row,) = family.rows
    assert (row.count, row.values[0].mean, row.values[0].range) == (2, 1.5, "1 to 2")
    assert len(family.details) == 2


def test_runs_on_other_data_are_another_family(tmp_path):
    sweep(tmp_path)
    other = {"kind": "orthogonal-clusters", "n": 10, "d": 5}
    stored_run(tmp_path, "elsewhere", data=other)
    found = families(gather([tmp_path]))
    assert {(one.title, len(one.details)) for one in found} == {("Runs on random-labels", 4), ("elsewhere", 1)}


def test_a_run_that_ended_early_says_so(tmp_path):
    sweep(tmp_path)
    path = stored_run(tmp_path, "broken", variables={"train-loss": np.array([[1.0, np.nan, np.nan]])})
    with xr.open_dataset(path) as stored:
        run = stored.load()
    path.unlink()
    run.attrs["status"] = "not_finite"
    write(run, path)
    head, *rows = cells(report(tmp_path))
    place = head.index("status")
    assert sorted(row[place] for row in rows) == ["finished"] * 4 + ["not_finite"]
    assert [row[place + 1] for row in rows if row[place] == "not_finite"] == ["not finite"]


def test_runs_made_in_python_need_no_recipe(tmp_path):
    for name in ("first", "second"):
        values = {"train-loss": (("seed", "time"), np.array([[1.0, 0.5]])), "end": (("seed",), np.array([2.0]))}
        attrs = {"made": "python", "recipe": "", "name": f"{name} $x$", "status": "finished", "seconds": 1.0}
        write(xr.Dataset(values, {"seed": [0], "time": [0.0, 1.0]}, attrs), tmp_path / f"{name}.nc")
    page = report(tmp_path)
    assert "Runs made in Python" in page.text
    assert cells(page)[0] == ["run", "seeds", "train-loss", "end"]
    assert ["first $x$", "1", "0.5", "2"] in cells(page)
    assert page.text.count("Made in Python: there is no recipe.") == 2
    assert "name =" not in page.text


def test_the_runs_of_a_sweep_are_drawn_by_its_list(tmp_path):
    table = {"data": "sphere-sine", "network": {"kind": "two-layer", "width": 2}, "times": [0, 1]}
    path, manifest = Sweep(table, grid={"network.scale": [1.0, 2.0]}).manifest(Store(tmp_path))
    manifest.write(path)
    stored = tmp_path / manifest.points[0].file
    stored.touch()
    assert own_runs([str(path), "chen2022/fig1", str(stored)]) == ([stored], ["chen2022/fig1"])


def test_arrays_and_films_of_own_runs(tmp_path):
    stored_run(tmp_path, "filmed", **filmed())
    page = report(tmp_path)
    assert page.text.count("at the time shown by the slider") == 0, "that is for screen readers only"
    assert page.tags.count("output") == 4, "four kinds of film"
    for name in ("feature pair: hidden.train", "cosine matrix: conv1", "channels: block-1", "trained neurons: block-2"):
        assert name.replace(".", " ").replace("block-", "block ") in page.text


def test_many_runs_make_one_page(tmp_path):
    sweep(tmp_path, widths=range(1, 23), seeds=1)
    page = report(tmp_path)
    assert "44 runs" in page.text
    assert (page.tags.count("svg"), page.tags.count("article")) == (1, 1)
    assert page.tags.count("tr") == 45
    assert len(page.source) < 500_000


def test_hostile_names_and_settings_are_only_text(tmp_path):
    for name, folder in ((HOSTILE, tmp_path / "hostile"), ("plain", tmp_path / "plain")):
        for index in (1, 2):
            network = {"kind": "two-layer", "width": 8, "scaling": f"{name} {index}"}
            stored_run(folder, f"{name} {index}", network=network)
    hostile, plain = report(tmp_path / "hostile"), report(tmp_path / "plain")
    assert [tag for tag in hostile.tags if tag not in ("tspan", "text", "g", "path")] == [
        tag for tag in plain.tags if tag not in ("tspan", "text", "g", "path")
    ]
    assert "{{ 7 * 7 }}" in hostile.text
    assert all(reference.startswith("#") for reference in hostile.references)


def test_panels_and_own_runs_share_a_report(tmp_path):
    sweep(tmp_path)
    reproduce(Drawn(), "quick", Ready(tmp_path))
    text = report(tmp_path).text
    assert "1 of 1 claims hold in 1 panel, and 4 runs;" in text


@pytest.mark.parametrize("bad", ["", "{", "[]", "3"])
def test_a_recipe_that_cannot_be_read_does_not_stop_the_report(tmp_path, bad):
    path = stored_run(tmp_path, "odd")
    with xr.open_dataset(path) as stored:
        run = stored.load()
    path.unlink()
    run.attrs["recipe"] = bad
    write(run, path)
    assert "odd" in report(tmp_path).text
