"""The command line. Heavy libraries are imported inside the commands, so that help is printed at once."""

import contextlib
import gc
import sys
from pathlib import Path
from typing import NoReturn

import cyclopts

from unlazy._compilation import GARBAGE
from unlazy._errors import UserError, first_line
from unlazy._signals import exit_status
from unlazy.cli import (  # noqa: F401  modules that add commands
    application,
    diagnosing,
    experiments,
    listing,
    results,
    sweeping,
)
from unlazy.cli.application import BAD_CALL, BROKEN, OK, app

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Bad input ends with one sentence and exit status 2; --debug gives a traceback."""
    gc.set_threshold(GARBAGE)
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        application.search(Path.cwd())
        with application.printed_notices():
            status = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except BrokenPipeError:  # say, piped into head
        sys.stdout = None
        sys.exit(OK)
    except KeyboardInterrupt as stop:
        _end(str(stop) or "Interrupted.", exit_status())
    except Exception as error:
        if debug:
            raise
        if isinstance(error, UserError):
            _end(f"unlazy: {error}", BAD_CALL)
        if isinstance(error, cyclopts.CycloptsError):
            _end(f"unlazy: {error} Try --help.", BAD_CALL)
        if isinstance(error, MemoryError) or type(error).__name__ == "JaxRuntimeError":  # without importing JAX
            advice = "it may need more memory than there is. Take fewer samples, inputs, neurons or seeds"
            _end(f"unlazy: this cannot be computed here ({first_line(error)}): {advice}.", BAD_CALL)
        unexpected = f"an unexpected error occurred ({type(error).__name__}: {error})"
        _end(f"unlazy: {unexpected}. Add --debug to see where.", BROKEN)
    sys.exit(status or OK)


def _end(sentence: str, status: int) -> NoReturn:
    """Print a sentence on one line, unless there is no room for it, and exit."""
    with contextlib.suppress(OSError):  # on a full disk
        application.screen.print(" ".join(sentence.split()), markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)
