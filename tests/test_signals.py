"""Signals stop work between two pieces of it, none is lost, and a second one ends at once."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from unlazy import _signals
from unlazy._signals import check, deferred, exit_status, note_progress


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_noted_and_raised_between_two_pieces_of_work(number, status, capfd):
    with pytest.raises(KeyboardInterrupt), deferred():  # noqa: PT012
        check()
        os.kill(os.getpid(), number)
        while _signals._received is None:
            time.sleep(0.001)  # nothing is raised here
        check()
        pytest.fail("the signal was ignored")
    assert exit_status() == status
    assert "stopping after this piece of work" in capfd.readouterr().err
    check()  # the next command starts anew


def test_a_signal_that_nobody_asked_for_is_raised_at_the_end():
    with pytest.raises(KeyboardInterrupt), deferred():
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with deferred(), deferred():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


def test_another_thread_changes_nothing():
    seen = []

    def work():
        with deferred():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_progress_is_printed(capfd):
    with deferred():
        note_progress("'tiny', 25% done.")
        os.kill(os.getpid(), signal.SIGUSR1)
        deadline, err = time.monotonic() + 10, ""
        while "25% done" not in err and time.monotonic() < deadline:
            err += capfd.readouterr().err
    assert "unlazy: 'tiny', 25% done." in err


def test_a_second_signal_ends_at_once_whatever_the_process_is_doing():
    # Sorting takes minutes, and Python runs no handler meanwhile.
    busy = "list(range(10**6)).sort(key=lambda i: [*range(1000)])"
    code = f"from unlazy._signals import deferred\nwith deferred():\n    print('go', flush=True)\n    {busy}\n"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "go\n"
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    assert "ended at once" in err


def test_an_exception_raised_in_garbage_collection_cannot_swallow_it():
    """The handler of Python raises KeyboardInterrupt anywhere, also where exceptions are ignored; this one does not."""

    class Dear:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    with pytest.raises(KeyboardInterrupt), deferred():  # noqa: PT012
        del (dear := [Dear()])[0]
        assert dear == []
        while _signals._received is None:
            time.sleep(0.001)
        check()
