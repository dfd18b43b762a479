"""The four tables: every format on tiny files made here, the preparation, and the real files where there are any."""

import io
import zipfile

import jax
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from unlazy._errors import UserError
from unlazy.data import airfoil, concrete, energy, plant, tabular
from unlazy.data.download import Published
from unlazy.data.tabular import Table, load

ROWS = np.array([[1, 0.25, -3], [2, 0.25, 1e-3], [4, 0.25, 5.5], [8, 0.25, 1e4], [16, 0.25, 0]], float)
HEADER = ["a", "b, in quotes", "target"]


def csv_bytes(rows=ROWS):
    lines = [",".join(repr(float(cell)) for cell in row) for row in rows]
    return "\n".join(['a,"b, in quotes",target', *lines, ""]).encode()


def dat_bytes(rows=ROWS):
    return "".join("\t".join(repr(float(cell)) for cell in row) + "\r\n" for row in rows).encode()


def xls_bytes():
    book = pytest.importorskip("xlwt").Workbook()
    sheet = book.add_sheet("Sheet1")
    for i, row in enumerate([HEADER, *ROWS.tolist()]):
        for j, cell in enumerate(row):
            sheet.write(i, j, cell)
    saved = io.BytesIO()
    book.save(saved)
    return saved.getvalue()


def xlsx_bytes():
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [HEADER, *ROWS.tolist(), [None, None, None]]:  # Excel likes to keep an empty row
        book.active.append(row)
    book.create_sheet("Sheet2").append(["another order of the same rows"])
    saved = io.BytesIO()
    book.save(saved)
    book.close()
    return saved.getvalue()


def zip_bytes(**members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "about the data")
        for name, raw in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), raw)
    return packed.getvalue()


def table(file, member=""):
    return Table("tiny", (Published("http://127.0.0.1:9/none", None, f"uci/{file}"),), member, len(ROWS), 3)


def put(folder, name, raw):
    (folder / "uci").mkdir(exist_ok=True)
    (folder / "uci" / name).write_bytes(raw)
    return str(folder)


def test_text_formats(folder):
    assert np.array_equal(load(table("t.csv"), put(folder, "t.csv", csv_bytes())), ROWS)
    assert np.array_equal(load(table("t.dat"), put(folder, "t.dat", dat_bytes())), ROWS)


@pytest.mark.parametrize(
    ("member", "raw"),
    [("t.dat", dat_bytes), ("t.csv", csv_bytes), ("t.xls", xls_bytes), ("t.xlsx", xlsx_bytes)],
)
@pytest.mark.parametrize("inside", ["", "folder__"])
def test_published_archives(folder, member, raw, inside):
    packed = zip_bytes(**{inside + member.replace(".", "_"): raw()})
    assert np.array_equal(load(table("t.zip", member), put(folder, "t.zip", packed)), ROWS)


def test_a_file_may_lie_directly_in_the_folder(folder):
    (folder / "t.csv").write_bytes(csv_bytes())
    assert np.array_equal(load(table("t.csv"), str(folder)), ROWS)


@pytest.mark.parametrize(
    ("name", "member", "raw", "message"),
    [
        ("t.csv", "", csv_bytes()[:-8], "Data row 5 of .* has 2 columns, but 3 were expected"),
        ("t.csv", "", csv_bytes(ROWS[:-1]), "has 4 rows, but the tiny table has 5: the file is cut short"),
        ("t.csv", "", csv_bytes().replace(b"5.5", b"n/a"), "Data row 3 of .* has a cell that is not a number"),
        ("t.csv", "", b"", "has 0 rows"),
        ("t.csv", "", b"\xff\xfe\x00", "damaged or cut short"),
        ("t.dat", "", dat_bytes()[:-6], "Data row 5 of .* has 2 columns"),
        ("t.zip", "t.dat", zip_bytes(t_dat=dat_bytes())[:-30], "damaged or cut short"),
        ("t.zip", "t.xls", zip_bytes(t_dat=dat_bytes()), "holds no t.xls"),
        ("t.zip", "t.xls", zip_bytes(t_xls=b"not a workbook"), "damaged or cut short"),
        ("t.zip", "t.xlsx", zip_bytes(t_xlsx=b"not a workbook"), "damaged or cut short"),
        ("t.zip", "t.xlsx", zip_bytes(t_xlsx=zip_bytes()), "damaged or cut short"),
    ],
)
def test_broken_files(folder, name, member, raw, message):
    with pytest.raises(UserError, match=message):
        load(table(name, member), put(folder, name, raw))


@pytest.fixture
def small_plant(folder, monkeypatch):
    """Fifty rows in the place of the power plant; the second column is constant."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(20, 5, 50), np.full(50, 3.0), rng.normal(0, 1e-3, (50, 3))])
    (folder / "t.csv").write_text("\n".join(["h", *(",".join(map(repr, row.tolist())) for row in rows)]))
    table = Table("plant", (Published(None, None, "uci/t.csv"),), "", 50, 5)
    monkeypatch.setitem(globals(), "plant", tabular._maker(table, "A small table."))
    return str(folder), rows


def test_preparation_uses_training_statistics(small_plant, key):
    folder, rows = small_plant
    raw = plant(standardise=False, unit_ball=False, standardise_target=False, folder=folder, key=key)
    data = plant(folder=folder, key=key)
    assert (data.x.shape, data.x_test.shape, data.held_out.x.shape) == ((20, 4), (10, 4), (20, 4))
    everything = np.concatenate([raw.x, raw.x_test, raw.held_out.x])
    assert np.allclose(np.sort(everything, axis=0), np.sort(rows[:, :4], axis=0), rtol=1e-6)

    x = np.asarray(raw.x, float)
    centre, spread = x.mean(0), np.where(x.std(0) > 1e-9, x.std(0), 1)
    scaled = [(np.asarray(part.x, float) - centre) / spread for part in (raw, raw.held_out)]
    largest = np.linalg.norm(scaled[0], axis=1).max()
    assert np.allclose(data.x, scaled[0] / largest, atol=1e-4)
    assert np.allclose(data.held_out.x, scaled[1] / largest, atol=1e-4)
    assert np.linalg.norm(data.x, axis=1).max() == pytest.approx(1, abs=1e-5)
    assert np.allclose(data.x[:, 1], 0)
    assert float(data.y.mean()) == pytest.approx(0, abs=1e-5)
    assert float(data.y.std()) == pytest.approx(1, abs=1e-5)
    assert np.allclose(data.y_test, (raw.y_test - raw.y.mean()) / raw.y.std(), atol=1e-4)
    data.check()


def test_each_step_of_the_preparation_is_an_option(small_plant, key):
    folder, _ = small_plant
    standard = plant(unit_ball=False, folder=folder, key=key)
    assert np.allclose(standard.x.std(axis=0), [1, 0, 1, 1], atol=1e-5)
    ball = plant(standardise=False, folder=folder, key=key)
    assert np.linalg.norm(ball.x, axis=1).max() == pytest.approx(1, abs=1e-5)
    assert float(ball.x[:, 1].min()) > 0


def test_shares_and_keys(small_plant, key):
    folder, _ = small_plant
    data = plant((0.8, 0.2, 0.0), folder=folder, key=key)
    assert (data.n, len(data.y_test), data.held_out) == (40, 10, None)
    assert np.array_equal(plant(folder=folder, key=key).x, plant(folder=folder, key=key).x)
    assert not np.array_equal(plant(folder=folder, key=key).x, plant(folder=folder, key=jax.random.key(3)).x)
    with pytest.raises(UserError, match="three numbers"):
        plant((0.8, 0.8, 0.0), folder=folder, key=key)


def test_a_constant_table_is_not_divided_by_zero(folder, monkeypatch, key):
    (folder / "t.csv").write_text("h\n" + "7,7,7,7,7\n" * 10)
    table = Table("plant", (Published(None, None, "uci/t.csv"),), "", 10, 5)
    monkeypatch.setitem(globals(), "plant", tabular._maker(table, "A small table."))
    data = plant(folder=str(folder), key=key)
    data.check()
    assert np.array_equal(data.x, np.zeros((4, 4)))


@pytest.mark.parametrize(
    ("make", "rows", "columns", "centre"),
    [(concrete, 1030, 8, 35.818), (energy, 768, 8, 22.307), (airfoil, 1503, 5, 124.836), (plant, 9568, 4, 454.365)],
)
def test_real_tables(data_folder, make, rows, columns, centre, key):
    raw = make(
        (1.0, 0.0, 0.0), standardise=False, unit_ball=False, standardise_target=False, folder=data_folder, key=key
    )
    assert raw.x.shape == (rows, columns)
    assert float(raw.y.mean()) == pytest.approx(centre, abs=6e-4)
    data = make(folder=data_folder, key=key)
    assert (data.n, len(data.y_test)) == (round(0.4 * rows), round(0.6 * rows) - round(0.4 * rows))
    assert np.linalg.norm(data.x, axis=1).max() <= 1 + 1e-6


def test_both_forms_of_the_airfoil_table_agree(data_folder):
    forms = [Table("airfoil", (source,), "", 1503, 6) for source in tabular.AIRFOIL.sources[:2]]
    assert np.array_equal(*(load(form, data_folder) for form in forms))


def test_cooling_load(data_folder, key):
    data = energy((1.0, 0.0, 0.0), target="cooling", standardise_target=False, folder=data_folder, key=key)
    assert float(data.y.mean()) == pytest.approx(24.588, abs=6e-4)
    assert data.name == "energy, cooling load"


def test_an_unknown_load_is_refused(key):
    with pytest.raises((UserError, TypeCheckError), match="warming"):
        energy(target="warming", key=key)
