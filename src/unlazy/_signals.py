"""Signals: Ctrl-C and SIGTERM ask a command to stop between two pieces of work, and SIGUSR1 asks for its progress.

A handler that raises an exception is not enough. Python runs handlers between two of its own instructions only, which
is late while a library compiles or computes, and an exception that is raised during garbage collection is lost. So
the handlers here do nothing: a thread reads the numbers of signals from a pipe as they arrive, and `check`, which is
called between two pieces of work, raises the exception.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

_STOP = (signal.SIGINT, signal.SIGTERM)
_PROGRESS = getattr(signal, "SIGUSR1", None)
_received: int | None = None  # the first signal that asked to stop
_progress = ""
_active = False


@contextlib.contextmanager
def deferred(impatient: bool = True) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM only be noted during the block; `check` raises KeyboardInterrupt after one of them.

    A signal that no call of `check` has seen is raised at the end of the block, so none is ever lost. Outside the main
    thread, where Python allows no handlers, and inside another such block, nothing is changed.

    Parameters
    ----------
    impatient
        Whether a second signal ends the process at once, whatever it is doing.
    """
    global _received, _progress, _active
    if _active or threading.current_thread() is not threading.main_thread():
        yield
        return
    _received, _progress, _active = None, "", True
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    wanted = [*_STOP, *([] if _PROGRESS is None else [_PROGRESS])]
    previous_sink = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    previous = {number: signal.signal(number, lambda *_: None) for number in wanted}
    reader = threading.Thread(target=_listen, args=(source, impatient), daemon=True)
    reader.start()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(previous_sink)
        os.close(sink)
        reader.join()  # all that arrived has been read
        os.close(source)
        _active = False
    if _received is not None:
        raise KeyboardInterrupt


def _listen(source: int, impatient: bool) -> None:
    """Read the numbers of signals as they arrive, until the pipe is closed."""
    global _received
    while numbers := os.read(source, 64):
        for number in numbers:
            if number == _PROGRESS:
                _say(_progress or "nothing has been computed yet.")
            elif number in _STOP and _received is None:
                _received = number
                if impatient:
                    _say("stopping after this piece of work; a second signal ends at once.")
            elif number in _STOP and impatient:
                _say("ended at once.")
                os._exit(128 + number)


def _say(sentence: str) -> None:
    """Write a line to standard error, past all buffers; show the cursor again, which progress bars hide."""
    with contextlib.suppress(OSError, ValueError):
        show = "\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""
        os.write(2, f"{show}unlazy: {sentence}\n".encode())


def check() -> None:
    """Raise KeyboardInterrupt if a signal has asked to stop; outside of `deferred`, Python raises it by itself."""
    if _active and _received is not None:
        raise KeyboardInterrupt


def note_progress(sentence: str) -> None:
    """Note what SIGUSR1 prints."""
    global _progress
    _progress = sentence


def exit_status() -> int:
    """Return the exit status of an interrupted command: 143 after SIGTERM, and 130 otherwise."""
    return 128 + (signal.SIGINT if _received is None else _received)
