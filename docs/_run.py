"""Runs the code blocks of the documentation: for the tests, and as a Sphinx extension that shows their output.

Later Python blocks of a page use the names of earlier ones. A block that fails ends the build. A Matplotlib figure
called ``figure`` that a block has made is shown below it. Recipes (TOML) are instantiated, of a
sweep the first one, and commands of unlazy (sh) are read as the command line reads them, but not run: some take hours. A block that imports one of the libraries whose
models can be wrapped is shown without its output where that library is not installed.
"""

import base64
import contextlib
import io
import os
import re
import shlex
import tempfile
import tomllib
import traceback

BLOCK = re.compile(r"^```python\n(.*?)^```\n", flags=re.DOTALL | re.MULTILINE)
OPTIONAL = ("flax", "haiku", "torch")
OTHER = re.compile(r"^```(sh|toml)\n(.*?)^```\n", flags=re.DOTALL | re.MULTILINE)


class BlockFailed(Exception):
    """Says the page, the line and what went wrong."""


def run_blocks(text, page):
    names, shown = {"__name__": "__docs__"}, None

    def run(block):
        nonlocal shown
        said = io.StringIO()
        line = text.count("\n", 0, block.start(1)) + 1
        try:
            with contextlib.redirect_stdout(said):
                exec(compile("\n" * (line - 1) + block[1], f"{page}.md", "exec"), names)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in OPTIONAL:
                return block[0]
            inside = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == f"{page}.md"]
            line = inside[0] if inside else getattr(error, "lineno", line)  # a mistake in spelling has no trace
            raise BlockFailed(f"{page}.md, line {line}: {type(error).__name__}: {error}") from error
        parts = [block[0]]
        if said.getvalue().strip():
            fence = "`" * (3 + max(map(len, re.findall("`+", said.getvalue())), default=0))
            parts.append(f"\n{fence}text\n{said.getvalue().rstrip()}\n{fence}\n")
        figure = names.get("figure")
        if figure is not None and figure is not shown and hasattr(figure, "savefig"):
            drawn = io.BytesIO()
            figure.savefig(drawn, format="svg")
            image = base64.b64encode(drawn.getvalue()).decode()
            shown_as = f'<img alt="What the block above draws" src="data:image/svg+xml;base64,{image}">'
            parts.append(f"\n```{{raw}} html\n{shown_as}\n```\n")
            shown = figure
        return "".join(parts)

    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(run, text)
        finally:
            os.chdir(here)


def check_blocks(text, page):
    for block in OTHER.finditer(text):
        line = text.count("\n", 0, block.start(2)) + 1
        try:
            {"sh": check_commands, "toml": check_recipe}[block[1]](block[2])
        except Exception as error:
            raise BlockFailed(f"{page}.md, block at line {line}: {type(error).__name__}: {error}") from error


def check_commands(block):
    from unlazy.cli.application import app

    for words in (shlex.split(line, comments=True) for line in block.splitlines()):
        if words and words[0] == "unlazy":
            app.parse_args(words[1:], exit_on_error=False, print_error=False)


def check_recipe(block):
    import jax

    from unlazy.lab import Phase, Sweep, instantiate, parse
    from unlazy.lab.fields import lists_in

    table = tomllib.loads(block)
    if "phase" in table:
        recipe = Phase.parse(table).sweep.points()[0].recipe
    elif "sweep" in table or lists_in(table):
        recipe = Sweep.parse(table).points()[0].recipe
    else:
        recipe = parse(table)
    with jax.enable_x64(True):  # as the command line does
        assert instantiate(recipe).networks


def on_read(app, name, source):
    from sphinx.errors import SphinxError

    try:
        check_blocks(source[0], name)
        source[0] = run_blocks(source[0], name)
    except BlockFailed as error:  # the sentence alone, in place of a trace through Sphinx
        raise SphinxError(f"A code block failed: {error}") from error


def setup(app):
    app.connect("source-read", on_read)
    return {"parallel_read_safe": False}
