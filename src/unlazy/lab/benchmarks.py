"""Finds and runs the benchmarks of a source tree: the files of its folder `benchmarks`, each with a `measure`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unlazy._errors import UserError, suggest


def measured(name: str | None, tell: Callable[[str], None]) -> Iterator[list[dict[str, Any]]]:
    """Run the benchmark called ``name``, or all of them, and give the rows of each."""
    known = _known()
    if name is not None and name not in known:
        raise UserError(f"There is no benchmark called '{name}'. {suggest(name, known)}")
    for stem in [name] if name else known:
        tell(stem)
        spec = importlib.util.spec_from_file_location(f"benchmarks_{stem}", known[stem])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module.measure()


def _known() -> dict[str, Path]:
    """Give benchmarks by name; files whose names begin with an underscore are what they share."""
    for base in (Path.cwd(), Path(__file__).parents[3]):
        if (base / "benchmarks").is_dir():
            found = sorted((base / "benchmarks").glob("*.py"))
            return {path.stem: path for path in found if not path.stem.startswith("_")}
    raise UserError("There is no folder 'benchmarks' here: call this command in a clone of the source.")
