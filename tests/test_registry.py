"""The registry: members in any file and of plug-ins are found, and nothing else is."""

import abc
import importlib
import itertools
import sys

import pytest

from unlazy import _registry
from unlazy._errors import UserError, suggest
from unlazy._registry import Kind, base_of, find, kebab, kind_of, load, members, modules, noun_of, resolve, walk


def forget():
    for cached in (_registry._own, _registry._members):
        cached.cache_clear()


BASE = """
import abc

class Animal(abc.ABC):
    @abc.abstractmethod
    def sound(self): ...
"""
CATS = """
from __future__ import annotations
from typing import TYPE_CHECKING
from {package}._base import Animal
from {package}.dogs import GreatDane, puppy
import {package}._base as nothing

if TYPE_CHECKING:
    from elsewhere import Unknown

class HouseCat(Animal):
    def sound(self): return "miaow"

class BigCat(Animal):
    '''Still abstract.'''

class _Hidden(HouseCat): ...

class StandIn(HouseCat):
    registered = False

class RealCat(StandIn): ...

class Stone: ...

tabby = HouseCat()
_secret = HouseCat()
number = 3

def stray_cat(age: Unknown = 1) -> HouseCat: return HouseCat()
def _kitten() -> HouseCat: return HouseCat()
def weight() -> float: return 4.0
def unreadable() -> Unknown: return None
def unreadable_too() -> nothing.Such.Thing: return None
def silent(): return HouseCat()
"""
DOGS = """
from {package}._base import Animal

class GreatDane(Animal):
    def sound(self): return "woof"

def puppy() -> Animal: return GreatDane()
"""
PRIVATE = """
from {package}._base import Animal

class Wolf(Animal):
    def sound(self): return "howl"
"""
_numbers = itertools.count()


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A kind of its own, on disk: a package with a base, two public files and a private one."""
    name = f"synthetic_zoo_{next(_numbers)}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for file, text in {"_base": BASE, "cats": CATS, "dogs": DOGS, "_private": PRIVATE}.items():
        (folder / f"{file}.py").write_text(text.format(package=name))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(_registry.KINDS, "animal", Kind(f"{name}._base:Animal", "Animals.", "animal", package=name))
    forget()
    yield importlib.import_module(name)
    forget()
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


@pytest.fixture
def animal(zoo):
    return importlib.import_module(f"{zoo.__name__}._base").Animal


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("TwoLayer", "two-layer"),
        ("two_layer", "two-layer"),
        ("two-layer", "two-layer"),
        ("Zipf", "zipf"),
        ("cifar10", "cifar10"),
        ("Layer2Norm", "layer2-norm"),
        ("", ""),
    ],
)
def test_names_are_kebab_case(name, wanted):
    assert kebab(name) == wanted


def test_a_base_has_a_noun():
    assert noun_of(type("NodeWeights", (), {})) == "node weights"


def test_only_public_concrete_members_are_found(zoo):
    assert set(members("animal")) == {"house-cat", "tabby", "stray-cat", "real-cat", "great-dane", "puppy"}


def test_members_are_the_things_themselves(zoo):
    found = members("animal")
    cats = importlib.import_module(f"{zoo.__name__}.cats")
    assert found["house-cat"] is cats.HouseCat
    assert found["tabby"] is cats.tabby
    assert found["stray-cat"] is cats.stray_cat


def test_imported_names_belong_to_their_own_file(zoo, animal):
    cats = importlib.import_module(f"{zoo.__name__}.cats")
    assert {name for name, _ in walk([cats], animal)} == {"HouseCat", "RealCat", "tabby", "stray_cat"}


def test_a_new_file_is_enough(zoo, tmp_path):
    text = f"from {zoo.__name__}._base import Animal\nclass GoldFish(Animal):\n    def sound(self): return ''\n"
    (tmp_path / zoo.__name__ / "fish.py").write_text(text)
    importlib.invalidate_caches()
    assert "gold-fish" in members("animal")
    assert [module.__name__.rpartition(".")[2] for module in modules(zoo)][1:] == ["cats", "dogs", "fish"]


def test_a_package_may_be_a_single_file(zoo):
    dogs = importlib.import_module(f"{zoo.__name__}.dogs")
    assert modules(dogs) == [dogs]


def test_folders_are_searched(zoo, tmp_path):
    folder = tmp_path / zoo.__name__ / "farm"
    folder.mkdir()
    (folder / "__init__.py").write_text(f"from {zoo.__name__}.farm.geese import GreyGoose\n")
    text = f"from {zoo.__name__}._base import Animal\nclass GreyGoose(Animal):\n    def sound(self): return ''\n"
    (folder / "geese.py").write_text(text)
    (folder / "_hidden.py").write_text(text.replace("GreyGoose", "Fox"))
    importlib.invalidate_caches()
    assert "grey-goose" in members("animal")
    assert "fox" not in members("animal")
    names = [module.__name__.partition(".")[2] for module in modules(zoo)]
    assert names == ["", "cats", "dogs", "farm", "farm.geese"]


def test_two_members_of_one_name_are_not_quietly_one(zoo, animal, tmp_path):
    text = f"from {zoo.__name__}._base import Animal\nclass Tabby(Animal):\n    def sound(self): return ''\n"
    (tmp_path / zoo.__name__ / "more.py").write_text(text)
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match=r"Two members of \w+ are called 'tabby': rename one"):
        members("animal")
    assert [kebab(name) for name, _ in walk(modules(zoo), animal)].count("tabby") == 2


def test_another_base_finds_nothing(zoo):
    assert list(walk(modules(zoo), type("Plant", (abc.ABC,), {}))) == []


def test_a_name_is_found_in_any_spelling(zoo):
    for name in ("great-dane", "great_dane", "GreatDane"):
        assert find("animal", name).__name__ == "GreatDane"


def test_a_wrong_name_gets_the_nearest_right_one(zoo):
    with pytest.raises(UserError, match=r"There is no animal called 'graet-dane'. Did you mean 'great-dane'"):
        find("animal", "graet-dane")


def test_a_hopeless_name_gets_the_list(zoo):
    with pytest.raises(UserError, match="Known: great-dane, house-cat, puppy, real-cat, stray-cat, tabby"):
        find("animal", "xyzzy")


def test_private_and_foreign_names_cannot_be_found_by_name(zoo):
    for name in ("wolf", "_hidden", "stone", "number", "big-cat", "_secret", "stand-in"):
        with pytest.raises(UserError, match="There is no animal"):
            find("animal", name)


def test_suggestions_are_sorted_and_near():
    assert suggest("tnah", ["tanh", "relu"]) == "Did you mean 'tanh'?"
    assert suggest("zzz", ["tanh", "relu"]) == "Known: relu, tanh."


# ---------------------------------------------------------------- our own kinds

FOUND = {
    "data": {"random-labels", "mnist", "concrete"},
    "source": {"spherical-source"},
    "network": {"two-layer", "mean-field-stack", "conv-net"},
    "embedding": {"identity", "random-layers", "infinite"},
    "law": {"normal", "uniform", "constant"},
    "scaling": {"scaling", "mean-field", "ntk", "asymmetrical"},
    "node-weights": {"zipf", "first-nodes"},
    "activation": {"relu", "tanh", "custom"},
    "loss": {"squared", "custom-loss"},
    "flow": {"gradient-flow", "descent"},
    "optimiser": {"plain", "adam"},
    "schedule": {"constant", "cosine"},
    "probe": {"train-loss", "kernel"},
    "theorem": {"chen2022/theorem-1"},
    "panel": {"chen2022/fig1", "caron2023/fig1"},
}


@pytest.mark.parametrize("kind", _registry.KINDS)
def test_every_kind_has_its_members_and_knows_its_base(kind):
    assert FOUND[kind] <= set(members(kind))
    assert kind_of(base_of(kind)) == kind
    assert not any(name.startswith("_") for name in members(kind))


def test_stand_ins_are_not_offered():
    assert not {"precomputed", "anchored", "dual"} & {*members("embedding"), *members("network")}


# ---------------------------------------------------------------- by import


WRONG = {
    "no_such_module:Thing": "There is no module 'no_such_module', which 'no_such_module:Thing' names: install it",
    "unlazy.no_such:Thing": "There is no module 'unlazy.no_such'",
    "unlazy.losses:Sqared": "There is no 'Sqared' in 'unlazy.losses', which 'unlazy.losses:Sqared' names. Did you mean",
    "unlazy.losses:Squared.nope": "There is no 'nope' in 'unlazy.losses'",
    "unlazy.losses:": "cannot be imported: write it as 'package.module:Thing'",
    "a b:c": "cannot be imported",
    ":c": "cannot be imported",
    "a:b:c": "cannot be imported",
}


@pytest.mark.parametrize("reference", WRONG)
def test_a_wrong_reference_gets_one_sentence(reference):
    with pytest.raises(UserError) as caught:
        load(reference)
    assert WRONG[reference] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_thing_within", "ModuleNotFoundError: No module named 'no_such_thing_within'"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_breaks_gets_one_sentence(tmp_path, monkeypatch, code, reason):
    name = f"broken_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=rf"The module '{name}', which '{name}:f' names, cannot be imported .*{reason}"):
        load(f"{name}:f")


def test_a_dotted_name_is_told_how_it_is_written():
    with pytest.raises(UserError, match=r"One of your own is written 'mymod:Largest'\."):
        find("probe", "mymod.Largest")


# ---------------------------------------------------------------- plug-ins


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Write a package of another author; give a function that joins it by the environment."""
    made = []

    def write(files):
        name = f"plugin_{next(_numbers)}"
        made.append(name)
        (tmp_path / name).mkdir()
        for file, text in {"__init__": "", **files}.items():
            (tmp_path / name / f"{file}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        monkeypatch.setenv("UNLAZY_PLUGINS", name)
        return name

    yield write
    for module in [module for module in sys.modules if module.partition(".")[0] in made]:
        del sys.modules[module]


SNAKE = """
from unlazy.activations import Custom, Relu
import jax.numpy as jnp

def _curve(h): return h + jnp.sin(h) ** 2
snake = Custom(_curve)
def leaky(slope: float = 0.1) -> Custom: return Custom(_curve)
"""


def test_a_package_on_the_path_joins(plugin):
    name = plugin({"curves": SNAKE})
    assert {"snake", "leaky", "relu"} <= set(members("activation"))
    assert find("activation", "snake") is sys.modules[f"{name}.curves"].snake
    assert resolve("activation", "snake") is resolve("activation", f"{name}.curves:snake")


def test_a_package_leaves_with_its_environment(plugin, monkeypatch):
    plugin({"curves": SNAKE})
    assert "snake" in members("activation")
    monkeypatch.delenv("UNLAZY_PLUGINS")
    assert "snake" not in members("activation")


def test_an_installed_package_joins_by_its_entry_point(plugin, tmp_path, monkeypatch):
    name = plugin({"curves": SNAKE})
    monkeypatch.delenv("UNLAZY_PLUGINS")
    assert "snake" not in members("activation")
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[unlazy]\nmine = {name}\n")
    _registry._installed.cache_clear()
    assert _registry.plugins() == (name,)
    assert "snake" in members("activation")


def test_a_broken_file_warns_once_and_the_others_join(plugin, capsys):
    name = plugin({"curves": SNAKE, "broken": "1 / 0", "tests": "1 / 0", "test_it": "1 / 0"})
    for _ in range(2):
        assert "snake" in members("activation")
    said = capsys.readouterr().err
    wanted = f"the plug-in '{name}.broken' cannot be imported and is left out (ZeroDivisionError: division by zero)."
    assert said == f"unlazy: {wanted}\n"


def test_a_missing_plugin_warns(monkeypatch, capsys):
    monkeypatch.setenv("UNLAZY_PLUGINS", "no_such_plugin, ")
    assert "relu" in members("activation")
    assert capsys.readouterr().err.startswith("unlazy: the plug-in 'no_such_plugin' cannot be imported")


def test_our_own_wins_over_a_name_that_is_taken(plugin, capsys):
    name = plugin({"curves": SNAKE.replace("snake", "relu")})
    assert find("activation", "relu").__module__ == "unlazy.activations.rectifiers"
    assert "'relu' of" in capsys.readouterr().err
    assert resolve("activation", f"{name}.curves:relu") is sys.modules[f"{name}.curves"].relu


def test_what_a_plugin_imports_from_us_is_not_its_own(plugin, capsys):
    plugin({"mine": "from unlazy.networks import mean_field as mf, ntk\nfrom unlazy.losses import Squared\n"})
    assert "mf" not in members("scaling")
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------- what users give


def test_anything_becomes_a_member(plugin):
    from unlazy.activations import Custom, Relu
    from unlazy.losses import CustomLoss, Squared
    from unlazy.probes import TrainLoss

    name = plugin(
        {"own": "def double(h): return 2 * h\ndef watch(obs): return obs.outputs\nnumber = 3\nclass Stone: ..."}
    )
    own = importlib.import_module(f"{name}.own")
    assert resolve("activation", "relu") == resolve("activation", Relu) == resolve("activation", Relu()) == Relu()
    assert resolve("activation", own.double) == resolve("activation", f"{name}.own:double") == Custom(own.double)
    assert resolve("loss", "squared") == Squared()
    assert resolve("loss", own.double) == CustomLoss(own.double)
    assert resolve("probe", "train-loss") == TrainLoss()
    assert resolve("probe", f"{name}.own:watch") is own.watch
    for kind, value, sentence in (
        ("activation", 3, "3 is not an activation: give an object, or a name that 'unlazy list activation' shows"),
        ("activation", "rellu", "There is no activation called 'rellu'. Did you mean 'relu'?"),
        ("activation", f"{name}.own:number", "3 is not an activation"),
        ("activation", f"{name}.own:Stone", "is a class that is not derived from Activation"),
        ("network", "two-layer", "The network 'two-layer' needs the option 'width'"),
        ("network", f"{name}.own:Stone", "made a Stone, where a network was expected"),
        ("loss", None, "None is not a loss"),
    ):
        with pytest.raises(UserError) as caught:
            resolve(kind, value)
        assert sentence in str(caught.value)
