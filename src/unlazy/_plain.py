"""Plain values, and tables of them from files that may come from anywhere: bounded JSON and TOML, and sealed JSON.

A sealed file has an entry ``checksum``, the SHA-256 digest of all its other entries, so that a change is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

LARGEST = 64 * 2**20  # bytes of a JSON file
DEEPEST = 50  # levels of tables and lists in each other
_DOTTED = re.compile(
    rf"(?<![\w-])(?:(?:[\w-]++|\"[^\"\n]*\"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST},}}"
)  # keys like a.b.c
SEAL = "checksum"


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any, least: int = 1) -> bool:
    """Whether a value is a whole number of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def finite_or_none(value: float | None) -> float | None:
    """Return a number for JSON, which has neither NaN nor infinity: None stands for them."""
    return None if value is None or not math.isfinite(value) else float(value)


class DamagedError(ValueError):
    """A file was changed or cut short after it was written."""


def read_text(path: Path, largest: int = LARGEST) -> str:
    """Return the text of a file; raise a ValueError if it is larger than ``largest`` bytes or not UTF-8."""
    with open(path, "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest / 2**20:g} MiB")
    return content.decode("utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """Return what JSON text holds; raise a ValueError if it is not valid, or nested too deeply."""
    try:
        value = bounded(json.loads(text))
        json.dumps(value, ensure_ascii=False).encode()  # fails on half a pair of surrogates
        return value
    except RecursionError:
        raise _deep() from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML text holds; raise a ValueError if it is not valid, or nested too deeply."""
    if _DOTTED.search(text):  # before the parser, which takes a time that grows as the square of their number
        raise _deep()
    try:
        return bounded(tomllib.loads(text))
    except RecursionError:
        raise _deep() from None


def bounded(value: Any) -> Any:
    """Return a value of tables and lists as it is; raise a ValueError if it is nested too deeply."""
    level, depth = [value], 0
    while level := [one for some in level for one in _inside(some)]:
        depth += 1
        if depth > DEEPEST:
            raise _deep()
    return value


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _deep() -> ValueError:
    return ValueError(f"tables and lists are nested in each other more than {DEEPEST} times")


def seal(content: dict[str, Any]) -> dict[str, Any]:
    """Return a table of JSON values with its checksum."""
    content = json.loads(json.dumps(content))  # as it will be read
    content.pop(SEAL, None)
    return {SEAL: _digest(content), **content}


def unseal(content: Any) -> tuple[dict[str, Any], bool]:
    """Return a table without its checksum, and whether it had one; raise a `DamagedError` if the checksum is wrong."""
    if not isinstance(content, dict):
        raise DamagedError(f"it holds {type(content).__name__} instead of a table")
    rest = {name: value for name, value in content.items() if name != SEAL}
    if SEAL in content and content[SEAL] != _digest(rest):
        raise DamagedError("its checksum is wrong: it was changed or damaged after it was written")
    return rest, SEAL in content


def read_sealed(path: Path) -> tuple[dict[str, Any], bool]:
    """Read a table from a JSON file, and return it as `unseal` does."""
    return unseal(parse_json(read_text(path)))


def check_figure(figure: str, expected: str | None) -> None:
    """Raise a `DamagedError` if the SVG figure beside a sealed file does not have the ``expected`` SHA-256 digest."""
    if hashlib.sha256(figure.encode()).hexdigest() != expected:
        raise DamagedError("its figure was changed or damaged after it was written")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
