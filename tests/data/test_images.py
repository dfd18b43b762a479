"""MNIST, CIFAR-10 and digits: readers on tiny files made here, drawing, and the real files where there are any."""

import gzip
import io
import lzma
import pickle
import sys
import tarfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from unlazy._errors import UserError
from unlazy.data import cifar10, digits, images, mnist
from unlazy.data.download import Published
from unlazy.data.images import read_archive, read_idx, read_records

CLASSES = 10


def idx(array):
    """Write a byte array as a gzipped IDX file."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(head + array.tobytes())


def records(pictures, labels):
    """Write colour images as an xz-compressed batch of CIFAR-10's binary version."""
    return lzma.compress(np.concatenate([labels[:, None], pictures.reshape(len(labels), -1)], axis=1).tobytes())


def numbered(count, channels, size, start=0):
    """Images that carry their own number in their first two pixels, with labels that go round the classes."""
    pictures = np.full((count, channels, size, size), 51, np.uint8)
    number = start + np.arange(count)
    pictures[:, 0, 0, 0], pictures[:, 0, 0, 1] = number // 256, number % 256
    return pictures, (number % CLASSES).astype(np.uint8)


def number(x):
    """The numbers that flat images in [0, 1] carry."""
    return np.round(np.asarray(x[:, :2], float) * 255).astype(int) @ [256, 1]


@pytest.fixture
def small_mnist(folder, monkeypatch):
    """Forty training and thirty test images of 4 x 4 pixels in the place of MNIST."""
    (folder / "mnist").mkdir()
    plain = tuple(Published(source.url, None, source.file) for source in images.MNIST_FILES)
    monkeypatch.setattr(images, "MNIST_FILES", plain)
    train, test = numbered(40, 1, 4), numbered(30, 1, 4, start=1000)
    arrays = train[0][:, 0], train[1], test[0][:, 0], test[1]
    for source, array in zip(plain, arrays, strict=True):
        (folder / source.file).write_bytes(idx(array))
    return str(folder)


def test_all_images_and_one_hot_targets(small_mnist, key):
    data = mnist(folder=small_mnist, key=key)
    assert (data.x.shape, data.y.shape, data.x_test.shape) == ((40, 16), (40, 10), (30, 16))
    assert data.x.dtype == data.y.dtype == jnp.result_type(float)
    assert np.array_equal(np.sort(number(data.x)), np.arange(40))
    assert np.array_equal(np.argmax(data.y, axis=1), number(data.x) % CLASSES)
    assert np.array_equal(np.argmax(data.y_test, axis=1), number(data.x_test) % CLASSES)
    assert np.array_equal(data.y.sum(axis=1), np.ones(40))
    assert data.name == "MNIST"


def test_subsets_do_not_overlap_and_follow_the_key(small_mnist, key):
    data = mnist(15, 5, 20, folder=small_mnist, key=key)
    assert data.held_out is not None
    assert (data.n, len(data.y_test), data.held_out.n) == (15, 5, 20)
    assert len({*number(data.x), *number(data.held_out.x)}) == 35
    again, other = (mnist(15, 5, folder=small_mnist, key=k) for k in (key, jax.random.key(7)))
    assert np.array_equal(data.x, again.x)
    assert not np.array_equal(data.x, other.x)
    assert mnist(None, 0, 10, folder=small_mnist, key=key).n == 30


def test_classes_and_class_numbers(small_mnist, key):
    data = mnist(classes=(7, 2), targets="one-hot", folder=small_mnist, key=key)
    assert data.y.shape == (8, 2)
    assert np.array_equal(np.where(data.y[:, 0] == 1, 7, 2), number(data.x) % CLASSES)
    data = mnist(classes=(7, 2), targets="number", folder=small_mnist, key=key)
    assert data.y.shape == (8,)
    assert np.array_equal(data.y, number(data.x) % CLASSES)


def test_pixel_scalings(small_mnist, key):
    unit, signed, standard = (
        mnist(20, pixels=pixels, folder=small_mnist, key=key) for pixels in ("unit", "signed", "standard")
    )
    assert np.allclose(unit.x[:, 2:], 0.2)
    assert np.allclose(signed.x, 2 * unit.x - 1)
    assert np.mean(standard.x) == pytest.approx(0, abs=1e-5)
    assert np.std(standard.x) == pytest.approx(1, abs=1e-5)
    assert np.allclose(standard.x_test, (unit.x_test - unit.x.mean()) / unit.x.std(), atol=1e-5)


def test_images_keep_their_axes(small_mnist, key):
    data = mnist(20, n_held=3, flat=False, folder=small_mnist, key=key)
    assert data.held_out is not None
    assert (data.x.shape, data.x_test.shape, data.held_out.x.shape) == ((20, 1, 4, 4), (30, 1, 4, 4), (3, 1, 4, 4))
    assert np.array_equal(data.flat().x, mnist(20, folder=small_mnist, key=key).x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 41}, "40 training images of these classes, but 41"),
        ({"n": 30, "n_held": 11}, "but 41 were asked for: take fewer"),
        ({"n_held": 40}, "but 41 were asked for"),
        ({"n_test": 31}, "30 test images"),
        ({"n": 0}, "mnist: n = 0 is not in range: give a number of at least 1"),
        ({"n_held": -1}, "n_held = -1"),
        ({"classes": (1, 1)}, "not a choice of classes"),
        ({"classes": (10,)}, "different numbers from 0 to 9"),
        ({"classes": ()}, "not a choice of classes"),
        ({"classes": (3,), "n": 5}, "'MNIST' has 4 training images"),
    ],
)
def test_impossible_draws_are_refused(small_mnist, key, options, message):
    with pytest.raises(UserError, match=message):
        mnist(**options, folder=small_mnist, key=key)


@pytest.mark.parametrize("option", ["pixels", "targets"])
def test_unknown_words_are_refused(small_mnist, option, key):
    with pytest.raises((UserError, TypeCheckError), match="onehot"):
        mnist(**{option: "onehot"}, folder=small_mnist, key=key)


def test_a_missing_package_says_what_to_install(monkeypatch, key):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UserError, match=r'pip install "unlazy\[digits\]"'):
        digits(key=key)


def test_digits(key):
    pytest.importorskip("sklearn")
    data = digits(100, 50, 20, key=key)
    assert data.held_out is not None
    assert (data.x.shape, data.x_test.shape, data.held_out.x.shape) == ((100, 64), (50, 64), (20, 64))
    assert (float(data.x.min()), float(data.x.max())) == (0.0, 1.0)
    with pytest.raises(UserError, match="'digits' has 1,797 images of these classes, but 1,798 were asked for"):
        digits(1797, 1, key=key)


def test_digits_are_enlarged(key):
    pytest.importorskip("sklearn")
    small, large = (digits(20, 5, flat=False, side=side, key=key) for side in (8, 24))
    assert (large.x.shape, large.x_test.shape) == ((20, 1, 24, 24), (5, 1, 24, 24))
    np.testing.assert_array_equal(small.y, large.y)
    np.testing.assert_allclose(
        large.x[:, :, 1::3, 1::3], small.x, atol=1e-6
    )  # the middle of each pixel keeps its value
    between = (2 * small.x[:, :, :-1, :-1] + small.x[:, :, 1:, :-1]) / 3
    np.testing.assert_allclose(large.x[:, :, 2:-1:3, 1:-3:3], between, atol=1e-6)
    with pytest.raises(UserError, match="side"):
        digits(20, 5, side=4, key=key)


def test_idx_reader(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "images.gz"
    path.write_bytes(idx(array))
    assert np.array_equal(read_idx(path), array)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (idx(np.ones((9, 9), np.uint8))[:-12], "damaged or cut short"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3])), "3 entries, but its header promises 5"),
        (gzip.compress(bytes([0, 0, 8, 3, 0, 0])), "damaged or cut short"),
        (gzip.compress(b"<html>no</html>"), "does not begin like an IDX file"),
        (b"<html>no</html>", "damaged or cut short"),
        (b"", "does not begin like an IDX file|damaged or cut short"),
    ],
)
def test_idx_reader_on_broken_files(tmp_path, raw, message):
    path = tmp_path / "images.gz"
    path.write_bytes(raw)
    with pytest.raises(UserError, match=message):
        read_idx(path)


def test_records_reader(tmp_path):
    pictures, labels = numbered(7, 3, 32)
    path = tmp_path / "batch.bin.xz"
    path.write_bytes(records(pictures, labels))
    read = read_records(path)
    assert np.array_equal(read.images, pictures)
    assert np.array_equal(read.labels, labels)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (records(*numbered(7, 3, 32))[:-20], "damaged or cut short"),
        (lzma.compress(bytes(3072)), "not a whole number of records"),
        (lzma.compress(b""), "not a whole number of records"),
        (b"not xz", "damaged or cut short"),
    ],
)
def test_records_reader_on_broken_files(tmp_path, raw, message):
    path = tmp_path / "batch.bin.xz"
    path.write_bytes(raw)
    with pytest.raises(UserError, match=message):
        read_records(path)


def batch(pictures, labels):
    """Pickle a batch as NumPy did in 2009: old module names, and a dtype that a new NumPy warns of."""
    content = {b"data": pictures.reshape(len(labels), -1), b"labels": labels.tolist(), b"batch_label": b"a batch"}
    raw = pickle.dumps(content, protocol=2).replace(b"numpy._core.", b"numpy.core.")
    assert b"\x89\x88\x87" in raw
    return raw.replace(b"\x89\x88\x87", b"K\x00K\x01\x87")


def archive(batches):
    """Pack named batches as CIFAR-10's python version does."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, raw in {"readme.html": b"<html>", "batches.meta": b"", **batches}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return packed.getvalue()


def small_archive():
    train = {f"data_batch_{i}": batch(*numbered(20, 3, 32, start=20 * (i - 1))) for i in (3, 1, 5, 2, 4)}
    return archive({**train, "test_batch": batch(*numbered(10, 3, 32, start=1000))})


def test_archive_reader(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(small_archive())
    train, test = read_archive(path)
    for read, wanted in ((train, numbered(100, 3, 32)), (test, numbered(10, 3, 32, start=1000))):
        assert np.array_equal(read.images, wanted[0])
        assert np.array_equal(read.labels, wanted[1])


class Evil:
    def __reduce__(self):
        return print, ("this must not run",)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (archive({"test_batch": batch(*numbered(2, 3, 32))}), "lacks data_batch_1, data_batch_2"),
        (archive({"test_batch": pickle.dumps({b"data": Evil()})}), "print, which no array needs"),
        (archive({"test_batch": pickle.dumps({b"other": 1})}), "is not one of CIFAR-10"),
        (small_archive()[:-300], "damaged or cut short"),
        (b"not an archive", "damaged or cut short"),
    ],
)
def test_archive_reader_on_broken_files(tmp_path, capsys, raw, message):
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(raw)
    with pytest.raises(UserError, match=message):
        read_archive(path)
    assert capsys.readouterr().out == ""


@pytest.fixture
def small_cifar(folder, monkeypatch):
    (folder / "cifar-10").mkdir()
    plain = tuple(Published(None, None, source.file) for source in images.CIFAR_SUBSET)
    monkeypatch.setattr(images, "CIFAR_SUBSET", plain)
    whole = Published("http://127.0.0.1:9/cifar.tar.gz", None, images.CIFAR_ARCHIVE.file)
    monkeypatch.setattr(images, "CIFAR_ARCHIVE", whole)
    for source, content in zip(plain, (numbered(20, 3, 32), numbered(10, 3, 32, start=1000)), strict=True):
        (folder / source.file).write_bytes(records(*content))
    return folder


def test_the_subset_says_that_it_is_one(small_cifar, key):
    data = cifar10(folder=str(small_cifar), key=key)
    assert (data.x.shape, data.x_test.shape) == ((20, 3072), (10, 3072))
    assert data.name == "CIFAR-10, subset of 20 training images"
    assert np.array_equal(np.argmax(data.y, axis=1), number(data.x) % CLASSES)
    assert cifar10(flat=False, folder=str(small_cifar), key=key).x.shape == (20, 3, 32, 32)


def test_the_whole_archive_is_preferred(small_cifar, key):
    (small_cifar / images.CIFAR_ARCHIVE.file).write_bytes(small_archive())
    data = cifar10(folder=str(small_cifar), key=key)
    assert (data.n, data.name) == (100, "CIFAR-10")


def test_real_mnist(data_folder, key):
    data = mnist(2000, targets="number", folder=data_folder, key=key)
    assert (data.x.shape, data.x_test.shape) == ((2000, 784), (10_000, 784))
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(np.asarray(data.y_test, int)).tolist() == test
    # Over all 60,000 training images the pixels have mean 0.1307 and standard deviation 0.3081; 2000 come near.
    assert float(data.x.mean()) == pytest.approx(0.1307, abs=5 * 0.3081 / np.sqrt(2000))
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    pictures, labels = (read_idx(Path(data_folder) / source.file) for source in images.MNIST_FILES[:2])
    assert np.bincount(labels).tolist() == train
    share, level = np.bincount(pictures.ravel(), minlength=256) / pictures.size, np.arange(256) / 255
    assert share @ level == pytest.approx(0.1307, abs=1e-4)
    assert np.sqrt(share @ level**2 - (share @ level) ** 2) == pytest.approx(0.3081, abs=1e-4)


def test_real_cifar(data_folder, key):
    data = cifar10(500, 1000, flat=False, pixels="signed", folder=data_folder, key=key)
    assert (data.x.shape, data.y.shape, data.x_test.shape) == ((500, 3, 32, 32), (500, 10), (1000, 3, 32, 32))
    assert (float(data.x.min()), float(data.x.max())) == (-1.0, 1.0)
    if "subset" in data.name:
        counts = [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
        everything = cifar10(None, 0, targets="number", folder=data_folder, key=key)
        assert np.bincount(np.asarray(everything.y, int)).tolist() == counts
