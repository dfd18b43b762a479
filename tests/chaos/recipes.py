"""Recipes are changed at random: each must run, or be refused in one sentence, in bounded time and memory."""

import contextlib
import io
import os
import random
import signal
import sys
from collections import Counter

import tomli_w
from forked import GIB, STATUSES, Limits, finish, start

import unlazy.lab.work as work
from unlazy.cli import main

BATCH = 250  # recipes in one process
SECONDS = 60  # of computing for one recipe
MEMORY = 12 * GIB  # of address space, of which JAX takes several for itself
REALLY_RUN = 0.03  # of the recipes; the others stop where training would begin

BASES = (
    {"network": {"kind": "two-layer", "width": 8}, "flow": {"kind": "descent", "rate": 0.1}},
    {
        "network": {"kind": "two-layer", "width": 8, "scaling": "mean-field", "activation": "tanh"},
        "flow": "gradient-flow",
    },
    {
        "network": {"kind": "two-layer", "width": 6},
        "flow": {"kind": "descent", "rate": 0.1, "optimiser": "adam", "batch": 3},
    },
    {
        "network": {"kind": "two-layer", "width": 8, "activation": {"kind": "leaky-relu", "slope": 0.1}},
        "flow": {"kind": "descent", "rate": 0.1, "loss": {"kind": "squared", "reduction": "mean"}},
        "dtype": "float32",
    },
    {"network": {"kind": "two-layer", "width": 8}, "flow": {"kind": "linearised"}, "seeds": 2},
)
COMMON = {
    "name": "mutant",
    "seeds": 1,
    "data": {"kind": "random-labels", "n": 5, "d": 3},
    "times": {"end": 2.0, "count": 5},
    "probes": ["train-loss", {"kind": "weight-movement", "when": "end"}, "kernel"],
}
VALUES = (
    0,
    1,
    -1,
    2,
    0.5,
    -0.0,
    1e-9,
    1e9,
    1e308,
    5e-324,
    float("inf"),
    float("-inf"),
    float("nan"),
    2**31,
    2**32,
    2**63 - 1,
    -(2**63),
    10**7,
    3 * 10**7,
    True,
    False,
    "",
    "adam",
    "two-layer",
    "descent",
    "../../etc/passwd",
    "os:system",
    "nope:Nope",
    "a" * 5000,
    "\u202e\u0000"[:1],
    "é",
    [],
    [[]],
    [1, 2, 3],
    [0.0, 1e9],
    ["train-loss"],
    {},
    {"kind": "relu"},
    {"kind": "train-loss", "as": "seed"},
    {"kind": 3},
    {"end": 1.0, "count": 2**32},
    {"end": 1.0, "count": 3, "spacing": "log"},
)
NAMES = (
    "kind",
    "n",
    "d",
    "width",
    "rate",
    "batch",
    "seed",
    "seeds",
    "loss",
    "activation",
    "scaling",
    "end",
    "count",
    "first",
    "as",
    "when",
    "tolerance",
    "optimiser",
    "schedule",
    "readout",
    "bias",
    "memory",
    "",
    "x" * 300,
    "Ω",
)


class Reached(Exception):
    """Training would begin now."""


def recipes(count, seed, place):
    """Run ``count`` changed recipes; return rows of the table, and what went wrong."""
    total, wrong, done, peak = Counter(), [], 0, 0
    while done < count:
        size = min(BATCH, count - done)
        share = place / "tally"
        share.unlink(missing_ok=True)
        at = place / "at.toml"

        def batch(told=f"{seed} {done}", size=size, share=share, at=at):
            _batch(random.Random(told), size, share, at)

        ended = finish(start(batch, place, Limits(memory=MEMORY)), Limits(seconds=BATCH * SECONDS))
        lines = share.read_text().splitlines() if share.exists() else []
        for line in lines:
            outcome, _, words = line.partition("|")
            total[outcome] += 1
            if outcome not in ("ran", "would run", "refused", "ended early"):
                wrong.append(f"{outcome}: {words}")
        if ended.status != 0:
            total["process ended"] += 1
            wrong.append(f"a process ended with {ended.status} at\n{at.read_text()[:600]}\n{ended.output[-500:]}")
            done += len(lines) + 1
        else:
            done += size
            peak = max(peak, int(ended.output.rsplit("PEAK", 1)[-1].split()[0]))
    return [{"what": "mutated recipes", "trials": done} | dict(total) | {"peak MiB": peak // 1024}], wrong


def _mutate(chance):
    """Return a recipe as TOML text, changed a little or a lot."""
    if chance.random() < 0.02:
        bracket, depth = chance.choice(("[", "{a=", "a.")), chance.choice((200, 1000, 3000, 100_000))
        return f"{'a = ' if bracket != 'a.' else ''}{bracket * depth}" + ("b = 1" if bracket == "a." else "")
    table = _copied(COMMON | chance.choice(BASES))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holders = [one for one in _holders(table) if one]
        holder = chance.choice(holders)
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match chance.randrange(6):
            case 0 | 1 | 2:
                holder[key] = _copied(chance.choice(VALUES))
            case 3:
                del holder[key]
            case 4 if isinstance(holder, dict):
                holder[chance.choice(NAMES)] = _copied(chance.choice(VALUES))
            case 5 if isinstance(holder, dict):
                holder[chance.choice(NAMES)] = holder.pop(key)
    text = tomli_w.dumps(table)
    if chance.random() < 0.15:  # an accident of typing
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(text) or 1)
            text = (
                text[:place]
                + chance.choice(("", "=", '"', "[", "\n", "9", "\x00", "é", text[place:]))
                + text[place + 1 :]
            )
    return text


def _copied(value):
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def _holders(value):
    if isinstance(value, dict | list):
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from _holders(one)


def _batch(chance, size, share, at):
    """Run recipes in this process, and write a line for each."""
    import resource

    drive = work.Worker._drive

    def stop(*given):
        raise Reached

    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGPROF, late)
    with open(share, "w") as tally:
        for _ in range(size):
            text, really = _mutate(chance), chance.random() < REALLY_RUN
            with contextlib.suppress(UnicodeEncodeError):
                at.write_text(text, encoding="utf-8")
            work.Worker._drive = drive if really else stop
            said = io.StringIO()
            outcome = words = ""
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of computing, however busy the machine is
            try:
                with contextlib.redirect_stdout(said), _errors(said):
                    main(["run", str(at), "-o", "runs"])
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0
                shown = " ".join(said.getvalue().split())
                if "Reached" in shown:
                    outcome = "would run"
                elif "TimeoutError" in shown:
                    outcome, words = "hung", text[:400]
                elif status == 0:
                    outcome = "ran"
                elif status in STATUSES and "Traceback" not in shown:
                    outcome = "refused" if status == 2 else "ended early"
                else:
                    outcome, words = f"status {status}", f"{shown[:400]} | {text[:400]!r}"
            except TimeoutError:
                outcome, words = "hung", text[:400]
            except BaseException as error:
                outcome, words = "traceback", f"{error!r} {text[:300]}"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            tally.write(f"{outcome}|{words!r}\n")
            tally.flush()
    os.write(1, f"PEAK {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n".encode())
    sys.stdout.flush()


@contextlib.contextmanager
def _errors(said):
    """Let the command print its sentences into ``said``."""
    from unlazy.cli import application

    before, application.screen.file = application.screen.file, said
    try:
        yield
    finally:
        application.screen.file = before
