"""Shared by all commands: the application, exit statuses, and a lab that shows its progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cyclopts
from rich.console import Console

import unlazy
from unlazy._errors import Notice, UserError
from unlazy._signals import deferred

if TYPE_CHECKING:
    from unlazy.lab import Lab

app = cyclopts.App(
    name="unlazy",
    version=lambda: unlazy.__version__,
    help=(
        "Study how neural networks learn features: train networks, reproduce figures of papers, check their claims.\n\n"
        "A recipe is an experiment in a TOML file: `unlazy list` shows what it can name, and `unlazy run FILE.toml` "
        "runs it. A panel is a figure of a paper, with claims that are checked: `unlazy panels` lists them, and "
        "`unlazy demo` runs one of each paper. `unlazy diagnose` examines a model of your own.\n\n"
        "Results are stored in the folder `runs` and never computed twice. Ctrl-C (or SIGTERM) interrupts a command, "
        "and the same command continues where it stopped; a second Ctrl-C ends it at once. SIGUSR1 prints the "
        "progress. The exit status is 1 if a claim does not hold, a theorem fails or a run ends early, and 2 for bad "
        "input. Add --debug to any command for a full traceback."
    ),
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # `main` prints the message of an interrupted run
)

OK, CLAIM_FAILED, BAD_CALL, BROKEN = 0, 1, 2, 3
interruptible = deferred()  # a command so decorated stops on signals between two pieces of work, with its state saved
screen = Console(stderr=True)  # progress and errors; standard output carries results only


def begin() -> None:
    """Compute in 64 bits, and store compiled code for other commands."""
    import jax

    from unlazy._compilation import use_cache

    jax.config.update("jax_enable_x64", True)
    use_cache()


def must_exist(recipe: Path) -> None:
    """Raise a `UserError` if a recipe does not exist; let it name modules in its folder if it does."""
    if not recipe.is_file():  # before the libraries are loaded
        raise UserError(f"There is no recipe at '{recipe}': give the path of a TOML file.")
    search(recipe.parent)


def search(folder: Path) -> None:
    """Add a folder to the end of the path for imports."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)
        invalidate_caches()


@contextmanager
def printed_notices() -> Iterator[None]:
    """Print a line for each `Notice` that is given as a warning."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def say(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, Notice):
                screen.print(f"unlazy: {message}", markup=False, highlight=False, soft_wrap=True)
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = say
        warnings.simplefilter("default", Notice)
        yield


@contextmanager
def in_lab(out: Path, fresh: bool, **settings: Any) -> Iterator[Lab]:
    """Yield a lab that shows its progress."""
    from unlazy.lab import Lab
    from unlazy.report.terminal import progress_display

    with progress_display(screen) as display:
        yield Lab(out, display, fresh, **settings)
