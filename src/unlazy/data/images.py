"""Images with class labels: MNIST, CIFAR-10 and the small digits of scikit-learn."""

import functools
import gzip
import inspect
import io
import lzma
import pickle
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._types import Count, Inputs, KeyLike, Natural, Outputs
from unlazy.data import checks
from unlazy.data._base import Dataset, generator, reads
from unlazy.data.download import Published, at_hand, fetch, find, local, reading, stamp

Read = TypeVar("Read")
Pixels = Literal["unit", "signed", "standard"]
Targets = Literal["one-hot", "number"]

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_FILES = tuple(
    Published(f"{_MNIST}{name}-ubyte.gz", sha256, f"mnist/{name}-ubyte.gz")
    for name, sha256 in (
        ("train-images-idx3", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)
CIFAR_ARCHIVE = Published(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "cifar-10/cifar-10-python.tar.gz",
)
CIFAR_SUBSET = (
    Published(None, "08cc5ab8a2a5372b1757290d7be341dc4b9c6a64965c6b3eb0c081ffad2006a5", "cifar-10/data_batch_1.bin.xz"),
    Published(None, "b17b76630f3d6046967f244872dd4abc5f1745a3a0b88f08cd367c9c7ebb8d01", "cifar-10/test_batch.bin.xz"),
)


class Labelled(NamedTuple):
    """Images of shape (N, C, H, W) as stored, with their class numbers."""

    images: np.ndarray
    labels: np.ndarray


def _mnist_files(folder: str | None = None, **_: Any) -> list[Path]:
    return [path for file in MNIST_FILES for path in local(file, folder=folder)]


def _cifar_files(folder: str | None = None, **_: Any) -> list[Path]:
    subset = [path for part in CIFAR_SUBSET for path in local(part, folder=folder)]
    return local(CIFAR_ARCHIVE, folder=folder) or subset


def available(name: Literal["mnist", "cifar10"]) -> bool:
    """Return whether the files of a data set are on this machine; for CIFAR-10, two of its batches are enough."""
    if name == "mnist":
        return all(at_hand(file) for file in MNIST_FILES)
    return at_hand(CIFAR_ARCHIVE) or all(at_hand(part) for part in CIFAR_SUBSET)


def _maker(files: Callable[..., list[Path]]):
    """Turn a function that reads training and test images, and names them, into a maker of data sets."""

    def decorate(load: Callable[[str | None], tuple[Labelled, Labelled, str]]):
        @reads(files=files)
        @checked
        def make(
            n: Count | None = None,
            n_test: Natural | None = None,
            n_held: Natural = 0,
            classes: tuple[int, ...] | None = None,
            flat: bool = True,
            pixels: Pixels = "unit",
            targets: Targets = "one-hot",
            folder: str | None = None,
            *,
            key: KeyLike,
        ) -> Dataset:
            """Draw images.

            Parameters
            ----------
            n, n_test
                Number of images that are drawn for training and for test; all if None.
            n_held
                Number of further training images that become the held-out set (transfer in caron2023, section 6.3).
            classes
                Draw only from these classes. One-hot targets have a column for each of them, in this order.
            flat
                Whether inputs are vectors of pixels or arrays (channel, height, width).
            pixels
                "unit" in [0, 1]; "signed" in [-1, 1]; "standard" with mean 0 and standard deviation 1 over all pixels
                of the training images drawn. (zhou2023 does not say which it uses.)
            targets
                "one-hot" of shape (n, classes), or the class "number" as a float of shape (n,), on which zhou2023
                regresses.
            folder
                Folder with the files; `unlazy.data` says where else they are searched for.
            key
                Random key that draws the images.
            """
            train, test, name = load(folder)
            return _draw(train, test, (n, n_test, n_held), classes, (flat, pixels, targets), name=name, key=key)

        make.__name__ = make.__qualname__ = load.__name__
        make.__doc__ = inspect.cleandoc(make.__doc__ or "").replace("Draw images.", inspect.getdoc(load) or "")
        return make

    return decorate


@_maker(_mnist_files)
def mnist(folder: str | None) -> tuple[Labelled, Labelled, str]:
    """Handwritten digits, 28 x 28: 60,000 for training, 10,000 for test (LeCun, Bottou, Bengio and Haffner, 1998).

    caron2023 uses n = 5000 and 5000 held out; zhou2023 n = 500.
    """
    images, labels, test_images, test_labels = (read_idx(fetch(file, folder=folder)) for file in MNIST_FILES)
    return Labelled(images[:, None], labels), Labelled(test_images[:, None], test_labels), "MNIST"


@_maker(_cifar_files)
def cifar10(folder: str | None) -> tuple[Labelled, Labelled, str]:
    """Colour images, 3 x 32 x 32, of ten classes: 50,000 for training, 10,000 for test (Krizhevsky, 2009).

    A data folder may hold the archive of the "python version", or the first training batch alone with the test batch
    (``data_batch_1.bin.xz``, ``test_batch.bin.xz``): then 10,000 training images are all there are, the name of the
    data set says so, and results are not comparable with ones from all 50,000.
    """
    archive = find(CIFAR_ARCHIVE, folder=folder)
    parts = [find(part, folder=folder) for part in CIFAR_SUBSET] if archive is None else [None]
    if all(part is not None for part in parts):
        train, test = (read_records(part) for part in parts if part is not None)
        return train, test, f"CIFAR-10, subset of {len(train.labels):,} training images"
    return *read_archive(archive or fetch(CIFAR_ARCHIVE, folder=folder)), "CIFAR-10"


@checked
def digits(
    n: Count = 1000,
    n_test: Natural = 500,
    n_held: Natural = 0,
    classes: tuple[int, ...] | None = None,
    flat: bool = True,
    pixels: Pixels = "unit",
    targets: Targets = "one-hot",
    side: int = 8,
    *,
    key: KeyLike,
) -> Dataset:
    """Draw from the 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn: no file, no network.

    There is no separate test set: training, test and held-out images are drawn from the same pool, without overlap.
    Needs the extra ``digits``.

    Parameters
    ----------
    n, n_test, n_held, classes, flat, pixels, targets, key
        As for `mnist`.
    side
        Height and width of the images, which are enlarged by linear interpolation if it is above 8.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UserError(
            "The data set 'digits' comes with scikit-learn, which is not installed: "
            'run pip install "unlazy[digits]", or take another data set.'
        ) from error
    checks.count("side", side, 8)
    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    size = (1, 1, side / 8, side / 8)
    from scipy.ndimage import zoom

    images = np.asarray(zoom(images.reshape(-1, 1, 8, 8), size, order=1, mode="nearest", grid_mode=True))
    pool = _of_classes(Labelled(images, labels), classes)
    _enough("digits", "images", len(pool.labels), n + n_test + n_held)
    order_key, draw_key = jax.random.split(as_key(key))
    order = generator(order_key).permutation(len(pool.labels))
    test, train = (Labelled(pool.images[part], pool.labels[part]) for part in (order[:n_test], order[n_test:]))
    form = flat, pixels, targets
    return _draw(train, test, (n, n_test, n_held), classes, form, peak=16.0, name="digits", key=draw_key)


def _enough(name: str, what: str, have: int, asked: int) -> None:
    if asked > have:
        raise UserError(f"'{name}' has {have:,} {what} of these classes, but {asked:,} were asked for: take fewer.")


def _of_classes(pool: Labelled, classes: tuple[int, ...] | None) -> Labelled:
    if classes is None:
        return pool
    if not classes or len(set(classes)) < len(classes) or not set(classes) <= set(range(10)):
        raise UserError(f"classes = {classes} is not a choice of classes: give different numbers from 0 to 9.")
    kept = np.isin(pool.labels, classes)
    return Labelled(pool.images[kept], pool.labels[kept])


def _draw(
    train: Labelled,
    test: Labelled,
    sizes: tuple[int | None, int | None, int],
    classes: tuple[int, ...] | None,
    form: tuple[bool, Pixels, Targets],
    *,
    peak: float = 255.0,
    name: str,
    key: KeyLike,
) -> Dataset:
    """Draw training, held-out and test images without replacement, and scale and reshape them."""
    (flat, pixels, targets), (n, n_test, n_held) = form, sizes
    train, test = _of_classes(train, classes), _of_classes(test, classes)
    n = max(1, len(train.labels) - n_held) if n is None else n
    n_test = len(test.labels) if n_test is None else n_test
    _enough(name, "training images", len(train.labels), n + n_held)
    _enough(name, "test images", len(test.labels), n_test)

    train_key, test_key = jax.random.split(as_key(key))
    order = generator(train_key).permutation(len(train.labels))
    order_test = generator(test_key).permutation(len(test.labels))[:n_test]
    dtype = np.dtype(jnp.result_type(float))

    centre, spread = (0.5, 0.5) if pixels == "signed" else (0.0, 1.0)
    if pixels == "standard":
        unit = train.images[order[:n]].astype(dtype) / peak
        centre, spread = float(unit.mean(dtype=float)), float(unit.std(dtype=float)) or 1.0

    def part(pool: Labelled, chosen: np.ndarray) -> tuple[Inputs, Outputs]:
        x = (pool.images[chosen].astype(dtype) / peak - centre) / spread
        labels = pool.labels[chosen]
        y = labels if targets == "number" else labels[:, None] == np.array(classes or range(10))
        return jnp.asarray(x.reshape(len(x), -1) if flat else x, dtype), jnp.asarray(y, dtype)

    held = Dataset(*part(train, order[n : n + n_held]), name=f"{name}, held out") if n_held else None
    x_test, y_test = part(test, order_test) if n_test else (None, None)
    return Dataset(*part(train, order[:n]), x_test, y_test, held_out=held, name=name)


# ---------------------------------------------------------------- published formats


def _cached(read: Callable[[Path], Read]) -> Callable[[Path], Read]:
    """Remember the last few files read, as long as they do not change."""

    @functools.lru_cache(maxsize=4)
    def of_stamp(path: str, size: int, changed: int) -> Read:
        with reading(Path(path)):
            return read(Path(path))

    @functools.wraps(read)
    def wrapped(path: Path) -> Read:
        return of_stamp(*stamp(path))

    return wrapped


@_cached
def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of bytes: four magic bytes, one big-endian size per axis, then the entries."""
    with gzip.open(path) as file:
        raw = file.read()
    if raw[:3] != b"\0\0\x08" or len(raw) < 4:
        raise UserError(f"The file {path} does not begin like an IDX file of bytes: is it the right file?")
    shape = np.frombuffer(raw, ">u4", raw[3], 4).astype(int)
    entries = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if entries.size != np.prod(shape):
        raise UserError(
            f"The file {path} has {entries.size} entries, but its header promises {np.prod(shape)}: "
            "it is cut short. Copy it again or let it be downloaded."
        )
    return entries.reshape(shape)


@_cached
def read_records(path: Path) -> Labelled:
    """Read an xz-compressed batch of CIFAR-10's binary version: a label, then 3 x 32 x 32 bytes, for each image."""
    with lzma.open(path) as file:
        raw = np.frombuffer(file.read(), np.uint8)
    if raw.size == 0 or raw.size % 3073:
        raise UserError(
            f"The file {path} unpacks to {raw.size} bytes, which is not a whole number of records of 3073 bytes: "
            "it is cut short. Copy it again."
        )
    records = raw.reshape(-1, 3073)
    return Labelled(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0])


@_cached
def read_archive(path: Path) -> tuple[Labelled, Labelled]:
    """Read CIFAR-10's python version: five pickled training batches and a test batch in one archive."""
    batches: dict[str, Labelled] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = Path(member.name).name
            file = archive.extractfile(member) if name.startswith("data_batch_") or name == "test_batch" else None
            if file is not None:
                with file:
                    batches[name] = _unpickle(file.read(), path)
    wanted = [f"data_batch_{i}" for i in range(1, 6)]
    if missing := {*wanted, "test_batch"} - batches.keys():
        raise UserError(f"The archive {path} lacks {', '.join(sorted(missing))}: is it CIFAR-10's python version?")
    train = Labelled(*(np.concatenate(parts) for parts in zip(*(batches[name] for name in wanted), strict=True)))
    return train, batches["test_batch"]


class _ArraysOnly(pickle.Unpickler):
    """Unpickles plain containers and NumPy arrays, and calls nothing else that a file may name."""

    allowed = frozenset({"_reconstruct", "ndarray", "dtype", "_frombuffer", "encode"})
    homes = frozenset({"numpy", "numpy.core.multiarray", "numpy._core.multiarray", "numpy._core.numeric", "_codecs"})

    def find_class(self, module_name: str, global_name: str) -> Any:
        if module_name in self.homes and global_name in self.allowed:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which no array needs")


def _unpickle(raw: bytes, path: Path) -> Labelled:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the batches were pickled by a NumPy of 2009, which NumPy warns about
        try:
            batch = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
            images, labels = np.asarray(batch[b"data"], np.uint8), np.asarray(batch[b"labels"], np.uint8)
        except (pickle.UnpicklingError, KeyError, TypeError) as error:
            raise UserError(f"A batch in {path} is not one of CIFAR-10 ({error}): is it the right archive?") from error
    return Labelled(images.reshape(-1, 3, 32, 32), labels)
