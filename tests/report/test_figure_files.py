"""Figures as files: one visual language, column-width for papers, and data that are the numbers drawn."""

import csv
import io
import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from made_up import RATES, TIMES, random_labels
from unlazy._errors import UserError
from unlazy.figures import DASHES, ORDERED, SCALING, bars, canvas, fit, styled
from unlazy.papers import chen2022
from unlazy.report.figures import describe, draw, encode, export, table


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def results():
    return random_labels()


def test_data_are_the_numbers_drawn(results):
    """Every median and every seed of figure 1, to the last digit."""
    found = rows(table(draw(chen2022.fig1, results)))
    for n in RATES:
        loss = results[f"m=1024 n={n}"]["train-loss"].values
        curves = {f"n = {n}": np.median(loss, axis=0)} | {f"n = {n}, seed {k + 1}": loss[k] for k in range(len(loss))}
        for name, curve in curves.items():
            mine = [row for row in found if row["curve"] == name]
            np.testing.assert_array_equal([float(row["x"]) for row in mine], TIMES)
            np.testing.assert_array_equal([float(row["y"]) for row in mine], curve)
    assert {row["x_label"] for row in found} == {"t (GD steps of size 1)"}


def test_error_bars_pictures_dots_and_columns_are_data_too():
    with styled("screen"):
        figure, (one, two, three, four) = canvas(4, 12.0)
        values = np.array([[1.0, 2.0], [3.0, 6.0]])
        bars(one, [10.0, 20.0], values, 0, "a")
        two.imshow(np.array([[1.0, 2.0], [3.0, 4.0]]))
        three.scatter([1.0, 2.0], [5.0, 6.0], label="dots")
        four.bar([1.0, 2.0], [7.0, 8.0])
    found = rows(table(figure))
    means = [(float(row["x"]), float(row["y"]), float(row["error"])) for row in found if row["curve"] == "a"]
    np.testing.assert_allclose(means, [(10, 2, 1), (20, 4, 2)], rtol=1e-12)
    assert [row["y"] for row in found if row["curve"] == "a, seed 2"] == ["3.0", "6.0"]
    picture = {(row["x"], row["y"]): row["value"] for row in found if row["plot"] == "2"}
    assert picture == {("0", "0"): "1.0", ("1", "0"): "2.0", ("0", "1"): "3.0", ("1", "1"): "4.0"}
    assert [(row["curve"], row["x"], row["y"]) for row in found if row["plot"] == "3"] == [
        ("dots", "1.0", "5.0"),
        ("dots", "2.0", "6.0"),
    ]
    assert [float(row["y"]) for row in found if row["plot"] == "4"] == [7.0, 8.0]


def test_hostile_names_stay_in_their_cells():
    with styled("screen"):
        figure, (axes,) = canvas()
        axes.plot([0, 1], [1, 2], label='a, "b"\n=1+1')
    assert {row["curve"] for row in rows(table(figure))} == {'a, "b"\n=1+1'}


def test_a_figure_in_words(results):
    words = describe(draw(chen2022.fig1, results))
    assert words.startswith("A plot of chen2022, experiment 1")
    assert "training loss, mean of ½ (f - y)² against t (GD steps of size 1) (vertical axis logarithmic)" in words
    assert words.endswith("n = 20, n = 40, n = 80, n = 160.")


def test_paper_style_is_as_wide_as_a_column(results):
    figure = draw(chen2022.fig1, results, "paper")
    assert figure.get_figwidth() == 3.25
    assert figure.axes[0].get_title() == ""
    sizes = {text.get_fontsize() for text in figure.findobj(mpl.text.Text) if text.get_text()}
    assert 6 <= min(sizes) <= max(sizes) <= 8
    svg = encode(figure, "svg", "x", "paper").decode()
    assert re.search(r'width="234(\.\d+)?pt"', svg)  # 3.25 inches
    assert "<text" not in svg, "letters are shapes, the same everywhere"
    pdf = encode(figure, "pdf", "x", "paper")
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" not in pdf.replace(b" ", b""), "presses refuse Type 3 fonts"


@pytest.mark.parametrize(
    ("columns", "rows_", "wanted"), [(4, 1, (2, 2)), (2, 1, (1, 2)), (3, 3, (3, 3)), (5, 1, (2, 3)), (7, 1, (3, 3))]
)
def test_many_axes_fill_a_page(columns, rows_, wanted):
    with styled("paper"):
        figure, axes = canvas(columns, 13.0, 3.2 * rows_, rows=rows_)
        figure.suptitle("a title for the screen")
        fit(figure)
    assert figure.get_figwidth() == 6.75
    assert len(axes) == columns * rows_
    assert axes[0].get_gridspec().get_geometry() == wanted
    assert figure.get_suptitle() == ""
    assert figure.get_figheight() < 9.0


def test_the_style_is_left_as_it_was(results):
    before = dict(mpl.rcParams)
    draw(chen2022.fig1, results, "paper")
    assert dict(mpl.rcParams) == before
    assert draw(chen2022.fig1, results).get_figwidth() == 6.4


def test_the_same_figure_gives_the_same_bytes(results):
    for form in ("svg", "pdf", "csv"):
        one, other = (encode(draw(chen2022.fig1, results, "paper"), form, "x", "paper") for _ in range(2))
        assert one == other


def test_export_writes_what_is_asked(results, tmp_path):
    figure = draw(chen2022.fig1, results, "paper")
    written = export(figure, "Figure 1", tmp_path / "new" / "fig", ["pdf", "csv", "pdf"], "paper")
    assert [path.name for path in written] == ["fig.pdf", "fig.csv"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["fig.csv", "fig.pdf"]
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"The figure 'Figure 1' cannot be written to '.*file' \(.+\)"):
        export(figure, "Figure 1", tmp_path / "file" / "fig", ["csv"], "screen")


def test_scalings_have_colours_of_their_own():
    assert len(set(SCALING.values())) == len(SCALING)
    assert max(SCALING.values()) < len(ORDERED)


def test_colours_survive_grey_print():
    """They go from dark to light, so that order reads without hue, and no two lines share a dash."""

    def lightness(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(colour)]
        y = float(np.dot([0.2126, 0.7152, 0.0722], linear))
        return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y

    levels = [lightness(colour) for colour in ORDERED]
    assert levels == sorted(levels)
    assert len(set(DASHES)) == len(DASHES) == len(ORDERED)


def test_a_figure_from_nowhere_can_be_described():
    assert describe(Figure()).startswith("0 plots")
