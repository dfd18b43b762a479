"""The command line, called as a person calls it: what it prints, where, and how it leaves."""

import csv
import json
import os
import sys

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

import unlazy
import unlazy.papers
from made_up import Ready, exponential, random_labels, shrink, stored_run
from unlazy import _registry, cli
from unlazy._errors import UserError
from unlazy.flows import Driver
from unlazy.lab import Interrupted, Lab, parse, stored_certificates
from unlazy.papers import chen2022, panels
from unlazy.papers.chen2022.theorems import FeaturesMustMove
from unlazy.papers.outcomes import certain, undecided, vacuous
from unlazy.report.terminal import print_benchmarks
from unlazy.theory import Finding, Verdict, theorems

COMMANDS = (
    "demo",
    "reproduce",
    "list",
    "panels",
    "run",
    "theorems",
    "certify",
    "bench",
    "report",
    "figure",
    "watch",
    "cite",
)
RECIPE = """
name = "tiny"
probes = ["train-loss", "feature-movement"]
data = { kind = "random-labels", n = 6, d = 3 }
network = { kind = "two-layer", width = 8 }
flow = { kind = "descent", rate = 0.25 }
times = [0, 1]
"""


REAL_PANELS = unlazy.papers.panels()


@pytest.fixture(autouse=True)
def _alone(tmp_path, tmp_path_factory, monkeypatch):
    """Every test has a folder of its own to stand in, and the two panels that can be made up."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    known = {panel.key: panel for panel in (chen2022.fig1, chen2022.fig5)}
    members = _registry.members
    monkeypatch.setattr(_registry, "members", lambda kind: known if kind == "panel" else members(kind))


@pytest.fixture
def call(capsys):
    """Call the command line; give its exit status, what it printed, and what it said on the side."""

    def called(*arguments):
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return left.value.code, printed.out, printed.err

    return called


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def made_up(monkeypatch):
    """Panels whose runs are made up; the claims are checked on them as on any."""

    def use(curve=exponential):
        monkeypatch.setattr(chen2022.RandomLabels, "recipes", lambda self, scale, seeds=None: random_labels(curve))
        monkeypatch.setattr(Lab, "run_all", Ready.run_all)

    use()
    return use


def strict_json(text):
    return json.loads(text, parse_constant=pytest.fail)


# ---------------------------------------------------------------- help


def test_help_lists_every_command(call):
    for arguments in ((), ("--help",), ("-h",)):
        status, out, err = call(*arguments)
        assert (status, err) == (0, "")
        assert all(command in out for command in COMMANDS)
        assert "--debug" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(call, command):
    status, out, err = call(command, "--help")
    assert (status, err) == (0, "")
    assert f"unlazy {command}" in out
    assert "--json" in out


def test_the_version_is_printed(call):
    assert call("--version") == (0, f"{unlazy.__version__}\n", "")


def test_arguments_come_from_the_shell(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["unlazy", "--version"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert unlazy.__version__ in capsys.readouterr().out


# ---------------------------------------------------------------- panels


def test_panels_are_listed_with_their_last_verdicts(call, made_up):
    status, out, err = call("panels")
    assert (status, err) == (0, "")
    assert out.count("not run") == 2 * len(REAL_PANELS)
    call("reproduce", "chen2022/fig1")
    assert "3 of 3 claims hold" in " ".join(call("panels")[1].split())


def test_panels_as_json(call, made_up):
    call("reproduce", "chen2022/fig5", "--out", "elsewhere")
    status, out, err = call("panels", "--json", "--out", "elsewhere")
    rows = strict_json(out)
    assert (status, err) == (0, "")
    assert [set(row) for row in rows] == [{"panel", "title", "scale", "settings", "last"}] * 2 * len(REAL_PANELS)
    last = {(row["panel"], row["scale"]): row["last"] for row in rows}
    assert last.pop(("chen2022/fig5", "quick")) == "3 of 3 claims hold"
    assert set(last.values()) == {"not run"}


# ---------------------------------------------------------------- run


def test_several_recipes_are_run(call, recipe, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(recipe.read_text().replace('"tiny"', '"other"'))
    status, out, err = call("run", recipe, other)
    assert (status, err) == (0, "")
    assert "tiny: finished, " in out
    assert "other: finished, " in out
    status, out, _ = call("run", recipe, other, "--json")
    assert status == 0
    assert [os.path.basename(row["run"]).partition("-")[0] for row in strict_json(out)] == ["tiny", "other"]


def test_a_recipe_is_run_and_kept(call, recipe, tmp_path, monkeypatch):
    status, out, err = call("run", recipe)
    assert (status, err) == (0, "")
    assert "train-loss" in out
    assert "feature-movement.hidden" in out
    assert "tiny: finished, " in out
    (kept,) = (tmp_path / "runs").glob("*.nc")
    assert str(kept.relative_to(tmp_path)) in out.replace("\n", "")

    monkeypatch.setattr(Driver, "begin", lambda *_: pytest.fail("something was computed again"))
    status, out, err = call("run", recipe, "--json")
    answer = strict_json(out)
    assert (status, err) == (0, "")
    assert set(answer) == {"run", "status", "seconds", "last", "nonfinite"}
    assert answer["status"] == ["finished"]
    with xr.open_dataset(answer["run"]) as run:
        assert answer["last"]["train-loss"] == pytest.approx(float(run["train-loss"][0, -1]), rel=1e-12)

    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    before = kept.stat().st_mtime_ns
    assert call("run", recipe, "--fresh", "--json")[0] == 0
    assert kept.stat().st_mtime_ns > before


def result(**attrs):
    attrs = {"finished": 1, "status": "finished", "seconds": 1.0, "recipe": "{}", "written": "today"} | attrs
    return xr.Dataset({"a": (("seed", "time"), np.array([[1.0, np.nan]]))}, coords={"time": [0.0, 2.0]}, attrs=attrs)


def test_a_file_that_is_given_twice_is_run_once(call, recipe):
    status, out, _ = call("run", recipe, recipe, "--json")
    assert status == 0
    assert strict_json(out)["status"] == ["finished"]


def test_json_has_no_nan(call, recipe, monkeypatch):
    monkeypatch.setattr(Lab, "run", lambda *_: result())
    status, out, _ = call("run", recipe, "--json")
    assert status == 0
    assert strict_json(out)["last"] == {"a": None}


def test_a_run_that_ends_early_has_status_1(call, recipe, monkeypatch):
    monkeypatch.setattr(Lab, "run", lambda *_: result(finished=0, status=np.array(["finished", "diverged"], object)))
    status, out, _ = call("run", recipe)
    assert status == 1
    assert "tiny: diverged, finished, 1.0 s" in out
    assert "tiny stopped at t = 2: The loss rose above" in " ".join(out.split())


@pytest.mark.parametrize("name", ["[/red] [bold]", "[link=x]y", "\\\\[", "a\\nb", "ü ½ σ", "x" * 3000])
def test_any_name_can_be_shown(call, tmp_path, monkeypatch, name):
    """On a terminal too, where the name stands beside a bar of progress."""
    path = tmp_path / "named.toml"
    path.write_text(RECIPE.replace('name = "tiny"', f'name = "{name}"'), encoding="utf-8")
    monkeypatch.setattr(cli.application, "screen", Console(stderr=True, force_terminal=True))

    def run(lab, recipe):
        lab.tell(recipe, 0.5, "half")
        return result()

    monkeypatch.setattr(Lab, "run", run)
    assert call("run", path)[0] == 0

    def stop(lab, recipe):
        raise Interrupted(recipe, 0.5, False)

    monkeypatch.setattr(Lab, "run", stop)
    status, _, err = call("run", path)
    assert status == 130
    assert "was interrupted at 50%" in err


# ---------------------------------------------------------------- reproduce and demo


@pytest.mark.slow
def test_a_panel_is_reproduced_from_end_to_end(call, tmp_path, monkeypatch):
    shrink(monkeypatch)
    status, out, err = call("reproduce", "chen2022/fig1", "--json")
    answer = strict_json(out)
    assert err == ""
    assert set(answer) == {"panel", "scale", "seconds", "claims", "seeds", "usual_seeds", "references"}
    assert (answer["panel"], answer["scale"]) == ("chen2022/fig1", "quick")
    assert len(answer["claims"]) == 3
    for claim in answer["claims"]:
        assert set(claim) == {"text", "paper", "measured", "outcome", "test", "agree", "seeds", "weaker", "hindsight"}
        assert claim["outcome"] in {one.value for one in unlazy.papers.Outcome}
    assert status == (1 if any(claim["outcome"] == "does not hold" for claim in answer["claims"]) else 0)
    assert {path.name for path in (tmp_path / "runs" / "panels").iterdir()} == {
        "chen2022-fig1-quick.json",
        "chen2022-fig1-quick.svg",
    }
    assert len(list((tmp_path / "runs").glob("*.nc"))) == 8
    monkeypatch.setattr(Driver, "begin", lambda *_: pytest.fail("something was computed again"))
    assert strict_json(call("reproduce", "chen2022/fig1", "--json")[1]) == answer
    assert strict_json(call("reproduce", "chen2022/fig1", "--stored", "--json")[1]) == answer
    monkeypatch.setattr(unlazy.papers, "choose", lambda name: [chen2022.fig1, chen2022.fig2])
    status, out, err = call("reproduce", "chen2022", "--stored", "--json")
    assert strict_json(out) == answer
    assert "Not all results are in 'runs', left out: chen2022/fig2." in " ".join(err.split())


def test_what_is_not_stored_is_not_computed_where_only_stored_results_are_asked_for(call):
    status, _, err = call("reproduce", "chen2022/fig1", "--stored")
    assert status == 2
    assert "The results of chen2022/fig1 at quick scale are not all in 'runs'" in " ".join(err.split())
    status, _, err = call("reproduce", "chen2022/fig1", "--stored", "--fresh")
    assert status == 2
    assert "choose one of them" in " ".join(err.split())


def test_all_claims_that_hold_are_status_0(call, made_up):
    status, out, err = call("reproduce", "chen2022/fig1")
    assert (status, err) == (0, "")
    assert "3 of 3 claims hold" in out
    assert "Figure: runs/panels/chen2022-fig1-quick.svg" in out
    assert "does not hold" not in out


def test_one_claim_that_fails_is_status_1(call, made_up):
    made_up(lambda width, n, t: exponential(width, n, t) if width == 512 else exponential(width, n, 2 * t))
    status, out, err = call("reproduce", "chen2022/fig1")
    assert (status, err) == (1, "")
    assert "2 of 3 claims hold" in out
    assert out.count("does not hold") == 2  # in its row, and in the summary
    status, out, _ = call("reproduce", "chen2022/fig1", "--json")
    assert status == 1
    assert [claim["outcome"] == "holds" for claim in strict_json(out)["claims"]] == [True, True, False]


def test_vacuous_and_undecided_claims_are_status_0(call, made_up, monkeypatch):
    judged = [vacuous("nothing could fail"), undecided("too few seeds")]
    monkeypatch.setattr(
        chen2022.RandomLabels,
        "claims",
        lambda self, results: [unlazy.papers.Claim("a", "b", "c", one) for one in judged],
    )
    for command in (("reproduce", "chen2022/fig1"), ("report", "--to", "report.html")):
        assert call(*command, "--json")[0] == 0
    judged.append(certain(False))
    status, out, _ = call("reproduce", "chen2022/fig1", "--json")
    assert [claim["outcome"] for claim in strict_json(out)["claims"]] == ["vacuous", "undecided", "does not hold"]
    assert status == call("report", "--to", "report.html")[0] == 1


def test_a_paper_is_all_of_its_panels(call, made_up):
    status, out, _ = call("reproduce", "chen2022", "--json", "--scale", "paper")
    lines = [strict_json(line) for line in out.splitlines()]
    assert status == 0
    assert [line["panel"] for line in lines] == ["chen2022/fig1", "chen2022/fig5"]
    assert {line["scale"] for line in lines} == {"paper"}


def test_workers_are_passed_on(call, made_up, monkeypatch):
    asked = []
    monkeypatch.setattr(Lab, "run_all", lambda self, recipes, workers: asked.append(workers) or recipes)
    assert call("reproduce", "chen2022/fig1")[0] == 0
    assert call("reproduce", "chen2022/fig1", "--workers", "3")[0] == 0
    assert asked == [1, 3]
    status, _, err = call("reproduce", "chen2022/fig1", "--workers", "0")
    assert status == 2
    assert "expected a whole number of at least 1, not 0" in err


def test_text_of_claims_is_not_markup(call, made_up, monkeypatch):
    claim = unlazy.papers.Claim("for all x in [a, b] [/bold]", "p", "[red]1[/red]", True)
    monkeypatch.setattr(chen2022.RandomLabels, "claims", lambda self, results: [claim])
    status, out, _ = call("reproduce", "chen2022/fig1")
    assert status == 0
    shown = " ".join(out.split())
    assert "[a, b] [/bold]" in shown
    assert "[red]1[/red]" in shown


def test_the_demo_writes_a_report(call, made_up, tmp_path):
    status, out, err = call("demo")
    assert (status, err) == (0, "")
    assert "Report: report.html" in out
    assert "3 of 3 claims hold" in (tmp_path / "report.html").read_text(encoding="utf-8")
    made_up(lambda width, n, t: 1 / (1 + t))
    status, out, _ = call("demo", "--json", "--report", "new/other.html")
    assert status == 0  # also where claims fail
    assert "does not hold" in out
    assert [strict_json(line)["panel"] for line in out.splitlines()] == ["chen2022/fig1"]
    assert (tmp_path / "new" / "other.html").exists()


def test_the_demo_leaves_out_a_panel_that_cannot_be_run(call, made_up, tmp_path, monkeypatch):
    """As where scikit-learn, whose digits one panel needs, is not installed: the others took minutes."""
    real, known = unlazy.report.reproduce, unlazy.papers.panels()
    lacking = type("Lacking", (), {"key": "made2099/fig1", "demo": True})()
    monkeypatch.setattr(unlazy.papers, "panels", lambda: {"lacking": lacking, **known})

    def reproduce(panel, *given):
        if panel is lacking:
            raise UserError("There are no digits.")
        return real(panel, *given)

    monkeypatch.setattr(unlazy.report, "reproduce", reproduce)
    status, _, err = call("demo")
    assert status == 0
    assert "made2099/fig1 is left out of the report: There are no digits." in " ".join(err.split())
    assert "3 of 3 claims hold" in (tmp_path / "report.html").read_text(encoding="utf-8")
    monkeypatch.setattr(unlazy.papers, "panels", lambda: {"lacking": lacking})
    status, _, err = call("demo")
    assert status == 2
    assert "There are no digits." in err


# ---------------------------------------------------------------- report, figure, watch, cite


def test_a_report_is_written_from_what_is_stored(call, made_up, tmp_path, monkeypatch):
    call("reproduce", "chen2022/fig1")
    stored_run(tmp_path / "runs", "my own [run]")
    monkeypatch.setattr(Driver, "begin", lambda *_: pytest.fail("something was computed"))
    status, out, err = call("report")
    assert (status, err) == (0, "")
    assert out == "3 of 3 claims hold in 1 panel; 1 run of your own. Report: report.html\n"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Figure 1: training loss" in text
    assert "my own [run]" in text
    made_up(lambda width, n, t: 1 / (1 + t))
    call("reproduce", "chen2022/fig5")
    status, out, _ = call("report", "runs/panels/chen2022-fig5-quick.json", "--to", "new/one.html", "--json")
    answer = strict_json(out)
    assert status == 1
    outcomes = answer.pop("outcomes")
    assert set(outcomes) == {"holds", "does not hold", "vacuous", "undecided"}
    assert sum(outcomes.values()) == 3
    assert outcomes["does not hold"] > 0
    assert answer == {"report": "new/one.html", "panels": 1, "runs": 0, "claims": 3, "references": {}, "sweeps": []}


def test_figures_are_written(call, made_up, tmp_path):
    status, out, err = call("figure", "chen2022/fig1", "--style", "paper")
    names = [f"figures/chen2022-fig1-quick.{form}" for form in ("svg", "pdf", "csv")]
    assert (status, out.splitlines(), err) == (0, names, "")
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)
    status, out, _ = call("figure", "chen2022", "--format", "csv", "--to", "elsewhere", "--json")
    assert strict_json(out) == [f"elsewhere/chen2022-{name}-quick.csv" for name in ("fig1", "fig5")]


def test_figures_of_stored_runs_are_written(call, tmp_path):
    runs = tmp_path / "runs"
    for width in (8, 16):
        loss = {"train-loss": np.exp(-width * np.arange(3.0))[None], "kernel.drift": np.ones((1, 3))}
        path = stored_run(runs, f"m {width}", variables=loss, network={"kind": "two-layer", "width": width})
    status, out, err = call("figure", "runs", "--probe", "train-loss", "--style", "paper")
    names = [f"figures/runs-train-loss.{form}" for form in ("svg", "pdf", "csv")]
    assert (status, out.splitlines(), err) == (0, names, "")
    rows = list(csv.DictReader((tmp_path / "figures" / "runs-train-loss.csv").read_text().splitlines()))
    drawn = {name: [float(row["y"]) for row in rows if row["curve"] == name] for name in ("width = 8", "width = 16")}
    np.testing.assert_allclose(drawn["width = 16"], np.exp(-16 * np.arange(3.0)))
    np.testing.assert_allclose(drawn["width = 8"], np.exp(-8 * np.arange(3.0)))
    assert {row["y_label"] for row in rows} == {"train loss"}
    status, out, _ = call("figure", path, "--format", "csv", "--to", "elsewhere", "--json")
    assert strict_json(out) == [f"elsewhere/{path.stem}.csv"]
    assert {row["y_label"] for row in csv.DictReader((tmp_path / strict_json(out)[0]).read_text().splitlines())} == {
        "train loss",
        "kernel: drift",
    }


def test_runs_can_be_watched_once(call, tmp_path):
    stored_run(tmp_path / "runs", "done")
    status, out, err = call("watch", "--json")
    (job,) = strict_json(out)
    assert (status, err) == (0, "")
    assert (job["name"], job["state"], job["share"]) == ("done", "finished", 1.0)


def test_ctrl_c_ends_a_watch(call, tmp_path, monkeypatch):
    import http.server

    (tmp_path / "runs").mkdir()

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(http.server.ThreadingHTTPServer, "serve_forever", stop)
    status, out, err = call("watch")
    assert (status, err) == (0, "")
    assert out.startswith("Watching runs at http://127.0.0.1:")


def test_a_run_is_cited(call, tmp_path):
    path = stored_run(tmp_path / "runs")
    status, out, err = call("cite", path)
    assert (status, err) == (0, "")
    assert out.count("\n@") + 1 == len(strict_json(call("cite", path, "--json")[1]))
    assert "@inproceedings{chen2022," in out


# ---------------------------------------------------------------- theorems and certify


def test_theorems_are_listed(call):
    status, out, err = call("theorems")
    assert (status, err) == (0, "")
    assert "chen2022/lemma-1" in out
    status, out, err = call("theorems", "--json")
    rows = strict_json(out)
    assert (status, err) == (0, "")
    assert [row["theorem"] for row in rows] == list(theorems())
    assert all(set(row) == {"theorem", "source", "statement", "feasible"} for row in rows)


def test_a_recipe_is_certified(call, recipe, tmp_path):
    status, out, err = call("certify", recipe, "--theorem", "chen2022")
    assert (status, err) == (0, "")
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines() if line.startswith("chen2022/")}
    assert rows.pop("chen2022/eq-15") == "HOLDS"
    assert set(rows.values()) == {"SILENT"}  # descent is not gradient flow, and six points in three dimensions
    assert out.splitlines()[-1] == f"1 HOLDS, {len(rows)} SILENT."
    assert len(list((tmp_path / "runs").glob("*.nc"))) == 1, "the run is kept, too"
    (one,) = stored_certificates(tmp_path / "runs")
    assert {row["theorem"]: row["verdict"] for row in one.findings} == {"chen2022/eq-15": "HOLDS"} | rows


@pytest.mark.parametrize(
    "arguments", [("demo", "--report", "."), ("figure", "chen2022/fig1", "--to", "file/x")], ids=["demo", "figure"]
)
def test_a_place_that_cannot_be_written_is_said_before_anything_is_run(call, tmp_path, arguments):
    (tmp_path / "file").write_text("")
    status, _, err = call(*arguments)
    assert status == 2
    assert "cannot be written" in err
    assert not (tmp_path / "runs").exists()


def test_what_was_run_can_be_certified_by_its_record(call, tmp_path, monkeypatch):
    """A panel's record holds its recipes; what theorems say of them then stands beside its claims in the report."""
    shrink(monkeypatch, flow={"kind": "descent", "rate": 0.1})
    assert call("reproduce", "chen2022/fig1")[0] in (0, 1)
    status, out, err = call("certify", "runs/panels/chen2022-fig1-quick.json", "--theorem", "chen2022/eq-15", "--json")
    assert (status, err) == (0, "")
    rows, recipes = strict_json(out), panels()["chen2022/fig1"].recipes("quick")
    assert {row["run"] for row in rows} == set(recipes)
    seeds = next(iter(recipes.values())).seeds
    status, out, _ = call("certify", next((tmp_path / "runs").glob("*.nc")), "--theorem", "chen2022/eq-15")
    assert (status, out.splitlines()[-1]) == (0, f"{seeds} HOLDS.")
    call("report")
    shown = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{len(rows)} HOLDS" in shown
    assert "not asked" not in shown


def test_one_theorem_is_asked_and_says_why(call, recipe):
    status, out, err = call("certify", recipe, "--theorem", "chen2022/lemma-1", "--json")
    (answer,) = strict_json(out)
    assert (status, err) == (0, "")
    assert (answer["theorem"], answer["verdict"], answer["margin"]) == ("chen2022/lemma-1", "SILENT", None)
    assert [one["what"] for one in answer["hypotheses"] if not one["met"]] == [
        "gradient flow, followed with error control"
    ]


def test_a_network_that_no_theorem_knows_gets_silence(call, recipe):
    recipe.write_text(RECIPE.replace("width = 8", "width = 8, train_readout = true"))
    status, out, _ = call("certify", recipe, "--theorem", "chen2022", "--json")
    assert status == 0
    assert {answer["verdict"] for answer in strict_json(out)} == {"SILENT"}


def test_a_theorem_that_fails_is_status_1(call, recipe, monkeypatch):
    failed = Finding(Verdict.FAILS, "It does [not].", 0.5)
    monkeypatch.setattr(FeaturesMustMove, "check", lambda self, run: failed)
    recipe.write_text("seeds = 2\n" + RECIPE)
    status, out, err = call("certify", recipe, "--theorem", "chen2022/eq-15")
    assert (status, err) == (1, "")
    assert out.splitlines()[0].split() == ["theorem", "seed", "verdict", "margin", "why"]
    assert out.count("It does [not].") == 2
    assert "2 FAILS." in out


# ---------------------------------------------------------------- bench

BENCHMARK = """
def measure():
    row = {"name": "fake", "ratio": 2.0, "baseline_seconds": 2.0, "seconds": 1.0, "error": 1e-9}
    return [row | {"baseline": "a loop"}]
"""


def test_a_benchmark_is_measured(call, tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setattr(cli.experiments, "BENCHMARKS", tmp_path / "benchmarks")
    (tmp_path / "benchmarks" / "fake.py").write_text(BENCHMARK)
    (tmp_path / "benchmarks" / "_helper.py").write_text("raise RuntimeError")
    status, out, err = call("bench")
    assert status == 0
    assert out.split()[:3] == ["name", "ratio", "baseline"]
    assert "fake" in out
    assert "Measuring fake" in err
    (row,) = strict_json(call("bench", "fake", "--json")[1])
    assert {"name", "ratio", "baseline_seconds", "seconds", "error"} <= set(row)


def test_benchmarks_of_the_current_folder_are_not_run(call, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "fake.py").write_text("raise RuntimeError")
    assert call("bench", "fake")[0] == 2


def test_rows_too_wide_for_a_table_are_lists(capsys):
    wide = {"name": "wide"} | {f"column_{index}": index for index in range(10)}
    print_benchmarks([[wide, {"name": "narrow", "ratio": 2.0}, {"name": "thin", "ratio": 3.0}]], as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["wide"]
    assert ["column", "7", "7"] in lines
    assert lines[-3:] == [["name", "ratio"], ["narrow", "2"], ["thin", "3"]]


def test_a_baseline_that_all_rows_share_is_printed_once(capsys):
    print_benchmarks([[{"name": name, "ratio": 2.0, "baseline": "by hand"} for name in ("a", "b")]], as_json=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines == [["name", "ratio"], ["a", "2"], ["b", "2"], ["baseline:", "by", "hand"]]


# ---------------------------------------------------------------- wrong calls

WRONG = {
    "no such command": (["nope"], "nope"),
    "no such option": (["--nope"], "--nope"),
    "demo with an argument": (["demo", "now"], "now"),
    "demo with an unknown option": (["demo", "--rpeort", "x"], "--rpeort"),
    "demo to a folder that cannot be": (["demo", "--out", "file/runs"], "cannot be written"),
    "demo with a folder for a report": (["demo", "--report", "."], "which is a folder: give the name of a file"),
    "demo with a report that cannot be": (["demo", "--report", "file/report.html"], "cannot be written"),
    "reproduce nothing": (["reproduce"], "PANEL"),
    "reproduce an unknown panel": (["reproduce", "chen2022/fgi1"], "Did you mean 'chen2022/fig1'?"),
    "reproduce at an unknown scale": (["reproduce", "chen2022/fig1", "--scale", "huge"], "huge"),
    "reproduce with no seeds": (
        ["reproduce", "chen2022/fig1", "--seeds", "0"],
        "expected a whole number of at least 1, not 0",
    ),
    "reproduce with half a seed": (["reproduce", "chen2022/fig1", "--seeds", "1.5"], "of at least 1, not 1.5"),
    "reproduce to a folder that cannot be": (["reproduce", "chen2022/fig1", "-o", "file/x"], "cannot be written"),
    "panels with an argument": (["panels", "chen2022"], "chen2022"),
    "panels with an unknown option": (["panels", "--jsno"], "--jsno"),
    "run nothing": (["run"], "RECIPE"),
    "run a missing file": (["run", "nowhere.toml"], "There is no recipe at 'nowhere.toml'"),
    "run a folder": (["run", "."], "There is no recipe at '.'"),
    "run what is not TOML": (["run", "file"], "is not valid TOML"),
    "run a recipe with a typo": (["run", "typo.toml"], "network: there is no option 'widht'. Did you mean 'width'?"),
    "run into a folder that cannot be": (["run", "tiny.toml", "--out", "file/x"], "Results cannot be written to"),
    "theorems with an argument": (["theorems", "chen2022"], "chen2022"),
    "certify nothing": (["certify"], "RECIPE"),
    "certify a missing file": (["certify", "nowhere.toml"], "There is no recipe at 'nowhere.toml'"),
    "certify what is not TOML": (["certify", "file"], "is not valid TOML"),
    "certify a recipe with a typo": (["certify", "typo.toml"], "Did you mean 'width'?"),
    "certify by an unknown theorem": (
        ["certify", "tiny.toml", "--theorem", "chen2022/theorem-9"],
        "There is no theorem or paper called 'chen2022/theorem-9'. Did you mean 'chen2022/theorem-",
    ),
    "certify a broken record": (["certify", "broken/panels/x.json"], "is not a complete record"),
    "certify by no theorem": (["certify", "tiny.toml", "--theorem"], "--theorem"),
    "report on nothing": (["report"], "There are no results at 'runs'"),
    "report on an empty folder": (["report", "empty"], "There is nothing to report in 'empty'"),
    "report on what is no result": (["report", "tiny.toml"], "There are no results at 'tiny.toml'"),
    "report into a folder": (["report", "stored", "--to", "."], "which is a folder"),
    "figure of an unknown panel": (["figure", "chen2022/fgi1"], "Did you mean 'chen2022/fig1'?"),
    "figure of nothing": (["figure"], "There is nothing to draw"),
    "figure of a run that is not there": (["figure", "runs/x.nc"], "There is no stored run at 'runs/x.nc'"),
    "figure of an empty folder": (["figure", "."], "There are no stored runs (.nc) in the folder '.'"),
    "probe of a panel": (["figure", "chen2022/fig1", "--probe", "kernel"], "not a stored run"),
    "figure in an unknown style": (["figure", "chen2022/fig1", "--style", "poster"], "poster"),
    "figure in an unknown format": (["figure", "chen2022/fig1", "--format", "doc"], "doc"),
    "figure to a folder that cannot be": (["figure", "chen2022/fig1", "--to", "file/x"], "cannot be written"),
    "watch no folder": (["watch", "nowhere"], "There is no folder 'nowhere' to watch"),
    "watch for everyone": (["watch", "empty", "--host", "0.0.0.0"], "can be reached from other machines"),
    "watch by a name": (["watch", "empty", "--host", "example.org"], "can be reached from other machines"),
    "watch at no port": (["watch", "empty", "--port", "99999"], "try another --port"),
    "cite nothing": (["cite"], "RUN"),
    "cite a missing run": (["cite", "nowhere.nc"], "There is no stored run at 'nowhere.nc'"),
    "cite a folder": (["cite", "."], "There is nothing to cite at '.'"),
    "bench an unknown name": (["bench", "nope"], "There is no benchmark called 'nope'"),
    "bench two names": (["bench", "a", "b"], "b"),
    "bench with an unknown option": (["bench", "--fast"], "--fast"),
}


@pytest.fixture
def wrong_files(tmp_path, recipe):
    (tmp_path / "file").write_text("= nonsense")
    (tmp_path / "typo.toml").write_text(RECIPE.replace("width", "widht"))
    (tmp_path / "empty").mkdir()
    stored_run(tmp_path / "stored")
    (tmp_path / "broken" / "panels").mkdir(parents=True)
    (tmp_path / "broken" / "panels" / "x.json").write_text("{")


@pytest.mark.usefixtures("wrong_files", "made_up")
@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_call_gets_one_line_and_status_2(call, arguments, words):
    status, out, err = call(*arguments)
    assert status == 2
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("unlazy: ")
    assert words in line
    assert "Traceback" not in err


def test_debug_shows_where(recipe, wrong_files):
    with pytest.raises(UserError, match="no option 'widht'"):
        cli.main(["run", "typo.toml", "--debug"])
    with pytest.raises(cli.cyclopts.CycloptsError):
        cli.main(["--debug", "reproduce", "chen2022/fig1", "--scale", "huge"])


def test_what_should_not_happen_is_one_line_too(call, recipe, monkeypatch):
    def fail(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED:\nOut of memory allocating 80000000000000 bytes [/x].")

    monkeypatch.setattr(Lab, "run", fail)
    status, out, err = call("run", recipe)
    assert (status, out) == (3, "")
    (line,) = err.splitlines()
    assert line.startswith("unlazy: an unexpected error occurred (RuntimeError: RESOURCE_EXHAUSTED: Out of memory")
    assert "--debug" in line
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        cli.main(["run", str(recipe), "--debug"])


def test_memory_that_is_used_up_is_one_sentence(call, recipe, monkeypatch):
    from jax.errors import JaxRuntimeError

    for error in (MemoryError(), JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 10320000688 bytes.")):
        monkeypatch.setattr("unlazy.lab.Lab.attempt", lambda *_, error=error: (_ for _ in ()).throw(error))
        status, _, err = call("run", recipe)
        assert status == 2
        assert err.startswith("unlazy: this cannot be computed here")
        assert "Take fewer samples" in err


def test_ctrl_c_is_status_130(call, recipe, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Lab, "run", stop)
    monkeypatch.setattr(Lab, "run_all", stop)
    for arguments in (("run", recipe), ("reproduce", "chen2022/fig1"), ("demo",)):
        assert call(*arguments) == (130, "", "Interrupted.\n")


def test_ctrl_c_in_a_run_says_how_to_go_on(call, recipe, monkeypatch, tmp_path):
    record = Driver._record

    def stop(self, check=False):
        record(self, check)
        raise KeyboardInterrupt

    monkeypatch.setattr(Driver, "_record", stop)
    status, out, err = call("run", recipe)
    assert (status, out) == (130, "")
    assert err == "'tiny' was interrupted at 0%; the same command continues from there.\n"
    store = Lab(tmp_path / "runs").store
    assert [path.name for path in store.folder.iterdir() if path.is_file()] == [
        store.checkpoint(parse_file(recipe)).name
    ]
    monkeypatch.setattr(Driver, "_record", record)
    status, out, _ = call("run", recipe)
    assert status == 0
    assert "tiny: finished" in out


def parse_file(path):
    import tomllib

    return parse(tomllib.loads(path.read_text()))
