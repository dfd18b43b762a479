"""What a run is: not its name, its spelling, its times, its probes or its number of seeds."""

import copy
import sys

import pytest

from unlazy._errors import UserError
from unlazy.activations import Tanh
from unlazy.flows import Flow
from unlazy.lab import canonical, identify, identity, parse
from unlazy.lab.identity import Description, probe_digest
from unlazy.networks import Network
from unlazy.probes import Kernel, TrainLoss


def ids(table, **changes):
    return list(identify(parse(table | changes)).trajectories.values())


def test_each_seed_has_an_identity_of_its_own(table):
    first, second = ids(table)
    assert first != second
    assert len(first) == 64
    assert ids(table, seed=1) == [second, ids(table, seeds=3)[2]]


def test_name_times_probes_and_number_of_seeds_do_not_matter(table):
    again = ids(table, name="another", times=[0, 7], probes=["kernel"], seeds=1)
    assert again == ids(table)[:1]


SPELLINGS = {
    "an explicit default": {"network": {"kind": "two-layer", "width": 8, "readout": 1.0}},
    "a whole number for a float": {"network": {"kind": "two-layer", "width": 8, "readout": 1}},
    "another case": {"network": {"kind": "TwoLayer", "width": 8}},
    "underscores": {"network": {"kind": "two_layer", "width": 8}},
    "an activation that is the default": {"network": {"kind": "two-layer", "width": 8, "activation": {"kind": "Tanh"}}},
    "an embedding and a law that are the default": {
        "network": {"kind": "two-layer", "width": 8, "embedding": "identity", "weights": "normal"}
    },
    "a nested default": {"network": {"kind": "two-layer", "width": 8, "scaling": "mean-field"}},
    "an option with a hyphen": {"network": {"kind": "two-layer", "width": 8, "train-readout": False}},
    "data": {"data": {"d": 3, "n": 6, "kind": "RandomLabels"}},
    "flow": {"flow": {"kind": "Descent", "rate": 0.25, "optimiser": "plain", "schedule": {"kind": "constant"}}},
    "loss": {"flow": {"kind": "descent", "rate": 0.25, "loss": {"kind": "squared", "reduction": "mean"}}},
}


@pytest.mark.parametrize("change", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_another_spelling_is_the_same_run(table, change):
    assert ids(table, **change) == ids(table)


OTHERS = {
    "width": {"network": {"kind": "two-layer", "width": 9}},
    "activation": {"network": {"kind": "two-layer", "width": 8, "activation": "relu"}},
    "an option of a nested member": {"network": {"kind": "two-layer", "width": 8, "scaling": "ntk"}},
    "data": {"data": {"kind": "random-labels", "n": 6, "d": 4}},
    "flow": {"flow": {"kind": "descent", "rate": 0.5}},
    "loss": {"flow": {"kind": "descent", "rate": 0.25, "loss": {"kind": "squared", "reduction": "sum"}}},
    "precision": {"dtype": "float32"},
    "seed": {"seed": 7},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_another_experiment_is_another_run(table, change):
    assert not set(ids(table, **change)) & set(ids(table))


def test_flows_are_the_same_by_name_and_as_a_table():
    assert canonical("gradient-flow", Flow) == canonical({"kind": "gradient-flow", "tolerance": 1e-4}, Flow)
    assert canonical("gradient-flow", Flow) != canonical({"kind": "gradient-flow", "tolerance": 1e-5}, Flow)


def test_members_in_lists_are_expanded():
    short = {"kind": "mean-field-stack", "widths": [8, 8], "activation": ["tanh", "relu"]}
    long = {"kind": "mean-field-stack", "widths": [8, 8.0], "activation": [{"kind": "tanh"}, {"kind": "Relu"}]}
    assert canonical(short, Network) == canonical(long, Network)


def test_shared_data_are_those_of_the_first_seed(table):
    apart, together = ids(table), ids(table, same_data=True)
    assert apart[0] == together[0]
    assert apart[1] != together[1]
    assert together[1] != ids(table, same_data=True, seed=1, seeds=1)[0], "there it has data of its own"


def test_other_numerics_are_another_run(table, monkeypatch):
    before = ids(table)
    monkeypatch.setattr(identity, "RESULTS", identity.RESULTS + 1)
    assert not set(ids(table)) & set(before)


def test_a_wrong_recipe_is_refused_here_already(table):
    for change, sentence in (
        ({"network": {"kind": "two-layr"}}, "network: There is no network called 'two-layr'. Did you mean 'two-layer'"),
        ({"flow": {"kind": "descent", "rte": 1.0}}, "flow: there is no option 'rte'. Did you mean 'rate'"),
        ({"probes": ["train-los"]}, "Did you mean 'train-loss'"),
        ({"network": {"kind": "two-layer", "width": "x"}}, "network.width: Expected 'int', got 'str'"),
    ):
        with pytest.raises(UserError, match=sentence.replace(".", r"\.").replace("[", r"\[")):
            identify(parse(table | change))


def test_probes_are_known_by_what_they_do(table):
    one = identify(parse(table | {"probes": [{"kind": "train-loss", "as": "mine", "when": "end"}]}))
    assert one.digests["mine"] == probe_digest(TrainLoss())
    assert probe_digest(Kernel()) != probe_digest(Kernel(samples=3)) != probe_digest(TrainLoss())


def test_functions_are_told_apart_by_what_they_capture():
    def scaled(by):
        return lambda x: by * x

    def shifted(by):
        return lambda x: by + x

    described = Description()
    assert described.value(scaled(2.0)) == described.value(scaled(2.0))
    assert described.value(scaled(2.0)) != described.value(scaled(3.0))
    assert described.value(scaled(2.0)) != described.value(shifted(2.0))


def test_what_cannot_be_recognised_is_never_the_same_in_another_process(monkeypatch):
    strange = object()
    before = Description().value(strange)
    monkeypatch.setattr(identity, "_SESSION", "another process")
    assert Description().value(strange) != before


def test_the_source_of_outside_code_belongs_to_the_identity(tmp_path, monkeypatch):
    package = tmp_path / "outside_of_unlazy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("def f(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    from outside_of_unlazy.part import f  # pyright: ignore[reportMissingImports]

    def sources():
        described = Description()
        described.value({"activation": f, "ours": Tanh()})
        return described.sources()

    before = sources()
    assert list(before) == ["outside_of_unlazy.part"]
    assert sources() == before
    (package / "helper.py").write_text("constant = 1\n")
    assert sources() != before
    for name in [name for name in sys.modules if name.startswith("outside_of_unlazy")]:
        monkeypatch.delitem(sys.modules, name)


def test_describing_changes_nothing(table):
    before = copy.deepcopy(table)
    identify(parse(table))
    assert table == before
