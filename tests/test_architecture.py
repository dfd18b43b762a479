"""The shape of the house: imports point down, starting is light, everything public is explained and reachable."""

import ast
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import unlazy

ROOT = Path(__file__).parents[1]
SOURCE = Path(unlazy.__file__).parent
HEAVY = {"jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "matplotlib", "xarray", "h5netcdf", "pandas"}


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def all_modules():
    return [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(unlazy.__path__, "unlazy.")
        if not module.name.endswith("__main__")
    ]


def test_imports_point_down_only():
    from importlinter import api

    assert api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"], "no contract to check"
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_every_room_stands_in_the_import_contract():
    from importlinter import api

    (contract,) = api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"]
    named = {part.strip() for layer in contract["layers"] for part in layer.split("|")}
    assert {f"unlazy.{module.name}" for module in pkgutil.iter_modules(unlazy.__path__)} == named


@pytest.mark.parametrize("statement", ["import unlazy", "import unlazy.cli"])
def test_starting_is_light(statement):
    done = python(f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})")
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(done.stdout.split())


def test_help_is_light_too():
    code = "import sys, unlazy.cli\ntry: unlazy.cli.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    done = python(code)
    assert "Usage" in done.stdout, done.stderr
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


def test_all_public_names_resolve():
    assert unlazy.__all__ == sorted(unlazy.__all__, key=lambda name: (not name[0].isupper(), name))
    assert len(set(unlazy.__all__)) == len(unlazy.__all__)
    for name in unlazy.__all__:
        assert getattr(unlazy, name) is not None
    assert set(dir(unlazy)) == {*unlazy.__all__, "__version__"}


def test_homes_are_where_names_live():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names if alias.asname}
    assert set(homes) == set(unlazy.__all__)
    for name, home in homes.items():
        room = importlib.import_module(home)
        assert name in getattr(room, "__all__", vars(room)), f"{home} does not offer {name}"


def test_every_room_is_on_the_tour():
    rooms = {module.name for module in pkgutil.iter_modules(unlazy.__path__) if not module.name.startswith("_")}
    assert {name for name in unlazy.__all__ if inspect.ismodule(getattr(unlazy, name))} == rooms - {"cli"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'unlazy' has no attribute 'nope'"):
        unlazy.nope  # noqa: B018
    assert not hasattr(unlazy, "numpy")


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert unlazy.__version__ == version("unlazy")


def test_everything_public_is_explained():
    silent = []
    for module in all_modules():
        if not module.__doc__:
            silent.append(module.__name__)
        for name, member in vars(module).items():
            if name.startswith("_") or getattr(member, "__module__", None) != module.__name__:
                continue
            if not (inspect.isclass(member) or inspect.isfunction(member)):
                continue
            if not own_doc(member):
                silent.append(f"{module.__name__}.{name}")
            if inspect.isclass(member):
                silent += [f"{module.__name__}.{name}.{method}" for method in silent_methods(member)]
    assert not silent


def own_doc(member):
    """A docstring that someone wrote: a dataclass or a struct makes one of its signature."""
    text = member.__dict__.get("__doc__") if inspect.isclass(member) else inspect.unwrap(member).__doc__
    return text and not text.startswith(f"{member.__name__}(")


def silent_methods(kind):
    """Public methods and properties without a docstring, their own or one that they inherit from a base class."""
    for name, method in vars(kind).items():
        method = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
        if not name.startswith("_") and inspect.isfunction(method) and not inspect.getdoc(getattr(kind, name)):
            yield name


def test_each_room_says_what_it_offers():
    for module in pkgutil.iter_modules(unlazy.__path__, "unlazy."):
        if not module.ispkg:
            continue
        room = importlib.import_module(module.name)
        assert len(set(room.__all__)) == len(room.__all__) > 0
        assert set(room.__all__) <= set(dir(room)), f"{module.name}: completion and the reference list what `dir` does"
        for name in room.__all__:
            assert hasattr(room, name), f"{module.name}.{name}"


@pytest.mark.parametrize("paper", ["aiad2026", "caron2023", "chen2022", "ren2023", "zhou2023"])
def test_no_theorem_is_hidden_by_a_module_of_the_same_name(paper):
    theorems = importlib.import_module(f"unlazy.papers.{paper}.theorems")
    assert set(theorems.__all__) <= set(dir(theorems))
    assert not {module.name for module in pkgutil.iter_modules(theorems.__path__)} & set(theorems.__all__)
    for name in theorems.__all__:
        assert hasattr(theorems, name), name


def test_no_file_is_too_long_to_read():
    lengths = {path.relative_to(SOURCE): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert not {path: lines for path, lines in lengths.items() if lines > 400}


def test_slow_tests_exist():
    """A renamed test must not stay in the list under its old name."""
    names = (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()
    for name in names:
        file, function = name.partition("[")[0].split("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), (
            f"{name} in tests/slow.txt is not a test"
        )
    assert names == sorted(set(names))


def test_every_package_that_is_imported_is_declared():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [table["dependencies"], *table["optional-dependencies"].values()]
    declared = {re.match(r"[\w.-]+", one)[0].lower().replace("_", "-") for group in groups for one in group}
    distributions = importlib.metadata.packages_distributions()
    elsewhere = {"IPython"}  # imported where it runs already
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            from_module = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in [one.name for one in node.names] if isinstance(node, ast.Import) else from_module:
                package = name.partition(".")[0]
                known = {one.lower().replace("_", "-") for one in distributions.get(package, [package])}
                fine = package in sys.stdlib_module_names or package in elsewhere or known & declared
                assert fine, f"{path.name} imports {package}, which pyproject.toml does not declare"


def test_the_page_on_architecture_is_true():
    """A walk of fewer than 30 steps, through files that exist; a row for every package, and its order of imports."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.partition("## One sample")[2].partition("\n## ")[0]
    steps = [int(number) for number in re.findall(r"^(\d+)\. ", walk, re.MULTILINE)]
    assert steps == list(range(1, len(steps) + 1))
    assert 20 < len(steps) < 30
    named = re.findall(r"`(\w+(?:/\w+)*(?:/|\.py))`", page)
    assert len(named) > 30
    missing = [name for name in named if not ((SOURCE / name).exists() or (ROOT / name).exists())]
    assert not missing, f"docs/architecture.md names files that are not there: {missing}"

    table = page.partition("## Packages")[2].partition("Imports point")[0]
    public = {module.name for module in pkgutil.iter_modules(unlazy.__path__) if not module.name.startswith("_")}
    assert {name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`(\w+(?:/|\.py))`", table)} == public

    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [one.removeprefix("unlazy.") for layer in contract["layers"] for one in layer.split(" | ")]
    order = re.findall(r"`(\w+)`", page.partition("Imports point")[2].partition("`make lint`")[0])
    assert order == [name for name in layers if name in public and name != "testing"]
