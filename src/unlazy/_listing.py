"""A listing of all members, their summaries and options, without importing JAX.

Importing all modules takes ten seconds. So the listing is cached in a file whose name has a digest of all source files
of unlazy and of plug-ins; when a source changes, the listing is made again.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unlazy import _registry
from unlazy._errors import UserError, short, suggest
from unlazy._files import cache, replace
from unlazy._registry import KINDS, find, kebab, members, plugins

Listing = dict[str, dict[str, dict[str, Any]]]  # kind -> name -> result of `describe`
_SECTION = r"^(?:Parameters|Attributes)\n-+\n((?:.*\n?)*?)(?=^\w.*\n-+$|\Z)"  # of a docstring in NumPy style
FILLED = {"key", "inputs", "outputs", "image"}  # options that a recipe fills in from its data and seed


def _homes(source: str) -> dict[str, str]:
    """Return the names that a file imports as public names of its own (``import x as x``), and from where."""
    imports = [node for node in ast.walk(ast.parse(Path(source).read_bytes())) if isinstance(node, ast.ImportFrom)]
    return {one.name: str(node.module) for node in imports for one in node.names if one.asname}


def offered(source: str) -> list[str]:
    """Return ``__all__`` of a package, read from its file ``source``."""
    return sorted(_homes(source), key=lambda name: (not name[0].isupper(), name))


def offered_lazily(package: str, source: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports names only ``if TYPE_CHECKING``.

    These are read from the file ``source`` of the package, and each is imported when it is first used.
    """
    homes = _homes(source)

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    names = offered(source)
    return names, find, lambda: names


def listing() -> Listing:
    """Return the description of every member of every kind, from the cache if nothing has changed."""
    path = cache() / f"listing-{_digest()}.json"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    if sys.stderr.isatty():
        print("unlazy: reading all members once; this takes some seconds ...", file=sys.stderr)
    made = {}
    for kind, asked in KINDS.items():
        known = members(kind)  # panels and theorems keep the order of their papers
        made[kind] = {name: describe(kind, name, known[name]) for name in (known if asked.keyed else sorted(known))}
    if not _registry.warnings():  # the warning about a broken plug-in is needed every time
        with contextlib.suppress(OSError):  # if it cannot be written, it is made again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in path.parent.glob("listing-*.json"):
                old.unlink(missing_ok=True)
            replace(path, json.dumps(made, ensure_ascii=False).encode())
    return made


def _digest() -> str:
    found = hashlib.sha256(sys.version.encode())
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        found.update(f"{file}\n".encode() + file.read_bytes())
    for name in plugins():  # which are not imported
        found.update(name.encode())
        with contextlib.suppress(ImportError, ValueError, OSError):
            spec = importlib.util.find_spec(name.partition(".")[0])
            files = [Path(spec.origin)] if spec and spec.origin else []
            for folder in (spec and spec.submodule_search_locations) or ():
                files += sorted(Path(folder).rglob("*.py"))
            for path in files:
                status = path.stat()
                found.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()[:16]


# ---------------------------------------------------------------- one member


def describe(kind: str, name: str, member: Any) -> dict[str, Any]:
    """Describe a member: its summary, module and options.

    Parameters
    ----------
    kind
        A key of `unlazy._registry.KINDS`.
    name
        The name of the member.
    member
        The member, as `unlazy._registry.find` returns it.
    """
    made = inspect.isclass(member) or inspect.isroutine(member)
    doc = inspect.getdoc(member if made else type(member)) or ""
    module = getattr(member, "__module__", None) or type(member).__module__
    described = {
        "name": name,
        "summary": doc.partition("\n")[0] if made else repr(member),
        "module": module,
        "doc": doc,
        "options": _options(kind, member) if made else [],
    }
    if kind == "theorem":
        theorem = _registry.resolve(kind, member)
        fields = {field: getattr(theorem, field) for field in ("source", "statement", "feasible")}
        return described | {"summary": theorem.statement} | fields
    if kind == "panel":
        panel = _registry.resolve(kind, member)
        return described | {"summary": panel.title, "scales": dict(panel.scales), "options": []}
    return described


def _options(kind: str, member: Any) -> list[dict[str, str]]:
    parameters = list(_registry.parameters(member).values())
    if _registry.is_plain(kind, member):
        parameters = parameters[KINDS[kind].leading :]
    documented = _documented(member)
    return [
        {
            "name": one.name,
            "type": _type(one.annotation, member, one.name),
            "default": "required" if one.default is one.empty else _default(one.default),
            "doc": documented.get(one.name, ""),
        }
        for one in parameters
        if one.name not in FILLED and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]


def _type(annotation: Any, member: Any, name: str) -> str:
    if annotation in (inspect.Parameter.empty, Any, "Any") and inspect.isclass(member):
        for base in member.__mro__:  # a field with a converter
            if name in vars(base).get("__annotations__", {}):
                annotation = vars(base)["__annotations__"][name]
                break
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:typing\.)?Annotated\[(\w+), [^\]]*\]", r"\1", text)
    text = re.sub(r"\b(?:Count|Natural)\b", "int", text)  # numbers with bounds, see `unlazy._types`
    text = re.sub(r"\b(?:NotNegative|Positive|Share|OpenShare)\b", "float", text)
    return re.sub(r"\b(?:unlazy|typing|collections|jaxtyping|pathlib)(?:\.\w+)*\.(?=\w)", "", text)


def _default(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(repr(value).split()))


def _documented(member: Any) -> dict[str, str]:
    """Return the documentation of each argument, in sections of NumPy style or in lists of ```name``: text``."""
    found: dict[str, str] = {}
    places = [inspect.getdoc(sys.modules.get(member.__module__))]
    if inspect.isclass(member):
        places += [base.__doc__ and inspect.cleandoc(base.__doc__) for base in reversed(member.__mro__)]
        places.append(inspect.getdoc(member.__init__))
    else:
        places.append(inspect.getdoc(member))
    for text in filter(None, places):
        for names, said in re.findall(r"^- ((?:``\w+``(?:, )?)+): (.*(?:\n  .*)*)", text, flags=re.MULTILINE):
            found |= {name: " ".join(said.split()) for name in re.findall(r"\w+", names)}
        for section in re.findall(_SECTION, text, re.MULTILINE):
            for names, said in re.findall(r"^(\w[\w, ]*?)(?: *:.*)?\n((?: +.*\n?|\n)+)", section, flags=re.MULTILINE):
                found |= {name.strip(): " ".join(said.split()) for name in names.split(",")}
    return found


def describe_one(kind: str, name: str) -> dict[str, Any]:
    """Describe the member called ``name``, or ``package.module:Thing``."""
    if ":" in name:
        return describe(kind, name, find(kind, name))
    known = listing()[kind]
    found = known.get(name if KINDS[kind].keyed else kebab(name))
    if found is None:
        raise UserError(f"There is no {KINDS[kind].noun} called {short(name)}. {suggest(name, known)}")
    return found
