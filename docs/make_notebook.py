"""Makes a notebook of the page "Is my network lazy?": text and code in turn, without output.

Call ``python docs/make_notebook.py`` after a change of the page; a test compares both.
"""

import json
import re
from pathlib import Path

PAGE = Path(__file__).with_name("is-my-network-lazy.md")
BLOCK = re.compile(r"^```python\n(.*?)^```\n", flags=re.DOTALL | re.MULTILINE)


def cell(index, kind, text):
    content = {"cell_type": kind, "id": f"cell-{index}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return content | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def notebook(text):
    """The notebook of a page in Markdown, in version 4.5 of the Jupyter format."""
    text = text[: text.index("\nThis page is also a [notebook]")]
    parts = BLOCK.split(text)  # text and code in turn
    kinds = ["markdown", "code"] * len(parts)
    cells = [(kind, part.strip()) for kind, part in zip(kinds, parts, strict=False) if part.strip()]
    start = ("markdown", "This notebook needs `pip install unlazy`; the parts on Flax and PyTorch need those as well.")
    python = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    cells = [cell(index, *one) for index, one in enumerate([cells[0], start, *cells[1:]])]
    return json.dumps({"cells": cells, "metadata": python, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.with_suffix(".ipynb").write_text(notebook(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
