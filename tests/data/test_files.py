"""Data of a user's own: csv and npz files, arrays as users have them, and one sentence for what does not work."""

import gzip
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy.data import Dataset, as_dataset, csv, files, npz, one_hot, random_labels
from unlazy.lab import build
from unlazy.losses import CrossEntropy

TABLE = np.arange(40.0).reshape(10, 4) ** 1.5


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("t.csv", TABLE, delimiter=",", header="a,b,c,y", comments="")
    return tmp_path


def test_a_csv_by_names_and_numbers(table):
    for target in ("y", 3, -1):
        data = csv("t.csv", target)
        np.testing.assert_array_equal(data.x, TABLE[:, :3])
        np.testing.assert_array_equal(data.y, TABLE[:, 3])
    data = csv("t.csv", target=("c", 0), inputs=("y",))
    np.testing.assert_array_equal(data.x, TABLE[:, 3:])
    np.testing.assert_array_equal(data.y, TABLE[:, [2, 0]])
    assert data.name == "t"


def test_shares_are_a_partition_drawn_by_the_key(table):
    data = csv("t.csv", "y", test=0.2, held_out=0.3, key=1)
    assert (data.n, len(data.x_test), data.held_out.n) == (5, 2, 3)
    everything = np.concatenate([data.y, data.y_test, data.held_out.y])
    np.testing.assert_array_equal(np.sort(everything), np.sort(TABLE[:, 3]))
    assert not np.array_equal(data.y, csv("t.csv", "y", test=0.2, held_out=0.3, key=2).y)
    np.testing.assert_array_equal(data.y, csv("t.csv", "y", test=0.2, held_out=0.3, key=jax.random.key(1)).y)


def test_standard_on_the_training_rows(table):
    data = csv("t.csv", "y", test=0.5, standardise=True, standardise_target=True)
    np.testing.assert_allclose(np.mean(data.x, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.std(data.x, axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(np.std(data.y), 1, rtol=1e-12)
    assert abs(np.mean(data.x_test)) > 1e-3  # not of itself


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("1;2;3\n4;5;6\n", {}),
        ("1\t2\t3\n4\t5\t6\n", {}),
        ("1 2  3\n4 5 6\n", {}),
        ("1|2|3\n4|5|6\n", {"delimiter": "|"}),
        ("\ufeffa,b,c\n1,2,3\r\n\r\n4,5,6\r\n", {}),
        ('"a","b, too","c"\n"1",2,3\n4,5,6\n', {"target": "c"}),
        ("7,7,7\n1,2,3\n4,5,6\n", {"header": True}),
        ("1,2,3\n4,5,6\n7,8,9\n", {"rows": 2}),
    ],
)
def test_forms_of_tables(tmp_path, text, options):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    data = csv(str(tmp_path / "t.csv"), **options)
    np.testing.assert_array_equal(data.x, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(data.y, [3, 6])


def test_a_compressed_table(tmp_path):
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write("1,2\n3,4\n")
    np.testing.assert_array_equal(csv(str(tmp_path / "t.csv.gz")).y, [2, 4])


def test_class_labels_become_one_hot(tmp_path):
    (tmp_path / "t.csv").write_text("x,label\n0.5,2\n1.5,0\n2.5,1\n")
    for classes in (True, 3):
        data = csv(str(tmp_path / "t.csv"), "label", classes=classes)
        np.testing.assert_array_equal(data.y, np.eye(3)[[2, 0, 1]])
    CrossEntropy().check(data.y)
    with pytest.raises(UserError, match=r"one-hot by unlazy\.data\.one_hot\(y\)"):
        CrossEntropy().check(csv(str(tmp_path / "t.csv"), "label").y)
    with pytest.raises(UserError, match="Labels run from 0 to 2, where 0 to 1 were expected"):
        csv(str(tmp_path / "t.csv"), "label", classes=2)


BAD = {
    "text": ("a,y\n1,2\nred,3\n", {}, r"Data row 2 of '.*t\.csv' has the text 'red' in column 'a'"),
    "an empty cell": ("a,y\n1,2\n,3\n", {}, r"Data row 2 of .* has an empty cell in column 'a'"),
    "NaN": ("a,y\n1,2\nnan,3\n", {}, r"1 cells of .* are NaN or infinite, the first in data row 2, column 'a'"),
    "infinity": ("a,y\n1,inf\n", {}, r"NaN or infinite, the first in data row 1, column 'y'"),
    "a short row": ("a,b,y\n1,2,3\n1,2\n", {}, r"Data row 2 of .* has 2 cells, but the first has 3"),
    "a long row": ("a,b,y\n1,2,3\n1,2,3,4\n", {}, r"Data row 2 of .* has 4 cells, but the first has 3"),
    "a long row, some columns": ("a,b,y\n1,2,3\n1,2,3,4\n", {"inputs": ("a",)}, r"Line 3 of .* has 4 cells, but"),
    "a missing column": ("alpha,y\n1,2\n", {"target": "alhpa"}, r"has no column 'alhpa'\. Did you mean 'alpha'\?"),
    "a missing number": ("a,y\n1,2\n", {"target": 2}, r"has no column 2: its 2 columns count from 0"),
    "a name without header": ("1,2\n", {"target": "y"}, r"has no column 'y'\. It has no header"),
    "a name twice": ("y,y\n1,2\n", {"target": "y"}, r"has 2 columns called 'y'"),
    "empty": ("", {}, r"is empty"),
    "a header alone": ("a,y\n", {}, r"holds no rows of numbers"),
    "one column": ("1\n2\n", {}, r"needs input columns apart from its targets"),
    "target among inputs": ("a,y\n1,2\n", {"target": "y", "inputs": ("y",)}, r"needs input columns apart"),
    "a share of 2": ("a,y\n1,2\n", {"test": 2.0}, r"test = 2\.0 is not in range"),
    "no training": ("a,y\n1,2\n", {"test": 0.5, "held_out": 0.5}, r"leave no training samples"),
    "no test sample": ("a,y\n1,2\n3,4\n", {"test": 0.01}, r"test = 0\.01 of 2 samples is less than one sample"),
    "two delimiters": ("a,y\n1,2\n", {"delimiter": ",,"}, r"is not one character"),
}


@pytest.mark.filterwarnings("ignore:.*input contained no data")
@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_gets_one_sentence(tmp_path, case):
    text, options, sentence = BAD[case]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        csv(str(tmp_path / "t.csv"), **options)
    assert re.search(sentence, str(caught.value)), caught.value
    assert "\n" not in str(caught.value)


def test_missing_and_unreadable_files(tmp_path):
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 10)
    for make in (csv, npz):
        with pytest.raises(UserError, match=r"There is no file '.*nowhere': paths are relative to"):
            make(str(tmp_path / "nowhere"))
        with pytest.raises(UserError, match="cannot be read"):
            make(str(tmp_path))
        with pytest.raises(UserError, match=r"cannot be read"):
            make(str(tmp_path / "binary.csv"))


def test_ten_million_rows_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "big.csv"
    with path.open("w") as file:
        file.write("0.123456,0.123456,0.123456,0.123456,1\n" * 1000)
    monkeypatch.setattr(files, "_MOST", 2000)
    with pytest.raises(UserError, match=r"about 1,0\d\d rows of 5 columns, more than the 2,000 numbers .* rows = 40"):
        csv(str(path))
    assert csv(str(path), rows=300).n == 300
    monkeypatch.setattr(files, "_MOST", 1e9)
    monkeypatch.setattr("unlazy._memory.available", lambda: 1000.0)
    with pytest.raises(UserError, match=r"needs about .* GiB, but only .*: read some with rows"):
        csv(str(path))


# ---------------------------------------------------------------- npz


def test_an_npz_as_it_is_and_with_a_share(tmp_path):
    path = str(tmp_path / "a.npz")
    x, y = TABLE[:, :3], TABLE[:, 3]
    np.savez(path, x=x, y=y)
    np.testing.assert_array_equal(npz(path).x, x)
    assert npz(path, test=0.3).x_test.shape == (3, 3)
    np.savez(path, x=x, y=np.arange(10) % 3, x_test=x[:2], y_test=[0, 1], weight=np.ones(10))
    data = npz(path, classes=True)
    assert (data.y.shape, data.y_test.shape, data.weight.shape) == ((10, 3), (2, 3), (10,))
    with pytest.raises(UserError, match="holds a test set or weights of its own"):
        npz(path, test=0.2)


def test_a_bad_npz_gets_one_sentence(tmp_path):
    path = str(tmp_path / "a.npz")
    np.savez(path, X=TABLE, y=TABLE[:, 0])
    with pytest.raises(UserError, match=r"holds no array 'x'\."):
        npz(path)
    np.savez(path, x=np.array([{}], dtype=object), y=[1])
    with pytest.raises(UserError, match=r"cannot be read .*: write it by numpy\.savez"):
        npz(path)
    np.savez(path, x=[["a"]], y=[1.0])
    with pytest.raises(UserError, match="x of data set 'a' holds text"):
        npz(path)


def test_recipes_read_files(table):
    section = {"kind": "csv", "path": "t.csv", "target": "y", "test": 0.2, "inputs": ["a", 1]}
    assert build(section, "data", "data", key=jax.random.key(0)).x.shape == (8, 2)
    with pytest.raises(UserError, match=r"data: There is no file 'nowhere\.csv'"):
        build({"kind": "csv", "path": "nowhere.csv"}, "data", "data", key=jax.random.key(0))


# ---------------------------------------------------------------- arrays of users


def test_lists_integers_and_frames_become_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "y": [0, 1, 1]})
    given = [
        ([[1, 0.5], [2, 1.5], [3, 2.5]], [0, 1, 1]),
        (np.array([[1, 0.5], [2, 1.5], [3, 2.5]], np.float32), np.array([0, 1, 1])),
        (frame[["a", "b"]], frame["y"]),
        (frame[["a", "b"]].to_numpy(), [False, True, True]),
    ]
    for x, y in given:
        data = Dataset(x, y)
        np.testing.assert_array_equal(data.x, [[1, 0.5], [2, 1.5], [3, 2.5]])
        np.testing.assert_array_equal(data.y, [0, 1, 1])
        assert data.x.dtype == data.y.dtype
    missing = Dataset(pandas.DataFrame({"a": pandas.array([1, None], "Int64")}), [1, 2])
    with pytest.raises(UserError, match="1 of the 2 entries of x"):
        missing.check()
    with pytest.raises(UserError, match="x of data set 'data': the column 'city' does not hold numbers"):
        Dataset(pandas.DataFrame({"city": ["Rome"]}), [1.0])


def test_one_precision_for_all_parts():
    data = Dataset(jnp.ones((2, 1), jnp.float32), np.ones(2), np.ones((1, 1), np.float32), [1])
    assert {leaf.dtype for leaf in jax.tree.leaves(data)} == {jnp.dtype("float64")}
    assert Dataset(jnp.ones((2, 1), jnp.float32), jnp.ones(2, jnp.float32)).x.dtype == jnp.float32


WRONG = {
    "ragged": (lambda: Dataset([[1.0], [1.0, 2.0]], [1, 2]), "x of data set 'data' has rows of unequal length"),
    "text": (lambda: Dataset([["a"]], [1]), r"x of data set 'data' holds text \('a'\), where numbers were expected"),
    "objects": (lambda: Dataset([[object()]], [1]), "holds Python objects"),
    "complex": (lambda: Dataset([[1j]], [1]), "holds complex numbers"),
    "dates": (lambda: Dataset(np.array([["2026-01-01"]], "M8[D]"), [1]), "holds dates"),
    "a word": (lambda: Dataset("abc", [1]), "x = 'abc' is not an array"),
    "no targets": (lambda: Dataset([[1.0]], None), "y = None is not an array"),
    "one axis": (
        lambda: Dataset([1.0, 2.0], [1, 2]),
        r"inputs of shape \(2,\) .* for one input per sample, give x\[:,",
    ),
    "no samples": (lambda: Dataset(np.zeros((0, 2)), np.zeros(0)), "The training set of 'data' is empty"),
    "unequal": (lambda: Dataset([[1.0]], [1, 2]), "has 1 inputs but 2 targets"),
    "test inputs": (lambda: Dataset([[1.0]], [1], [[1.0, 2.0]], [1]), "they must agree"),
    "test targets": (lambda: Dataset([[1.0]], [1], [[1.0]], [[1]]), "they must agree"),
    "weights": (
        lambda: Dataset([[1.0]], [1], weight=[1, 2]),
        r"Weights of 'data' have shape \(2,\); \(1,\) was expected",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays_get_one_sentence(case):
    make, sentence = WRONG[case]
    with pytest.raises(UserError) as caught:
        make()
    assert re.search(sentence, str(caught.value)), caught.value


def test_what_functions_return_becomes_data():
    x, y = [[1.0], [2.0]], [1, 2]
    for value in ((x, y), (x, y, x, y), {"x": x, "y": y}, {"x": x, "y": y, "weight": [1, 1]}, Dataset(x, y)):
        assert as_dataset(value, name="mine").n == 2
    for value, sentence in (
        ((x, y, x), "gives a tuple of 3"),
        ({"x": x}, "without x or y"),
        ({"x": x, "y": y, "z": 1}, "a part 'z'"),
        (3, "gives an int, where data were expected"),
    ):
        with pytest.raises(UserError, match=sentence):
            as_dataset(value, name="mine")


def test_one_hot():
    np.testing.assert_array_equal(one_hot([2, 0]), [[0, 0, 1], [1, 0, 0]])
    assert one_hot(np.array([0, 1]), classes=4).shape == (2, 4)
    for labels in ([0.5], [[1]], [], [-1], ["a"]):
        with pytest.raises(UserError):
            one_hot(labels)


def test_keys_as_users_have_them():
    wanted = jax.random.key_data(jax.random.key(7))
    for key in (7, np.int64(7), np.uint32(7), jnp.asarray(7), jax.random.key(7), jax.random.PRNGKey(7)):
        np.testing.assert_array_equal(jax.random.key_data(as_key(key)), wanted)
    for key in (-1, 2**32, 1.0, "0", None, True, jnp.zeros(3), jax.random.split(jax.random.key(0))):
        with pytest.raises(UserError, match="key"):
            as_key(key)
    np.testing.assert_array_equal(random_labels(3, key=7).x, random_labels(3, key=jax.random.key(7)).x)
