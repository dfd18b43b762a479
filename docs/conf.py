import importlib.metadata

project = "unlazy"
author = "The unlazy developers"
release = version = importlib.metadata.version("unlazy")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"unlazy {release}"
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"


def _bars(app, what, name, obj, options, lines):
    # Formulas in docstrings use |x| for a norm, which reStructuredText would take for a substitution.
    for index, line in enumerate(lines):
        parts = line.split("``")
        parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
        lines[index] = "``".join(parts)


def setup(app):
    app.connect("autodoc-process-docstring", _bars)
