"""Recipes are changed at random: each must run, or be refused in one sentence, in bounded time and memory."""

import contextlib
import io
import random
from collections import Counter

import tomli_w
from forked import GIB, STATUSES, Patient

import unlazy.lab.work as work
from unlazy.cli import main

MOST = 500  # recipes in one process
SECONDS = 30.0  # of computing for one recipe, after which it is stopped as by Ctrl-C
MEMORY = 12 * GIB  # of address space, of which JAX takes several for itself
LONGEST = 1500  # characters of a sentence
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


# "stopped": a run that takes long, and that Ctrl-C ended; "ended early": with a status such as "not finite".
OUTCOMES = {0: "ran", 1: "ended early", 2: "refused", 130: "stopped", 143: "stopped"}
GOOD = {*OUTCOMES.values(), "would run", "process stopped"}  # the last: by a second Ctrl-C, in one long piece of work
DRIVE = work.Worker._drive


class Reached(Exception):
    """Training would begin now."""


def recipes(numbers, seed, place):
    """Run a changed recipe for each of the numbers; return the row of the table, and what went wrong."""

    def trial(number):
        chance = random.Random(f"{seed} {number}")
        return _trial(_mutate(chance), chance.random() < REALLY_RUN, place / "at.toml")

    total, wrong, patient = Counter(), [], Patient(trial, place, SECONDS, MOST, MEMORY)
    for number, found in patient.run(numbers):
        if isinstance(found, str):
            text = _mutate(random.Random(f"{seed} {number}"))
            found = " ".join(found.split()[:2]), f"{found} | {text[:600]!r}"
        outcome, words = found
        total[outcome] += 1
        if outcome not in GOOD:
            wrong.append(f"recipe {number}: {outcome}: {words}")
    wrong += patient.tracebacks
    return [{"what": "mutated recipes", "trials": total.total()} | dict(total) | {"peak MiB": patient.peak}], wrong


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


def _trial(text, really, at):
    """Run a recipe in this process; return what came of it, and words if it should not be."""
    with contextlib.suppress(UnicodeEncodeError):
        at.write_text(text, encoding="utf-8")
    work.Worker._drive = DRIVE if really else _stop
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), _errors(said):
            main(["run", str(at), "-o", "runs"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException as error:
        return "traceback", f"{error!r} {text[:300]}"
    shown = " ".join(said.getvalue().split())
    if "Reached" in shown:
        return "would run", ""
    if status not in STATUSES or "Traceback" in shown:
        return f"status {status}", f"{shown[:400]} | {text[:400]!r}"
    if status == 2 and not (shown.startswith("unlazy: ") and shown.endswith((".", "?")) and len(shown) < LONGEST):
        return "no sentence", f"{shown[:400]} | {text[:400]!r}"
    return OUTCOMES[status], ""


def _stop(*_):
    raise Reached


@contextlib.contextmanager
def _errors(said):
    """Let the command print its sentences into ``said``."""
    from unlazy.cli import application

    before, application.screen.file = application.screen.file, said
    try:
        yield
    finally:
        application.screen.file = before
