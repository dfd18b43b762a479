"""The catalogue: a new file in a room is enough, and nothing that is not a member is found."""

import abc
import importlib
import itertools
import sys

import pytest

from unlazy._catalogue import find, kebab, members, modules, spoken, walk
from unlazy._errors import UserError, suggest

BASE = """
import abc

class Animal(abc.ABC):
    @abc.abstractmethod
    def sound(self): ...
"""
CATS = """
from __future__ import annotations
from typing import TYPE_CHECKING
from {room}._base import Animal
from {room}.dogs import GreatDane, puppy
import {room}._base as nothing

if TYPE_CHECKING:
    from elsewhere import Unknown

class HouseCat(Animal):
    def sound(self): return "miaow"

class BigCat(Animal):
    '''Still abstract.'''

class _Hidden(HouseCat): ...

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
from {room}._base import Animal

class GreatDane(Animal):
    def sound(self): return "woof"

def puppy() -> Animal: return GreatDane()
"""
PRIVATE = """
from {room}._base import Animal

class Wolf(Animal):
    def sound(self): return "howl"
"""
_numbers = itertools.count()


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A room of its own, on disk: a package with a base, two public files and a private one."""
    name = f"synthetic_zoo_{next(_numbers)}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for file, text in {"_base": BASE, "cats": CATS, "dogs": DOGS, "_private": PRIVATE}.items():
        (folder / f"{file}.py").write_text(text.format(room=name))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
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


def test_a_base_is_spoken_of_in_words():
    assert spoken(type("NodeWeights", (), {})) == "node weights"


def test_only_public_concrete_members_are_found(zoo, animal):
    assert set(members(zoo, animal)) == {"house-cat", "tabby", "stray-cat", "great-dane", "puppy"}


def test_members_are_the_things_themselves(zoo, animal):
    found = members(zoo, animal)
    cats = importlib.import_module(f"{zoo.__name__}.cats")
    assert found["house-cat"] is cats.HouseCat
    assert found["tabby"] is cats.tabby
    assert found["stray-cat"] is cats.stray_cat


def test_imported_names_belong_to_their_own_file(zoo, animal):
    cats = importlib.import_module(f"{zoo.__name__}.cats")
    assert set(members(cats, animal)) == {"house-cat", "tabby", "stray-cat"}


def test_a_new_file_is_enough(zoo, animal, tmp_path):
    text = f"from {zoo.__name__}._base import Animal\nclass GoldFish(Animal):\n    def sound(self): return ''\n"
    (tmp_path / zoo.__name__ / "fish.py").write_text(text)
    importlib.invalidate_caches()
    assert "gold-fish" in members(zoo, animal)
    assert [module.__name__.rpartition(".")[2] for module in modules(zoo)] == ["cats", "dogs", "fish"]


def test_a_room_may_be_a_single_file(zoo, animal):
    dogs = importlib.import_module(f"{zoo.__name__}.dogs")
    assert modules(dogs) == [dogs]
    assert set(members(dogs, animal)) == {"great-dane", "puppy"}


def test_a_folder_of_a_room_is_looked_into(zoo, animal, tmp_path):
    folder = tmp_path / zoo.__name__ / "farm"
    folder.mkdir()
    (folder / "__init__.py").write_text(f"from {zoo.__name__}.farm.geese import GreyGoose\n")
    text = f"from {zoo.__name__}._base import Animal\nclass GreyGoose(Animal):\n    def sound(self): return ''\n"
    (folder / "geese.py").write_text(text)
    (folder / "_hidden.py").write_text(text.replace("GreyGoose", "Fox"))
    importlib.invalidate_caches()
    assert "grey-goose" in members(zoo, animal)
    assert "fox" not in members(zoo, animal)
    names = [module.__name__.partition(".")[2] for module in modules(zoo)]
    assert names == ["cats", "dogs", "farm", "farm.geese"]


def test_two_members_of_one_name_are_not_quietly_one(zoo, animal, tmp_path):
    text = f"from {zoo.__name__}._base import Animal\nclass Tabby(Animal):\n    def sound(self): return ''\n"
    (tmp_path / zoo.__name__ / "more.py").write_text(text)
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match=r"Two members of \w+ are called 'tabby': rename one"):
        members(zoo, animal)
    assert [name for name, _ in walk(zoo, animal)].count("tabby") == 2


def test_another_base_finds_nothing(zoo):
    assert members(zoo, type("Plant", (abc.ABC,), {})) == {}


def test_a_name_is_found_in_any_spelling(zoo, animal):
    for name in ("great-dane", "great_dane", "GreatDane"):
        assert find(zoo, animal, name).__name__ == "GreatDane"


def test_a_wrong_name_gets_the_nearest_right_one(zoo, animal):
    with pytest.raises(UserError, match=r"There is no animal called 'graet-dane'. Did you mean 'great-dane'"):
        find(zoo, animal, "graet-dane")


def test_a_hopeless_name_gets_the_list(zoo, animal):
    with pytest.raises(UserError, match="Known: great-dane, house-cat, puppy, stray-cat, tabby"):
        find(zoo, animal, "xyzzy")


def test_private_and_foreign_names_cannot_be_found_by_name(zoo, animal):
    for name in ("wolf", "_hidden", "stone", "number", "big-cat", "_secret"):
        with pytest.raises(UserError, match="There is no animal"):
            find(zoo, animal, name)


def test_suggestions_are_sorted_and_near():
    assert suggest("tnah", ["tanh", "relu"]) == "Did you mean 'tanh'?"
    assert suggest("zzz", ["tanh", "relu"]) == "Known: relu, tanh."
