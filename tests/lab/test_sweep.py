"""Sweeps: fields by name, points from lists, draws and tables, dry runs, and the list of runs beside the results."""

import json
import re

import numpy as np
import pytest

from unlazy._errors import UserError
from unlazy._terminal import print_table
from unlazy.cli import main
from unlazy.lab import Lab, Manifest, Sweep, estimates, parse, parse_setting, with_field
from unlazy.lab.estimates import preview
from unlazy.lab.expressions import Expression
from unlazy.lab.fields import field_value, lists_in


def swept(table, **section):
    return Sweep.parse(table | {"sweep": section})


# ---------------------------------------------------------------- fields


def test_a_field_is_set_in_a_copy(table):
    before = json.dumps(table)
    made = with_field(table, "network.width", 128)
    assert made["network"] == {"kind": "two-layer", "width": 128}
    assert json.dumps(table) == before
    assert with_field({"network": "two-layer"}, "network.width", 4)["network"] == {"kind": "two-layer", "width": 4}
    assert with_field({}, "flow.tolerance", 1e-3)["flow"] == {"kind": "gradient-flow", "tolerance": 1e-3}
    assert with_field({"data": {"n-test": 3}}, "data.n_test", 4)["data"] == {"n-test": 4}


def test_elements_of_lists_are_named_by_number_or_by_probe():
    table = {"probes": ["train-loss", {"kind": "kernel", "as": "small"}], "network": {"channels": [1, 2]}}
    assert with_field(table, "probes.small.samples", 5)["probes"][1]["samples"] == 5
    assert with_field(table, "probes.0.x", 5)["probes"][0] == {"kind": "train-loss", "x": 5}
    assert with_field(table, "network.channels.1", 8)["network"]["channels"] == [1, 8]
    assert field_value(table, "network.channels.1") == 2
    assert field_value(table, "seeds") == 1


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("netwrok.width", r"There is no field 'netwrok\.width' in a recipe\. Did you mean 'network\.width'\?"),
        ("bla", "There is no field 'bla' in a recipe. Known: data, dtype"),
        ("network..width", "is not the name of a field"),
        ("seeds.first", "'seeds' is one value and has no fields"),
        ("network.width.x", r"'network\.width' is a number \(8\) and has no fields"),
        ("times.end", "'times' is a list, whose elements are named by numbers"),
        ("probes.kernl.samples", "no probe is called 'kernl'"),
        ("probes.7.samples", "'probes' has only 2 elements"),
    ],
)
def test_a_wrong_field_is_named(table, field, sentence):
    with pytest.raises(UserError, match=sentence):
        with_field(table, field, 1)


def test_settings_are_toml_or_plain_words():
    assert parse_setting("network.width=512") == ("network.width", 512)
    assert parse_setting("a = 1e-3") == ("a", 1e-3)
    assert parse_setting("network.scaling=ntk") == ("network.scaling", "ntk")
    assert parse_setting("seed=[0, 1]") == ("seed", [0, 1])
    assert parse_setting("x=a=b") == ("x", "a=b")
    for wrong in ("network.width", "=3", "a=", "a=[1,"):
        with pytest.raises(UserError, match="--set"):
            parse_setting(wrong)


def test_a_list_is_a_sweep_only_where_one_value_is_wanted():
    table = {
        "seed": [0, 1],
        "data": {"kind": "random-labels", "n": [5, 6]},
        "network": {"kind": "conv-net", "channels": [4, 8], "activation": ["tanh", "relu"]},
        "flow": {"kind": "descent", "loss": {"kind": "squared", "reduction": ["sum", "mean"]}},
        "times": {"end": [1.0, 2.0]},
        "probes": ["train-loss", {"kind": "kernel", "samples": [3, 4]}],
    }
    assert set(lists_in(table)) == {
        *("seed", "data.n", "network.activation", "flow.loss.reduction", "times.end", "probes.1.samples")
    }
    assert lists_in(table | {"times": [0.0, 1.0], "network": "two-layer"}).keys().isdisjoint({"times", "network"})


# ---------------------------------------------------------------- expressions


def test_expressions_compute():
    assert Expression("0.1 / network.width")({"network.width": 5}) == pytest.approx(0.02)
    doubled = Expression("2 * w ** 2")({"w": 3})
    assert doubled == 18
    assert isinstance(doubled, int)
    assert Expression("round(sqrt(w)) + floor(2.7) - ceil(0.1)")({"w": 17}) == 5
    np.testing.assert_allclose(Expression("max(x, 1) - pi")({"x": np.array([0.0, 4.0])}), [1 - np.pi, 4 - np.pi])


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "a.b()", "x[0]", "9**9**9**9", "(lambda: 1)()", "1 if x else 2", "'a'", "x == 1", "1/0", "[x]",
     "squrt(x)", "y", "x +", "f'{x}'", "x if x else x", "True", "sqrt()", "x.__class__", "+" * 1000 + "x", "word * 2"],
)  # fmt: skip
def test_nothing_but_arithmetic_is_evaluated(text):
    with pytest.raises(UserError, match=r"^here: "):
        Expression(text, "here")({"x": 1, "word": "ntk"})


# ---------------------------------------------------------------- points


def test_a_grid_combines_each_with_each(table):
    table["network"]["width"] = [8, 16]
    sweep = swept(table, seed=[0, 1], grid={"flow.rate": {"from": 0.01, "to": 1.0, "count": 3, "spacing": "log"}})
    points = sweep.points()
    assert len(sweep) == len(points) == 12
    assert points[0].fields == {"network.width": 8, "seed": 0, "flow.rate": 0.01}
    assert points[-1].label == "width=16 seed=1 rate=1"
    assert points[-1].recipe.network["width"] == 16
    assert points[-1].recipe.name == "tiny: width=16 seed=1 rate=1"
    assert sweep.axes() == {"network.width": [8, 16], "seed": [0, 1], "flow.rate": [0.01, 0.1, 1.0]}


def test_dotted_names_may_be_nested_tables(table):
    one = swept(table, **{"network.width": [8, 16]})
    other = swept(table, network={"width": [8, 16]})
    assert [point.recipe for point in one.points()] == [point.recipe for point in other.points()]
    members = swept(table, network={"scaling": ["ntk", {"kind": "asymmetrical", "gamma": 0.5}]})
    assert [point.label for point in members.points()] == ["scaling=ntk", "scaling=asymmetrical (gamma 0.5)"]


def test_zipped_lists_advance_together(table):
    sweep = swept(table, zip={"network.width": [8, 16], "flow.rate": [0.2, 0.1]}, seed=[0, 1])
    assert [point.fields for point in sweep.points()][1:3] == [
        {"seed": 0, "network.width": 16, "flow.rate": 0.1},
        {"seed": 1, "network.width": 8, "flow.rate": 0.2},
    ]


def test_draws_are_in_their_ranges_and_more_of_them_begin_with_the_same(table):
    laws = {
        "network": {"width": {"log-integer": [4, 64]}},
        "flow": {"rate": {"log-uniform": [1e-3, 1.0]}},
        "data": {"n": {"integer": [3, 5]}},
        "dtype": {"choice": ["float32", "float64"]},
    }
    few, many, other = (
        [point.fields for point in swept(table, random={"count": count, "seed": seed, **laws}).points()]
        for count, seed in ((5, 1), (40, 1), (5, 2))
    )
    assert many[:5] == few != other
    assert {point["data.n"] for point in many} == {3, 4, 5}
    assert {point["dtype"] for point in many} == {"float32", "float64"}
    assert all(4 <= point["network.width"] <= 64 and 1e-3 <= point["flow.rate"] <= 1 for point in many)


def test_log_integers_are_drawn_uniformly_in_the_logarithm(table):
    sweep = swept(
        table, random={"count": 900, "data.n": {"log-integer": [1, 1000]}, "flow.rate": {"uniform": [0.0, 1.0]}}
    )
    below = np.mean([point.fields["data.n"] <= 31 for point in sweep.points()])
    expected = np.log(31.5 / 0.5) / np.log(1000.5 / 0.5)
    assert abs(below - expected) < 4 * np.sqrt(expected * (1 - expected) / 900)  # four standard deviations


def test_explicit_points_derived_fields_and_variables(table):
    sweep = swept(
        table,
        points=[{"network.width": 8}, {"network.width": 16}],
        variables={"gamma": [0.5, 1.0]},
        derived={"flow.rate": "network.width ** -gamma", "times.3": "8 * flow.rate + 2"},
    )
    (point, *_) = sweep.points()
    assert point.fields == {"variables.gamma": 0.5, "network.width": 8}
    assert point.derived == pytest.approx({"flow.rate": 8**-0.5, "times.3": 8 * 8**-0.5 + 2})
    assert point.recipe.flow["rate"] == pytest.approx(8**-0.5)
    assert point.label == "gamma=0.5 width=8"


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({}, "no field has several values"),
        ({"network.width": []}, r"sweep\.network\.width: the list is empty"),
        ({"network.width": 8}, "a list of values, or"),
        ({"network.width": [8, 8.0]}, "is given twice"),
        ({"netwrok.width": [8]}, r"Did you mean 'network\.width'\?"),
        ({"name": ["a", "b"]}, "is the name of the whole sweep"),
        ({"seed": [0, 1], "points": [{"seed": 3}]}, "'seed' is given values in two places"),
        ({"points": [{"seed": 3}, {"seeds": 4}]}, r"points\[1\] does not give 'seed'"),
        ({"points": []}, "a list of tables"),
        ({"zip": {"seed": [0, 1], "flow.rate": [0.1]}}, "seed has 2, flow.rate has 1"),
        ({"random": {"seed": 0, "flow.rate": {"uniform": [0.0, 1.0]}}}, r"random\.count: expected a whole number"),
        ({"random": {"count": 3, "flow.rate": {"unifrom": [0.0, 1.0]}}}, "Did you mean 'uniform'"),
        ({"random": {"count": 3, "flow.rate": {"log-uniform": [0.0, 1.0]}}}, "two increasing positive numbers"),
        ({"random": {"count": 9, "seed": 0, "data.n": {"integer": [3, 5]}}}, "not 9 different points"),
        ({"flow.rate": {"from": 0.0, "to": 1.0, "count": 3, "spacing": "log"}}, "positive for spacing"),
        ({"flow.rate": {"from": 0.1, "too": 1.0, "count": 3}}, "Did you mean 'to'"),
        ({"variables.g": [1, 2]}, r"appears in no field of \[sweep\.derived\]"),
        ({"seed": [1], "derived": {"flow.rate": "1 / network.widht"}}, r"Did you mean 'network\.width'"),
        ({"seed": [1], "derived": {"flow.rate": "1 / network.kind"}}, "'two-layer', which is not a number"),
        ({"seed": [1, 2], "derived": {"seed": "3"}}, "'seed' is given values in two places"),
        ({"variables.g": [1, 2], "derived": {"flow.rate": "0.1 + 0 * g"}}, "two points of the sweep are the same run"),
        ({"seed": [-1]}, "seed=-1: seed: "),
        ({"seed": [1], "limit": 0}, "limit is a whole number"),
        (
            {"seed": list(range(1000)), "data.n": list(range(1, 1001))},
            "1,000,000 points, more than the limit of 10,000",
        ),
        (
            {"random": {"count": 10**6, "flow.rate": {"uniform": [0.0, 1.0]}}},
            "1,000,000 points are more than the limit",
        ),
    ],
)
def test_a_wrong_sweep_is_one_sentence(table, section, sentence):
    with pytest.raises(UserError, match=sentence) as error:
        Sweep.parse(table | {"sweep": section}, where="a.toml").points()
    assert str(error.value).startswith("a.toml: ")
    assert "\n" not in str(error.value)


def test_the_limit_can_be_raised(table):
    sweep = Sweep.parse(table | {"sweep": {"seed": [0, 1, 2]}}, limit=2)
    with pytest.raises(UserError, match="3 points, more than the limit of 2"):
        sweep.points()
    assert len(Sweep.parse(table | {"sweep": {"seed": [0, 1, 2], "limit": 2}}, limit=3).points()) == 3


def test_settings_replace_lists_and_the_grid(table):
    table["network"]["width"] = [8, 16]
    made = table | {"sweep": {"seed": [0, 1], "derived": {"flow.rate": "1 / network.width"}}}
    assert len(Sweep.parse(made, [("network.width", 4)]).points()) == 2
    assert Sweep.parse(made, [("seed", [5, 6, 7])]).axes()["seed"] == [5, 6, 7]
    assert Sweep.parse(made, [("seed", 5)]).axes()["seed"] == [5]
    with pytest.raises(UserError, match=r"'flow\.rate' cannot be set"):
        Sweep.parse(made, [("flow.rate", 1.0)])


# ---------------------------------------------------------------- runs


def test_a_sweep_is_run_listed_and_found_again(tmp_path, table):
    sweep = Sweep(parse(table), grid={"flow.rate": [0.25, 0.125]})
    lab = Lab(tmp_path / "runs")
    before = preview(lab, sweep.points())
    assert [row.state for row in before.rows] == ["new", "new"]
    assert before.seconds is not None
    assert before.seconds > 0
    assert before.memory is not None
    assert before.memory > 6 * 3 * 8
    assert before.process > 2**26
    assert "gradients on zeros" in before.basis[0]
    assert not (tmp_path / "runs").exists()
    results = lab.sweep(sweep)
    assert list(results) == ["rate=0.25", "rate=0.125"]
    np.testing.assert_array_equal(
        results["rate=0.25"]["train-loss"], Lab(tmp_path / "x").run(parse(table))["train-loss"]
    )
    (path,) = (tmp_path / "runs").glob("*.sweep.json")
    manifest = Manifest.read(path)
    assert manifest.axes == {"flow.rate": [0.25, 0.125]}
    assert path.name == f"tiny-{manifest.digest}.sweep.json"
    assert all((path.parent / entry.file).exists() for entry in manifest.points)
    assert manifest.points[1].fields == {"flow.rate": 0.125}

    more = Sweep(parse(table), grid={"flow.rate": [0.25, 0.0625]})
    after = preview(Lab(tmp_path / "runs"), more.points())
    assert [row.state for row in after.rows] == ["stored", "new"]
    assert "stored runs of the same shape" in after.basis[0]
    later = preview(Lab(tmp_path / "runs"), Sweep(parse(table | {"seeds": 3}), grid={"flow.rate": [0.25]}).points())
    assert [row.state for row in later.rows] == ["in part"]
    ((_, _, one, _),) = preview(Lab(tmp_path / "runs"), swept(table, **{"flow.rate": [0.0625]}).points()).rows
    assert later.rows[0].seconds is not None
    assert later.rows[0].seconds < 3 * one, "two of three seeds are left, and each has fewer steps"


def test_compiling_is_estimated_once_for_all_runs_of_a_shape(tmp_path):
    cost = estimates.Cost(seconds=1e-3, memory=1.0, compiling=3.0, size=1.0)
    alone, shared = estimates.Known(4.0, 500.0, None), estimates.Known(0.2, 100.0, None)
    assert alone.expected(cost, None) == pytest.approx(1.0)  # without the 3 s of compiling
    assert shared.expected(cost, None) == pytest.approx(0.1)  # its share of compiling is not known
    assert estimates.Known(0.05, 100.0, None).expected(cost, None) == 0.05  # in one call a gradient takes less
    assert estimates.Known(4.0, 100.0, 100.0).expected(None, 200.0) == pytest.approx(8.0)


def test_shapes_for_which_there_is_no_time_are_estimated_from_the_others(tmp_path, table, monkeypatch):
    many = swept(table, **{"network.width": [8, 9, 10, 11, 12, 13]})
    monkeypatch.setattr(estimates, "_BUDGET", 1e-9)
    found = preview(Lab(tmp_path), many.points())
    assert all(row.seconds for row in found.rows)
    assert not any("cannot be estimated" in text for text in found.basis)
    assert found.seconds is not None
    assert found.compiling > sum(row.seconds for row in found.rows if row.seconds)


def test_a_changed_manifest_is_refused(tmp_path, table):
    lab = Lab(tmp_path)
    path, manifest = swept(table, seed=[0, 1]).manifest(lab.store)
    manifest.write(path)
    assert Manifest.read(path) == manifest
    path.write_text(path.read_text().replace('"seed=0"', '"seed=7"'))
    with pytest.raises(UserError, match="checksum is wrong"):
        Manifest.read(path)
    path.write_text("{")
    with pytest.raises(UserError, match="not the whole list"):
        Manifest.read(path)
    with pytest.raises(UserError, match="There is no sweep"):
        Manifest.read(tmp_path / "none.sweep.json")


FILE = """
name = "tiny"
seeds = 2
probes = ["train-loss", "weight-movement"]
times = [0.0, 0.5, 1.0, 2.0]
data = { kind = "random-labels", n = 6, d = 3 }
network = { kind = "two-layer", width = 8 }
flow = { kind = "descent", rate = [0.25, 0.125] }
"""


def command(*words):
    with pytest.raises(SystemExit) as status:
        main(list(words))
    return status.value.code


def test_tables_are_as_wide_as_they_need_to_be_in_a_pipe_and_lose_columns_on_a_terminal(capsys, monkeypatch):
    head, rows = ["width", "status", "train-loss", "a-long-name"], [[8, "finished", "0.123", "0.1" * 40]]
    monkeypatch.delenv("COLUMNS", raising=False)
    assert print_table(head, rows, least=2) == []
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setenv("COLUMNS", "40")
    assert print_table(head, rows, least=2) == ["a-long-name"]
    assert "0.123" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "10")
    assert print_table(head, rows, least=2) == ["train-loss", "a-long-name"]


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(FILE)
    assert command("sweep", "a.toml", "--dry-run") == 0
    assert re.search(r"2 runs: 2 new\. About .*, and [\d.]+ [MG]iB for each process with ", capsys.readouterr().out)
    assert command("sweep", "a.toml", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["fields"] for run in found["runs"]] == [{"flow.rate": 0.25}, {"flow.rate": 0.125}]
    assert (tmp_path / found["sweep"]).exists()
    assert command("sweep", "a.toml", "--dry-run") == 0
    assert "2 runs: all are stored" in capsys.readouterr().out
    assert command("run", "a.toml", "--set", "flow.rate=0.25") == 0
    capsys.readouterr()
    assert command("run", "a.toml") == 2
    for words, sentence in {
        ("sweep", "a.toml", "--set", "flow.raet=1"): "flow: there is no option 'raet'. Did you mean 'rate'?",
        ("sweep", "a.toml", "--set", "dtpye=1"): "There is no field 'dtpye' in a recipe. Did you mean 'dtype'?",
        ("sweep", "a.toml", "--set", "flow.rate=[]"): "a.toml: flow.rate: the list is empty",
        ("sweep", "b.toml"): "There is no recipe at 'b.toml'",
        ("sweep", "a.toml", "--limit", "1"): "2 points, more than the limit of 1",
    }.items():
        assert command(*words) == 2
        assert sentence in capsys.readouterr().err.replace("\n", " ")
    (tmp_path / "c.toml").write_text(FILE + "[sweep]\nseed = [0, 1]\n")
    assert command("run", "c.toml") == 2
    assert "the section [sweep] is for `unlazy sweep`" in capsys.readouterr().err
