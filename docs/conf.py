import importlib
import importlib.metadata
import inspect
import sys
from pathlib import Path

from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent))

project = "unlazy"
author = "The unlazy developers"
release = version = importlib.metadata.version("unlazy")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "_run"]
exclude_patterns = ["_build"]
napoleon_use_ivar = True  # autodoc already describes the fields of named tuples
napoleon_attr_annotations = False  # the asterisk of a shape would be taken for emphasis
html_theme = "furo"
html_title = f"unlazy {release}"
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
suppress_warnings = ["ref.python"]  # a documented attribute is searched for by its last name, which several may share


def _bars(app, what, name, obj, options, lines):
    # Formulas in docstrings use |x| for a norm, which reStructuredText would take for a substitution.
    for index, line in enumerate(lines):
        parts = line.split("``")
        parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
        lines[index] = "``".join(parts)


def _all_there(app, env):
    """A public name that the reference lacks, or without words of its own, is a warning, and warnings end the build."""
    import unlazy

    known = env.get_domain("py").objects
    for package in filter(lambda name: inspect.ismodule(getattr(unlazy, name)), unlazy.__all__):
        module = importlib.import_module(f"unlazy.{package}")
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            value = getattr(module, name)
            # A data class without a docstring is given one that only repeats its fields.
            mute = inspect.isclass(value) and (value.__doc__ or "").startswith(f"{name}(")
            if mute or (f"unlazy.{package}.{name}" not in known and not inspect.ismodule(value)):
                logging.getLogger(__name__).warning(f"unlazy.{package}.{name} is public, but not in the reference")


def setup(app):
    app.connect("autodoc-process-docstring", _bars)
    app.connect("env-check-consistency", _all_there)
