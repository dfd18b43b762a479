"""The four regression tables of the UCI repository that caron2023 uses (section 6.2): concrete, energy, airfoil, plant.

The options are the same for all four; test and held-out parts are cut after a shuffle by the key. The paper does not
say how it scales its inputs; its released code standardises them and does not divide by the largest norm.
"""

import csv
import io
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._types import KeyLike
from unlazy.data._base import Dataset, cut, divided, reads
from unlazy.data.download import Published, fetch, local, reading

Shares = tuple[float, float, float]
_PAPER: Shares = (0.4, 0.2, 0.4)


@dataclass(frozen=True)
class Table:
    """A published table: its forms on disk, the file inside the published archive, and its size."""

    name: str
    sources: tuple[Published, ...]
    member: str
    rows: int
    columns: int

    def files(self, folder: str | None = None, **_: Any) -> list[Path]:
        """Return the file of this table that is on this machine, if there is one."""
        return local(*self.sources, folder=folder)


def _table(name: str, member: str, rows: int, columns: int, archive: str, sha256: str, **plain: str) -> Table:
    """Describe a table that is published as ``archive``; ``plain`` has the SHA-256 of its bare file by suffix."""
    bare = [Published(None, digest, f"uci/{Path(member).stem}.{suffix}") for suffix, digest in plain.items()]
    published = Published(f"https://archive.ics.uci.edu/static/public/{archive}", sha256, f"uci/{Path(archive).name}")
    return Table(name, (*bare, published), member, rows, columns)


CONCRETE = _table(
    *("concrete", "Concrete_Data.xls", 1030, 9, "165/concrete+compressive+strength.zip"),
    "dad85d14de8aee4e07479daa774e6b569a313715b71a3b92c95a07cf91c2c9a7",
    csv="1ee5797061fa2bdb4dbfab8b121a064b323d6c0c5f5b4d31070fc35ce2af2fda",
)
ENERGY = _table(
    *("energy", "ENB2012_data.xlsx", 768, 10, "242/energy+efficiency.zip"),
    "499441eee27929a4b00417f58fd8c63c9cc14b8a71520cd0dd27fcb626738351",
    csv="88fb36f0eb6f0afdab8602f84e67d0d631790a604d7fe9beeb531be97f4ef553",
)
AIRFOIL = _table(
    *("airfoil", "airfoil_self_noise.dat", 1503, 6, "291/airfoil+self+noise.zip"),
    "5c7767ba53ad827d3f48ba1eb9434117f4892df8f10bc4c99e118a9e8a7ae07c",
    dat="74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
    csv="09df3965c19523591f7e3b4d9c6f7e7d21156d3b20fb4073a86a39566bd84b73",
)
PLANT = _table(
    *("plant", "Folds5x2_pp.xlsx", 9568, 5, "294/combined+cycle+power+plant.zip"),
    "cc7b2a4977c0a44e8221c91d9a7e5746b3c68186cff7e5c61c70af6432b98c7a",
    csv="3c1fc11025f8424f8d95802d8b7086dffd3f73a552c6dcab3d973620986194b2",
)


def _maker(table: Table, summary: str):
    """Make the function that prepares a table whose last column is the target."""

    @reads(files=table.files)
    @checked
    def make(
        shares: Shares = _PAPER,
        standardise: bool = True,
        unit_ball: bool = True,
        standardise_target: bool = True,
        folder: str | None = None,
        *,
        key: KeyLike,
    ) -> Dataset:
        """Prepare the table.

        Parameters
        ----------
        shares
            Shares of the training, test and held-out rows; the paper's 40 %, 20 % and 40 %.
        standardise
            Whether to shift and scale each input column to mean 0 and standard deviation 1 on the training rows.
        unit_ball
            Whether to divide all inputs, after that, by the largest norm of a training row, so that |x| <= 1 there, as
            caron2023's theory assumes. Other inputs may lie a little outside the unit ball.
        standardise_target
            Whether to shift and scale the target to mean 0 and standard deviation 1 on the training rows.
        folder
            Folder with the files; `unlazy.data` says where else they are searched for.
        key
            Random key that shuffles the rows.
        """
        x, y = np.split(load(table, folder), [-1], axis=1)
        scaled = standardise, unit_ball, standardise_target
        return divided(x, y[:, 0], cut(len(x), shares, key=key), scaled, name=table.name)

    make.__name__ = make.__qualname__ = table.name
    make.__doc__ = (make.__doc__ or "").replace("Prepare the table.", summary)
    return make


concrete = _maker(
    CONCRETE, "Compressive strength of concrete in MPa from 8 columns, 1,030 rows (I-Cheng Yeh, 1998; UCI 165)."
)
airfoil = _maker(
    AIRFOIL,
    "Sound pressure of an airfoil in dB from 5 columns, 1,503 rows (Brooks, Pope and Marcolini, 1989; UCI 291).",
)
plant = _maker(PLANT, "Output of a power plant in MW from 4 columns, 9,568 rows (Tüfekci, 2014; UCI 294).")


@reads(files=ENERGY.files)
@checked
def energy(
    shares: Shares = _PAPER,
    standardise: bool = True,
    unit_ball: bool = True,
    standardise_target: bool = True,
    target: Literal["heating", "cooling"] = "heating",
    folder: str | None = None,
    *,
    key: KeyLike,
) -> Dataset:
    """Heating (or cooling) load of a simulated building from 8 columns, 768 rows (Tsanas and Xifara, 2012; UCI 242).

    caron2023 does not say which of the two loads it fits; its released code takes the heating load.

    Parameters
    ----------
    shares, standardise, unit_ball, standardise_target, folder, key
        As for `concrete`.
    target
        Which of the two loads is the target.
    """
    column, name = (8, "energy") if target == "heating" else (9, "energy, cooling load")
    table, scaled = load(ENERGY, folder), (standardise, unit_ball, standardise_target)
    return divided(table[:, :8], table[:, column], cut(len(table), shares, key=key), scaled, name=name)


def load(table: Table, folder: str | None = None) -> np.ndarray:
    """Find, read and check a table as published: all rows, all columns, in the file's order."""
    path = fetch(*table.sources, folder=folder)
    with reading(path):
        rows = _cells(path, table)
    return _numbers(rows, table, path)


def _cells(path: Path, table: Table) -> Sequence[Sequence[Any]]:
    """Return the rows of cells below the header, whatever the format."""
    raw, suffix = path.read_bytes(), path.suffix
    if suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if Path(name).name.lower() == table.member.lower()]
            if not inside:
                raise UserError(f"The archive {path} holds no {table.member}: is it the right archive?")
            raw, suffix = archive.read(inside[0]), Path(table.member).suffix
    if suffix in (".xls", ".xlsx"):
        return _xls_cells(raw) if suffix == ".xls" else _xlsx_cells(raw)
    text = raw.decode("utf-8-sig")
    if suffix == ".csv":
        return list(csv.reader(io.StringIO(text, newline="")))[1:]
    return [line.split() for line in text.splitlines()]


def _xls_cells(raw: bytes) -> Sequence[Sequence[Any]]:
    import xlrd
    from xlrd.biffh import XLRDError

    try:
        with xlrd.open_workbook(file_contents=raw) as book:
            sheet = book.sheet_by_index(0)
            return [sheet.row_values(row) for row in range(1, sheet.nrows)]
    except XLRDError as error:
        raise ValueError(str(error)) from error


def _xlsx_cells(raw: bytes) -> Sequence[Sequence[Any]]:
    import openpyxl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a workbook without styles, and the like
        book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
        try:
            return list(book.worksheets[0].iter_rows(min_row=2, values_only=True))
        finally:
            book.close()


def _numbers(rows: Iterable[Sequence[Any]], table: Table, path: Path) -> np.ndarray:
    """Convert cells to numbers and skip empty rows; raise an error that names the row if one is damaged."""
    again = "Remove it, then copy it again or let it be downloaded."
    kept = []
    for number, row in enumerate(rows, 1):
        cells = list(row)
        while cells and cells[-1] in (None, ""):
            cells.pop()
        if not cells:
            continue
        if len(cells) != table.columns:
            raise UserError(
                f"Data row {number} of {path} has {len(cells)} columns, but {table.columns} were expected: "
                f"the file is cut short or damaged. {again}"
            )
        try:
            kept.append([float(cell) for cell in cells])
        except (TypeError, ValueError):
            raise UserError(f"Data row {number} of {path} has a cell that is not a number: {cells}. {again}") from None
    if len(kept) != table.rows:
        raise UserError(
            f"{path} has {len(kept)} rows, but the {table.name} table has {table.rows}: the file is cut short or is "
            f"another version. {again}"
        )
    return np.array(kept)
