"""Images with class labels: MNIST, CIFAR-10 and the small digits of scikit-learn.

All three draw random subsets by ``key`` and share their options:

- ``n``, ``n_test``: how many images to draw for training and test; None takes all there are. ``n_held`` more training
  images, none of them in the training set, become the held-out set (transfer in caron2023, section 6.3).
- ``classes``: keep only these classes. One-hot targets then have one column for each of them, in the order given.
- ``flat``: vectors of pixels, or arrays (channel, height, width).
- ``pixels``: "unit" in [0, 1]; "signed" in [-1, 1]; "standard" with mean 0 and standard deviation 1 over all pixels of
  the training images drawn. (zhou2023 does not say which it uses.)
- ``targets``: "one-hot" of shape (n, classes), or the class "number" as a float of shape (n,), on which zhou2023
  regresses.
- ``folder``: where the files lie; ``unlazy.data`` says where else they are looked for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from scipy.ndimage import zoom

from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._types import Inputs, KeyLike, Outputs
from unlazy.data import _checks as checks
from unlazy.data._base import Dataset, generator
from unlazy.data._download import Source, fetch, find, local
from unlazy.data._image_files import Labelled, read_archive, read_idx, read_records
from unlazy.data._own import reads

Pixels = Literal["unit", "signed", "standard"]
Targets = Literal["one-hot", "number"]

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_FILES = tuple(
    Source(f"{_MNIST}{name}-ubyte.gz", sha256, f"mnist/{name}-ubyte.gz")
    for name, sha256 in (
        ("train-images-idx3", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)
CIFAR_ARCHIVE = Source(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "cifar-10/cifar-10-python.tar.gz",
)
CIFAR_SUBSET = (
    Source(None, "08cc5ab8a2a5372b1757290d7be341dc4b9c6a64965c6b3eb0c081ffad2006a5", "cifar-10/data_batch_1.bin.xz"),
    Source(None, "b17b76630f3d6046967f244872dd4abc5f1745a3a0b88f08cd367c9c7ebb8d01", "cifar-10/test_batch.bin.xz"),
)


@dataclass(frozen=True)
class _Form:
    """How stored images and labels become inputs and targets."""

    flat: bool
    pixels: Pixels
    targets: Targets
    peak: float = 255.0

    def __post_init__(self) -> None:
        checks.choice("pixels", self.pixels, get_args(Pixels))
        checks.choice("targets", self.targets, get_args(Targets))


def _mnist_files(folder: str | None = None, **_: Any) -> list[Path]:
    return [path for file in MNIST_FILES for path in local(file, folder=folder)]


def _cifar_files(folder: str | None = None, **_: Any) -> list[Path]:
    subset = [path for part in CIFAR_SUBSET for path in local(part, folder=folder)]
    return local(CIFAR_ARCHIVE, folder=folder) or subset


@reads(files=_mnist_files)
def mnist(
    n: int | None = None,
    n_test: int | None = None,
    n_held: int = 0,
    classes: tuple[int, ...] | None = None,
    flat: bool = True,
    pixels: Pixels = "unit",
    targets: Targets = "one-hot",
    folder: str | None = None,
    *,
    key: KeyLike,
) -> Dataset:
    """Handwritten digits, 28 x 28: 60,000 for training, 10,000 for test (LeCun, Bottou, Bengio and Haffner, 1998).

    The options are the room's (see this module). caron2023 takes n = 5000 and 5000 held out; zhou2023 n = 500.
    """
    train_images, train_labels, test_images, test_labels = (
        read_idx(fetch(file, folder=folder)) for file in MNIST_FILES
    )
    return _draw(
        Labelled(train_images[:, None], train_labels),
        Labelled(test_images[:, None], test_labels),
        (n, n_test, n_held),
        classes,
        _Form(flat, pixels, targets),
        name="MNIST",
        key=key,
    )


@reads(files=_cifar_files)
def cifar10(
    n: int | None = None,
    n_test: int | None = None,
    n_held: int = 0,
    classes: tuple[int, ...] | None = None,
    flat: bool = True,
    pixels: Pixels = "unit",
    targets: Targets = "one-hot",
    folder: str | None = None,
    *,
    key: KeyLike,
) -> Dataset:
    """Colour images, 3 x 32 x 32, of ten classes: 50,000 for training, 10,000 for test (Krizhevsky, 2009).

    A data folder may hold the archive of the "python version", or the first training batch alone with the test batch
    (``data_batch_1.bin.xz``, ``test_batch.bin.xz``): then 10,000 training images are all there are, the name of the
    data set says so, and results are not comparable with ones from all 50,000. The options are the room's (see this
    module).
    """
    name = "CIFAR-10"
    archive = find(CIFAR_ARCHIVE, folder=folder)
    parts = [find(part, folder=folder) for part in CIFAR_SUBSET] if archive is None else [None]
    if all(part is not None for part in parts):
        train, test = (read_records(part) for part in parts if part is not None)
        name = f"CIFAR-10, subset of {len(train.labels):,} training images"
    else:
        train, test = read_archive(archive or fetch(CIFAR_ARCHIVE, folder=folder))
    return _draw(train, test, (n, n_test, n_held), classes, _Form(flat, pixels, targets), name=name, key=key)


def digits(
    n: int = 1000,
    n_test: int = 500,
    n_held: int = 0,
    classes: tuple[int, ...] | None = None,
    flat: bool = True,
    pixels: Pixels = "unit",
    targets: Targets = "one-hot",
    side: int = 8,
    *,
    key: KeyLike,
) -> Dataset:
    """Draw from the 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn: no file, no network.

    They have no test set of their own: training, test and held-out images are drawn apart from the one pool. A larger
    ``side`` enlarges them by linear interpolation, so that they stand for larger images. The other options are the
    room's (see this module). Needs the extra ``digits``.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UserError(
            "The data set 'digits' comes with scikit-learn, which is not installed: "
            'run pip install "unlazy[digits]", or take another data set.'
        ) from error
    checks.count("n_test", n_test, 0)
    checks.count("side", side, 8)
    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    size = (1, 1, side / 8, side / 8)
    images = np.asarray(zoom(images.reshape(-1, 1, 8, 8), size, order=1, mode="nearest", grid_mode=True))
    pool = _of_classes(Labelled(images, labels), classes)
    _enough("digits", "images", len(pool.labels), n + n_test + n_held)
    order_key, draw_key = jax.random.split(as_key(key))
    order = generator(order_key).permutation(len(pool.labels))
    test, train = (Labelled(pool.images[part], pool.labels[part]) for part in (order[:n_test], order[n_test:]))
    form = _Form(flat, pixels, targets, peak=16.0)
    return _draw(train, test, (n, n_test, n_held), classes, form, name="digits", key=draw_key)


def _enough(name: str, what: str, have: int, asked: int) -> None:
    if asked > have:
        raise UserError(
            f"'{name}' has {have:,} {what} of the classes wanted, but {asked:,} were asked for: take fewer."
        )


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
    form: _Form,
    *,
    name: str,
    key: KeyLike,
) -> Dataset:
    """Draw training, held-out and test images without replacement and bring them into form."""
    train, test = _of_classes(train, classes), _of_classes(test, classes)
    n, n_test, n_held = sizes
    checks.count("n_held", n_held, 0)
    n = max(1, len(train.labels) - n_held) if n is None else n
    n_test = len(test.labels) if n_test is None else n_test
    checks.count("n", n)
    checks.count("n_test", n_test, 0)
    _enough(name, "training images", len(train.labels), n + n_held)
    _enough(name, "test images", len(test.labels), n_test)

    train_key, test_key = jax.random.split(as_key(key))
    order = generator(train_key).permutation(len(train.labels))
    order_test = generator(test_key).permutation(len(test.labels))[:n_test]
    dtype = np.dtype(jnp.result_type(float))

    unit = train.images[order[:n]].astype(dtype) / form.peak
    centre, spread = 0.0, 1.0
    if form.pixels == "signed":
        centre, spread = 0.5, 0.5
    elif form.pixels == "standard":
        centre, spread = float(unit.mean(dtype=float)), float(unit.std(dtype=float)) or 1.0

    def inputs(images: np.ndarray) -> Inputs:
        values = (images.astype(dtype) / form.peak - centre) / spread
        return jnp.asarray(values.reshape(len(values), -1) if form.flat else values, dtype)

    def outputs(labels: np.ndarray) -> Outputs:
        if form.targets == "number":
            return jnp.asarray(labels, dtype)
        return jnp.asarray(labels[:, None] == np.array(classes or range(10)), dtype)

    def part(pool: Labelled, chosen: np.ndarray) -> tuple[Inputs, Outputs]:
        return inputs(pool.images[chosen]), outputs(pool.labels[chosen])

    held = Dataset(*part(train, order[n : n + n_held]), name=f"{name}, held out") if n_held else None
    x_test, y_test = part(test, order_test) if n_test else (None, None)
    return Dataset(*part(train, order[:n]), x_test, y_test, held_out=held, name=name)
