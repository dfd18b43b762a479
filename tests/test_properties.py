"""Facts that hold for whatever a user writes: names, recipes, tables and slices, on cases that Hypothesis makes up."""

import json
import random

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unlazy._registry import kebab
from unlazy.data import csv
from unlazy.lab import parse
from unlazy.networks.prepared import Features, Places

settings.register_profile("unlazy", deadline=None, derandomize=True, max_examples=50, database=None)
settings.load_profile("unlazy")

word = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
number = st.floats(allow_nan=False, allow_infinity=False, width=64)
option = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), number, word, st.lists(number, max_size=3))
section = st.one_of(word, st.dictionaries(word, option, max_size=4))


@given(st.lists(word, min_size=1, max_size=4))
def test_a_name_is_the_same_however_it_is_written(words):
    camel, snake, wanted = "".join(one.title() for one in words), "_".join(words), "-".join(words)
    assert kebab(snake) == kebab(wanted) == wanted
    assert kebab(kebab(camel)) == kebab(camel)
    assert all(len(one) == 1 for one in words) or kebab(camel).replace("-", "") == "".join(words)


@given(
    data=section,
    network=section,
    probes=st.lists(section, max_size=3),
    times=st.lists(st.floats(0, 1e9), min_size=1, max_size=5, unique=True),
    seeds=st.integers(1, 50),
    shuffle=st.randoms(use_true_random=False),
)
def test_recipes_survive_being_written_and_the_order_of_their_lines_does_not_matter(
    data, network, probes, times, seeds, shuffle: random.Random
):
    table = {"data": data, "network": network, "probes": probes, "times": sorted(times), "seeds": seeds}
    recipe = parse(table)
    assert parse(json.loads(recipe.json())) == recipe
    lines = list(table.items())
    shuffle.shuffle(lines)
    assert parse(dict(lines)).digest == recipe.digest
    assert parse(table | {"seeds": seeds + 1}).digest != recipe.digest


@given(
    table=st.integers(2, 5).flatmap(
        lambda columns: st.lists(st.lists(number, min_size=columns, max_size=columns), min_size=1, max_size=8)
    ),
    separator=st.sampled_from([",", ";", "\t"]),
    header=st.booleans(),
    target=st.integers(-2, 1),
)
def test_tables_are_read_as_they_were_written(tmp_path_factory, table, separator, header, target):
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    names = [separator.join(f"c{index}" for index in range(len(table[0])))] if header else []
    path.write_text("\n".join(names + [separator.join(map(repr, row)) for row in table]) + "\n")
    data, values = csv(str(path), target=target, header=header, delimiter=separator), np.asarray(table)
    np.testing.assert_array_equal(data.y, values[:, target])
    np.testing.assert_array_equal(data.x, np.delete(values, target, axis=1))


cut = st.one_of(
    st.slices(6),
    st.lists(st.integers(-6, 5), min_size=1, max_size=8).map(np.asarray),
    st.lists(st.booleans(), min_size=6, max_size=6).map(np.asarray),
)


@given(cut)
def test_a_handle_and_its_points_are_cut_alike(part):
    raw = jnp.arange(12.0).reshape(6, 2)
    features = Features(raw, 10 * raw)[part]
    np.testing.assert_array_equal(features.known, 10 * features.raw)
    np.testing.assert_array_equal(features.raw, raw[part])
    places = Places(raw, first=3, count=6)[part]
    np.testing.assert_array_equal(places.raw, raw[part])
    np.testing.assert_array_equal(places.place(), np.arange(3, 9)[part])  # rows of the Gram matrix
