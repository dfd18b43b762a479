"""Bits, bytes, ends and stretches of stored files are changed: every change must be noticed or have no effect."""

import os
import random
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import jax
import numpy as np
from forked import Kill, Limits, Patient, bits, command, recipe

from unlazy._errors import UserError
from unlazy.flows import read_checkpoint
from unlazy.lab import Manifest, read_run, tracks
from unlazy.lab.certificates import read_certificates
from unlazy.lab.identity import identify
from unlazy.lab.recipe import instantiate, read
from unlazy.report.diagnoses import read_diagnosis
from unlazy.report.record import read_record

MOST = 400  # trials in one process
SECONDS = 60.0  # of computing for one trial
# The kinds of files that commands read, and have to name if they are damaged.
SEEN = {
    "report": {"run", "certificates", "record", "figure", "diagnosis", "sweep"},
    "watch": {"run", "checkpoint"},
    "cite": {"run", "record"},
    "verify": {"run", "track", "checkpoint", "certificates", "record", "figure", "diagnosis", "sweep"},
    "run": {"run"},
    "panels": {"record"},
    "reproduce": set(),
}
SHARE_OF_COMMANDS = 0.02  # of the trials are seen by commands too, which takes longer


def damages(numbers, seed, place):
    """Damage a file for each of the numbers; return rows of the table, and what went wrong."""
    sys.path.append(str(Path(__file__).parent))
    wrong, tallies = [], {}
    kinds = _prepare(place, wrong)
    if not kinds:
        return [], wrong
    originals = {}  # what is read from whole files, once in each process

    def trial(number):
        if not originals:
            originals.update({kind: (path.read_bytes(), read(path)) for kind, (path, read) in kinds.items()})
        return _trial(kinds, originals, random.Random(f"{seed} {number}"))

    whole = {kind: path.read_bytes() for kind, (path, _) in kinds.items()}
    patient = Patient(trial, place, SECONDS, MOST)
    for number, found in patient.run(numbers):
        if isinstance(found, str):  # the process has ended: name the file, and make it whole again
            kind = next((kind for kind, (path, _) in kinds.items() if path.read_bytes() != whole[kind]), "data")
            found = (kind, "crash", f"trial {number}: {found}")
            kinds[kind][0].write_bytes(whole[kind])
        kind, outcome, words = found
        tallies.setdefault(kind, Counter())[outcome] += 1
        if outcome in ("silently wrong", "crash"):
            wrong.append(f"{kind}: {outcome}: {words}")
    rows = [{"what": kind, "trials": tallies[kind].total()} | dict(tallies[kind]) for kind in sorted(tallies)]
    commands = max(3, int(len(numbers) * SHARE_OF_COMMANDS))
    rows.append(_commands(kinds, random.Random(f"{seed} {numbers.start}"), commands, place, wrong))
    return [row | {"peak MiB": patient.peak} for row in rows[:1]] + rows[1:], wrong


def _prepare(place, wrong):
    """Make a folder with one file of each kind; return, for each, the file and a function that reads all of it."""
    limits = Limits()
    recipe(place)
    (place / "data.csv").write_text("\n".join(f"{i},{i * i % 7},{i % 2}" for i in range(8)))
    own = place / "own.toml"
    text = (place / "tiny.toml").read_text().replace('"tiny"', '"own"')
    own.write_text(text.replace('{ kind = "random-labels", n = 8, d = 4 }', '{ kind = "csv", path = "data.csv" }'))
    for arguments in (
        ["run", place / "tiny.toml", "-o", "runs"],
        ["certify", place / "tiny.toml", "--theorem", "chen2022", "-o", "runs"],
        ["reproduce", "tiny_panel:fig1", "-o", "runs"],
        ["diagnose", "tiny_model:make", "--data", "random-labels", "--samples", "8", "--widths", "8,16", "-o", "runs"],
    ):
        ended = command(arguments, place, limits)
        if ended.status not in (0, 1):
            wrong.append(f"{arguments[0]} ended with {ended.status}: {ended.output[-800:]}")
            return {}
    recipe(place, "long", end=400_000.0)
    delay = 4.0  # until it is under way
    while not list(place.glob("runs/long-*.checkpoint")) and delay < 100.0:
        command(["run", place / "long.toml", "-o", "runs"], place, limits, Kill(signal.SIGTERM, delay=delay))
        delay *= 1.5
    sweep = place / "sweep.toml"
    sweep.write_text(recipe(place, "swept", end=1.0).read_text() + "\n[sweep]\nseed = [0, 1]\n")
    command(["sweep", sweep, "-o", "runs"], place, limits)
    runs = place / "runs"
    one = {
        kind: next(iter(sorted(runs.glob(pattern))), None)
        for kind, pattern in (
            ("run", "tiny-*.nc"),
            ("track", "trajectories/*.npz"),
            ("checkpoint", "*.checkpoint"),
            ("certificates", "certificates/*.json"),
            ("record", "panels/*.json"),
            ("figure", "panels/*.svg"),
            ("diagnosis", "diagnoses/*.json"),
            ("sweep", "*.sweep.json"),
        )
    }
    missing = [kind for kind, path in one.items() if path is None]
    if missing:
        wrong.append(f"there is no {', '.join(missing)}")
    readers = {
        "run": _run,
        "track": _track,
        "checkpoint": lambda path: (lambda head, rest: (head, rest.read()))(*read_checkpoint(path)),
        "certificates": read_certificates,
        "record": read_record,
        "figure": lambda path: read_record(path.with_suffix(".json")),
        "diagnosis": read_diagnosis,
        "sweep": Manifest.read,
    }
    found = {kind: (path, readers[kind]) for kind, path in one.items() if path is not None}
    return found | {"data": (place / "data.csv", lambda path: (identify(read(own)).trajectories, _data(read(own))))}


def _data(recipe):
    """Return the data of a recipe that a run would be trained on."""
    with jax.enable_x64(True):
        data = instantiate(recipe, recipe.all_seeds).data[0]
    return [(str(one.dtype), one.shape, np.asarray(one).tobytes()) for one in jax.tree.leaves(data)]


def _run(path):
    run = read_run(path)
    arrays = {str(name): (one.dtype.str, one.shape, one.values.tobytes()) for name, one in run.variables.items()}
    return arrays, repr(sorted(run.attrs.items()))


def _track(path):
    track = tracks.load(path)
    leaves = [tracks.leaves_of(track, some) for some in (*track.snapshots.values(), track.state)]
    whole = [[one.tobytes() for one in some] for some in leaves]
    observed = {
        name: {
            index: {part: (one.dtype.str, one.shape, one.tobytes()) for part, one in parts.items()}
            for index, parts in some.items()
        }
        for name, some in track.observed.items()
    }
    return (
        whole,
        observed,
        track.snapshots.keys(),
        track.asked.tobytes(),
        track.reached.tobytes(),
        track.counters,
        track.status,
    )


def _damage(whole, chance):
    """Return the contents of a file after an accident, and its name."""
    data, kind = bytearray(whole), chance.choice(("bit", "byte", "cut", "zeros", "noise", "twice", "empty"))
    if kind == "bit":
        place = chance.randrange(len(data))
        data[place] ^= 1 << chance.randrange(8)
    elif kind == "byte":
        data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == "cut":
        del data[chance.randrange(len(data)) :]
    elif kind in ("zeros", "noise"):
        size = chance.choice((1, 4, 16, 512, 4096))
        first = chance.randrange(len(data))
        size = min(size, len(data) - first)
        data[first : first + size] = bytes(size) if kind == "zeros" else chance.randbytes(size)
    elif kind == "twice":
        first = chance.randrange(len(data))
        data[first:first] = data[first : first + chance.choice((1, 8, 512))]
    else:
        data = bytearray()
    return bytes(data), kind


def _trial(kinds, originals, chance):
    """Damage one file, read it and make it whole again; return the kind, the outcome and words."""
    kind = chance.choice(sorted(kinds))
    path, reader = kinds[kind]
    whole, value = originals[kind]
    data, how = _damage(whole, chance)
    path.write_bytes(data)
    try:
        seen = reader(path)
        if kind == "data":  # changed numbers are other data: what was stored for the old ones is not asked for any more
            same = [one == other for one, other in zip(seen, value, strict=True)]
            return kind, "noticed" if not same[0] else "no effect" if same[1] else "silently wrong", how
        return kind, "no effect" if seen == value else "silently wrong", how
    except UserError as error:
        if path.name.partition(".")[0].partition("-")[0] in str(error):
            return kind, "noticed", how
        return kind, "crash", f"{how}: does not name the file: {error}"
    except Exception as error:
        noticed = kind == "checkpoint" and isinstance(error, ValueError)
        return kind, "noticed" if noticed else "crash", f"{how}: {error!r}"
    finally:
        path.write_bytes(whole)


def _commands(kinds, chance, count, place, wrong):
    """Let commands see damaged files: they name them and go on, or end with a sentence."""
    tally = Counter()
    calls = (
        ["report", "runs", "--to", "report.html"],
        ["watch", "runs", "--json"],
        ["cite", "runs"],
        ["verify", "runs"],
        ["run", "tiny.toml", "-o", "runs"],
        ["panels", "-o", "runs"],
        ["reproduce", "tiny_panel:fig1", "-o", "runs"],
    )
    expected = bits(place / "runs")
    for _ in range(count):
        kind = chance.choice(sorted(set(kinds) - {"data"}))
        path, reader = kinds[kind]
        copy = place / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place / "runs", copy / "runs")
        shutil.copy(place / "tiny.toml", copy)
        target = copy / "runs" / path.relative_to(place / "runs")
        target.write_bytes(_damage(path.read_bytes(), chance)[0])
        try:
            damaged = reader(target) is None
        except (UserError, ValueError):
            damaged = True
        arguments = chance.choice(calls)
        ended = command(arguments, copy, Limits())
        tally["trials"] += 1
        allowed = {0, 1, 2} if arguments[0] in ("run", "reproduce", "verify") else {0, 1}
        named = target.name.partition(".")[0].partition("-")[0] in ended.output
        why = ""
        if ended.status not in allowed or ended.traceback or ended.hung:
            why = f"status {ended.status}"
        elif damaged and not named and kind in SEEN[arguments[0]]:
            why = "not named"
        elif arguments[0] == "verify" and (ended.status == 1) != damaged:
            why = f"status {ended.status}, although it is {'damaged' if damaged else 'whole'}"
        elif (
            arguments[0] in ("run", "reproduce")
            and ended.status == 0
            and not damaged
            and bits(copy / "runs") != expected
        ):
            why = "other bits"
        tally["crash" if why else "noticed" if damaged and named else "no effect"] += 1
        if why:
            wrong.append(f"{arguments[0]} beside a damaged {kind}: {why}: {ended.output[-500:]}")
    os.chdir(place)
    return {"what": "seen by commands"} | dict(tally)
