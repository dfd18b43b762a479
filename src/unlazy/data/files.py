"""Your own data from a file: tables of numbers (``csv``) and NumPy arrays (``npz``).

A relative path is relative to the current folder. In a recipe every seed draws its own test and held-out sets;
``same_data = true`` gives all seeds the same.
"""

from __future__ import annotations

import csv as reader
import gzip
import re
import zipfile
from collections.abc import Iterator
from io import TextIOBase
from pathlib import Path
from typing import NoReturn

import numpy as np

from unlazy._checked import checked
from unlazy._errors import UserError, short, suggest
from unlazy._memory import must_fit
from unlazy._types import Count, KeyLike, Share
from unlazy.data._base import Dataset, cut, divided, one_hot, reads

Column = int | str
_MOST = 100_000_000  # numbers that are read at once: 0.8 GB
_COPIES = 3  # of the table, at most, while it becomes a data set
_PARTS = ("x", "y", "x_test", "y_test", "weight")


@reads("path")
@checked
def csv(
    path: str,
    target: int | str | tuple[int | str, ...] = -1,
    inputs: tuple[int | str, ...] | None = None,
    test: Share = 0.0,
    held_out: Share = 0.0,
    standardise: bool = False,
    standardise_target: bool = False,
    classes: int | bool = False,
    header: bool | None = None,
    delimiter: str | None = None,
    rows: Count | None = None,
    *,
    key: KeyLike = 0,
) -> Dataset:
    """A table of numbers in a text file, with one sample per row.

    Parameters
    ----------
    path
        The file, which may be compressed (.gz).
    target
        Name or number (from 0; negative ones count from the end) of the target column, or several of them.
    inputs
        Names or numbers of the input columns; all that are not targets if omitted.
    test
        Share of the rows that become the test set.
    held_out
        Share of the rows that become the held-out set.
    standardise
        Shift and scale each input column to mean 0 and standard deviation 1 on the training rows.
    standardise_target
        The same for the targets.
    classes
        Number of classes if the target is a class number, which becomes one-hot; true counts them.
    header
        Whether the first row holds names; if omitted, it does where one of its cells is not a number.
    delimiter
        What separates cells; if omitted, whichever of comma, semicolon, tab and blank the first row has most of.
    rows
        Read at most this number of rows.
    key
        Random key that draws the test and held-out sets.
    """
    file = Path(path).expanduser()
    first = _first_row(file, delimiter)
    most = max((",", ";", "\t"), key=first.count)
    separator = delimiter or (most if most in first else " ")
    cells = next(reader.reader([first], delimiter=separator, skipinitialspace=True), [])
    cells = [cell.strip() for cell in (cells if separator != " " else first.split())]
    named = any(not _is_number(cell) for cell in cells) if header is None else header
    names = cells if named else [str(number) for number in range(len(cells))]
    targets = [_column(one, names, named, file) for one in (target if isinstance(target, tuple) else (target,))]
    others = [number for number in range(len(names)) if number not in targets]
    chosen = others if inputs is None else [_column(one, names, named, file) for one in inputs]
    if not chosen or not targets or set(chosen) & set(targets):
        raise UserError(f"'{path}' needs input columns apart from its targets: it has {short(names)}.")
    _check_size(file, len(first), len(chosen) + len(targets), rows)
    table = _read(file, separator, names, named, sorted({*chosen, *targets}), rows)
    place = {number: index for index, number in enumerate(sorted({*chosen, *targets}))}
    x = table[:, [place[number] for number in chosen]]
    y = table[:, [place[number] for number in targets]]
    y = y[:, 0] if not isinstance(target, tuple) else y
    return _cut_up(x, y, (test, held_out), (standardise, standardise_target), classes, name=file.stem, key=key)


@reads("path")
@checked
def npz(
    path: str,
    test: Share = 0.0,
    held_out: Share = 0.0,
    standardise: bool = False,
    standardise_target: bool = False,
    classes: int | bool = False,
    *,
    key: KeyLike = 0,
) -> Dataset:
    """Arrays ``x`` and ``y`` of an .npz file, and ``x_test``, ``y_test`` and ``weight`` if it contains them.

    Parameters
    ----------
    path
        The file, as `numpy.savez` writes it.
    test
        Share of the samples that become the test set, if the file contains none.
    held_out, standardise, standardise_target, classes, key
        As for `csv`.
    """
    file = Path(path).expanduser()
    try:
        with zipfile.ZipFile(file) as archive:
            held = {Path(one.filename).stem: one.file_size for one in archive.infolist()}
        must_fit(_COPIES * sum(held.get(part, 0) for part in _PARTS), f"'{path}'", "take fewer samples")
        with np.load(file, allow_pickle=False) as arrays:
            parts = {part: arrays[part] for part in _PARTS if part in arrays}
    except UserError:
        raise
    except Exception as error:
        _unreadable(file, error, "write it by numpy.savez(path, x=..., y=...)")
    for part in ("x", "y"):
        if part not in parts:
            raise UserError(f"'{path}' holds no array '{part}'. {suggest(part, held)} Write it with x=... and y=...")
    if "x_test" not in parts and "weight" not in parts:
        x, y, scaled = parts["x"], parts["y"], (standardise, standardise_target)
        return _cut_up(x, y, (test, held_out), scaled, classes, name=file.stem, key=key)
    if test or held_out or standardise or standardise_target:
        raise UserError(
            f"'{path}' holds a test set or weights of its own: leave out test, held_out and standardise, and prepare "
            "the arrays before they are saved."
        )
    if classes is not False:
        labels = {one: parts[one] for one in ("y", "y_test") if one in parts}
        count = int(max(map(np.max, labels.values()))) + 1 if classes is True else int(classes)
        parts |= {one: np.asarray(one_hot(values, count)) for one, values in labels.items()}
    return Dataset(**parts, name=file.stem)


def _cut_up(
    x: np.ndarray,
    y: np.ndarray,
    shares: tuple[float, float],
    scaled: tuple[bool, bool],
    classes: int | bool,
    *,
    name: str,
    key: KeyLike,
) -> Dataset:
    """Split samples by the shares of the test and held-out sets, and standardise inputs and targets if asked to."""
    test, held_out = shares
    if test + held_out >= 1:
        raise UserError(f"test = {test} and held_out = {held_out} leave no training samples: take smaller shares.")
    whole = Dataset(x, y if classes is False else one_hot(y, None if classes is True else int(classes)), name=name)
    whole.check()
    n, parts = whole.n, (np.arange(whole.n), np.arange(0), np.arange(0))
    if test or held_out:
        parts = cut(n, (1 - test - held_out, test, held_out), key=key)
    for what, share, part in (("test", test, parts[1]), ("held_out", held_out, parts[2])):
        if share and not part.size:
            raise UserError(f"{what} = {share} of {n} samples is less than one sample: take a larger share.")
    return divided(np.asarray(whole.x), np.asarray(whole.y), parts, (scaled[0], False, scaled[1]), name=name)


# ---------------------------------------------------------------- text


def _open(file: Path) -> TextIOBase:
    return gzip.open(file, "rt", encoding="utf-8-sig") if file.suffix == ".gz" else file.open(encoding="utf-8-sig")


def _unreadable(file: Path, error: Exception, advice: str) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        raise UserError(
            f"There is no file '{file}': paths are relative to the current folder ({Path.cwd()})."
        ) from None
    reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    raise UserError(f"The file '{file}' cannot be read ({' '.join(str(reason).split())[:200]}): {advice}.") from None


def _first_row(file: Path, delimiter: str | None) -> str:
    if delimiter is not None and len(delimiter) != 1:
        raise UserError(f"delimiter = {delimiter!r} is not one character: give one such as ',' or ';'.")
    try:
        with _open(file) as lines:
            first = lines.readline(1_000_000).strip("\r\n")
    except (OSError, UnicodeError, EOFError) as error:
        _unreadable(file, error, "give a text file of numbers")
    if not first.strip():
        raise UserError(f"The file '{file}' is empty, or its first row is: give a table of numbers.")
    return first


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(wanted: Column, names: list[str], named: bool, file: Path) -> int:
    if isinstance(wanted, str) and wanted in names and named:
        if names.count(wanted) > 1:
            raise UserError(f"'{file}' has {names.count(wanted)} columns called '{wanted}': give its number.")
        return names.index(wanted)
    if isinstance(wanted, int) and -len(names) <= wanted < len(names):
        return wanted % len(names)
    if isinstance(wanted, int):
        raise UserError(f"'{file}' has no column {wanted}: its {len(names)} columns count from 0.")
    known = suggest(wanted, names) if named else "It has no header: give numbers of columns."
    raise UserError(f"'{file}' has no column '{wanted}'. {known}")


def _check_size(file: Path, row: int, columns: int, rows: int | None) -> None:
    """Raise an error if a file is too large, judged by the length of its first rows, before it is read."""
    with _open(file) as lines:
        sample = [len(line) for _, line in zip(range(1000), lines, strict=False)]
    length = sum(sample[1:]) / len(sample[1:]) if len(sample) > 1 else row + 1
    size = file.stat().st_size * (8 if file.suffix == ".gz" else 1)
    count = min(size / max(length, 1), rows or float("inf"))
    if count * columns > _MOST:
        raise UserError(
            f"'{file}' has about {count:,.0f} rows of {columns} columns, more than the {_MOST:,} numbers that are read "
            f"at once: read some with rows = {_MOST // columns // 10}, or choose fewer columns with inputs."
        )
    must_fit(8 * _COPIES * count * columns, f"'{file}' with about {count:,.0f} rows", "read some with rows = 100000")


def _read(
    file: Path, separator: str, names: list[str], named: bool, columns: list[int], rows: int | None
) -> np.ndarray:
    chosen = None if len(columns) == len(names) else columns
    try:
        with _open(file) as lines:
            table = np.loadtxt(
                _even(lines, separator, len(names), file) if chosen else lines,
                delimiter=None if separator == " " else separator,
                skiprows=int(named),
                comments=None,
                quotechar='"',
                ndmin=2,
                max_rows=rows,
                usecols=chosen,
            )
    except UserError:
        raise
    except ValueError as error:
        raise UserError(_bad_cell(str(error), file, names)) from None
    except (OSError, UnicodeError, EOFError) as error:
        _unreadable(file, error, "give a text file of numbers")
    if not table.size:
        raise UserError(f"The file '{file}' holds no rows of numbers.")
    bad = np.argwhere(~np.isfinite(table))
    if bad.size:
        row, column = bad[0]
        raise UserError(
            f"{len(bad)} cells of '{file}' are NaN or infinite, the first in data row {row + 1}, column "
            f"'{names[columns[column]]}': fill them in, or drop those rows."
        )
    return table


def _even(lines: TextIOBase, separator: str, columns: int, file: Path) -> Iterator[str]:
    """Raise an error if the number of cells changes, which the reader does not notice where it skips columns."""
    for number, line in enumerate(lines):
        if line.strip() and '"' not in line:
            cells = len(line.split()) if separator == " " else line.count(separator) + 1
            if cells != columns:
                raise UserError(
                    f"Line {number + 1} of '{file}' has {cells} cells, but the first has {columns}: correct the file."
                )
        yield line


def _bad_cell(message: str, file: Path, names: list[str]) -> str:
    cell = re.search(r"could not convert string '(.*)' to float64 at row (\d+), column (\d+)", message, re.DOTALL)
    if cell:
        row, column = int(cell[2]) + 1, names[min(int(cell[3]), len(names)) - 1]
        what = f"the text {short(cell[1])}" if cell[1].strip() else "an empty cell"
        return (
            f"Data row {row} of '{file}' has {what} in column '{column}', where a number was expected: "
            "encode text as numbers, drop that row, or choose the columns with inputs."
        )
    width = re.search(r"number of columns changed from (\d+) to (\d+) at row (\d+)", message)
    if width:
        return f"Data row {width[3]} of '{file}' has {width[2]} cells, but the first has {width[1]}: correct the file."
    return f"'{file}' is not a table of numbers ({' '.join(message.split())[:150]})."
