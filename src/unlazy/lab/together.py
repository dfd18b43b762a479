"""Run recipes of one shape together: one compiled call trains the seeds of all of them.

Recipes can share a call if their networks, data, methods and probes differ only in numbers. Every recipe keeps its own
tracks, status, counters and checkpoint, and can be continued alone or among others. A run that shares a call has the
same bits whichever runs it shares it with; alone, sums may be rounded in another order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from unlazy._errors import FullDiskError, UserError
from unlazy.flows import Driver, Method, read_checkpoint
from unlazy.flows._compiled import fits_vmap
from unlazy.flows.checkpoints import Checkpoint, load_several
from unlazy.flows.stops import stops_of
from unlazy.flows.trajectory import only_at_end
from unlazy.lab import claims
from unlazy.lab.identity import Identity, identify
from unlazy.lab.live import Live
from unlazy.lab.recipe import Experiment, Recipe, instantiate
from unlazy.lab.work import Plan, Worker, set_snapshots
from unlazy.networks import traced_numbers

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

Outcomes = dict[str, "UserError | bool"]  # by digest: an error, whether it is stored, or False for "try again later"

MOST_ROWS = 64  # beyond, one call is hardly faster than two, and waits longer for the slowest of its runs
_LEAST_ROWS = 4  # below, a call is hardly faster than runs one after another
_MOST_BYTES = 2**26  # of networks, data and kernels in one call
_SIZES = (2, 4, 8, 16, 24, 32, 48, 64)  # numbers of rows: few, so that few calls are compiled
_APART = 4.0  # runs of which one has this many times as far to go as another do not share a call
_TELL_SECONDS = 0.1


@dataclasses.dataclass
class Member:
    """One recipe among those that run together."""

    recipe: Recipe
    identity: Identity
    worker: Worker
    experiment: Experiment
    methods: list[Method]
    amount: float  # how far it has to go, in units of `State.remaining`
    live: Live
    resumed: bool = False


def attempt_all(lab: Lab, recipes: Sequence[Recipe]) -> Outcomes:
    """Complete recipes that probably have one shape, as far as other processes are not computing them.

    Those that cannot share a call with others are run one after another. Return, by digest of the recipe, True if its
    result is stored, False if it is to be tried again later, or an error. A full disk raises a `FullDiskError`.
    """
    outcomes: Outcomes = {}
    waiting: list[tuple[Recipe, Identity]] = []
    for recipe in recipes:
        try:
            identity = identify(recipe)
            if lab.known(recipe, identity) is None:
                waiting.append((recipe, identity))
            else:
                outcomes[recipe.digest] = True
                lab.tell(recipe, 1.0, "stored")
        except UserError as error:
            outcomes[recipe.digest] = error
    single: list[Recipe] = []
    with jax.enable_x64(True):  # the result of a recipe must not depend on the setting of JAX
        # What is claimed cannot be computed by others that share the folder, so some is left to each of them.
        rows, sharing = sum(recipe.seeds for recipe, _ in waiting), max(1, len(claims.sharers(lab.store.claims)))
        for wanted in _batches(waiting, min(MOST_ROWS, max(_LEAST_ROWS, -(-rows // sharing)))):
            with _claimed(lab, wanted, outcomes, single) as members:
                for group in _alike(members):
                    try:
                        outcomes |= _Together(lab, group).run()
                    except FullDiskError:
                        raise
                    except (UserError, RuntimeError):  # one of them, or all together: which, shows when each is alone
                        single += [one.recipe for one in group]
    return outcomes | {recipe.digest: attempt(lab, recipe) for recipe in single}


def attempt(lab: Lab, recipe: Recipe) -> UserError | bool:
    """Complete one recipe; what is returned or raised is as for `attempt_all`."""
    try:
        return lab.attempt(recipe) is not None
    except FullDiskError:
        raise
    except UserError as error:
        return error


def _batches(waiting: list[tuple[Recipe, Identity]], most: int) -> Iterator[list[tuple[Recipe, Identity]]]:
    """Divide recipes so that the seeds of each part fit into one call; a recipe with more seeds is on its own."""
    batch: list[tuple[Recipe, Identity]] = []
    for one in waiting:
        if batch and sum(recipe.seeds for recipe, _ in batch) + one[0].seeds > most:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


@contextlib.contextmanager
def _claimed(
    lab: Lab, wanted: list[tuple[Recipe, Identity]], outcomes: Outcomes, single: list[Recipe]
) -> Iterator[list[Member]]:
    """Claim the recipes that begin at t = 0 and can share a call; put others into ``outcomes`` or ``single``."""
    paths: dict[str, list[Path]] = {}
    for recipe, identity in wanted:
        try:
            plans = lab.plans(identity, identity.trajectories)
        except UserError as error:
            outcomes[recipe.digest] = error
            continue
        needed = [seed for seed, one in plans.items() if one.kind != "complete"]
        if not needed or any(plans[seed].kind != "begin" for seed in needed):
            single.append(recipe)
        else:
            paths[recipe.digest] = [lab.store.claim(identity.trajectories[seed]) for seed in needed]
    if not paths:
        yield []
        return
    lab.store.prepare()
    with claims.claimed(list(dict.fromkeys(path for some in paths.values() for path in some))) as mine:
        free, members = set(mine), []
        for recipe, identity in wanted:
            if recipe.digest not in paths:
                continue
            if not free.issuperset(paths[recipe.digest]):  # of another process, or of another recipe here
                outcomes[recipe.digest] = False
                lab.tell(recipe, 0.0, "waiting for another process")
                continue
            try:
                member = _member(lab, recipe, identity)
            except UserError as error:
                outcomes[recipe.digest] = error
                continue
            if member is None:
                single.append(recipe)
            else:
                free -= set(paths[recipe.digest])
                members.append(member)
        yield members


def _member(lab: Lab, recipe: Recipe, identity: Identity) -> Member | None:
    """Draw networks and data; None if the recipe has to run alone."""
    # Another process may have stored something before the claims were made.
    plans = {seed: one for seed, one in lab.plans(identity, identity.trajectories).items() if one.kind != "complete"}
    if len(plans) < recipe.seeds or any(one.kind != "begin" for one in plans.values()):
        return None
    lab.tell(recipe, 0.0, "drawing")
    experiment = instantiate(recipe, list(plans))
    methods = [experiment.flow.resolve(experiment.networks[0], experiment.data[0])] * len(plans)
    if not fits_vmap(methods[0], experiment.networks[0]):
        return None
    needed: list[Plan] = list(plans.values())
    checkpoint = lab.store.checkpoint(recipe)
    # It reports nothing by itself: the progress of all members is reported together.
    silent = lambda driver, share, clock: None  # noqa: E731
    worker = Worker(recipe, identity, list(plans), needed, lab.snapshots, checkpoint, not lab.fresh, silent)
    amount = float(np.sum(stops_of(methods[0], experiment.times).amounts))
    return Member(recipe, identity, worker, experiment, methods, amount, Live(lab.store.live(recipe), recipe))


def _alike(members: list[Member]) -> Iterator[list[Member]]:
    """Divide members into groups of one shape, with about as far to go."""
    groups: dict[Any, list[Member]] = {}
    for one in members:
        key: Any = _shape(one)
        try:
            hash(key)
        except TypeError:  # of something that cannot be compared
            key = id(one)
        groups.setdefault(key, []).append(one)
    for group in groups.values():
        group.sort(key=lambda one: one.amount)
        rows, first = 0, 0
        for place, one in enumerate(group):
            count, most = len(one.methods), max(1, int(_MOST_BYTES // _bytes(one)))
            if place > first and (rows + count > most or one.amount > _APART * group[first].amount):
                yield group[first:place]
                rows, first = 0, place
            rows += count
        yield group[first:]


def _bytes(member: Member) -> int:
    """Estimate the memory of one row."""
    experiment, outputs = member.experiment, member.experiment.data[0].y.size
    leaves = jax.tree.leaves((experiment.networks[0], experiment.data[0]))
    return sum(getattr(leaf, "nbytes", 0) for leaf in leaves) * 8 + outputs**2 * 32


def _shape(member: Member) -> Any:
    """Return what members that share a call have in common."""
    experiment, identity = member.experiment, member.identity
    network = traced_numbers(experiment.networks[0])
    leaves, structure = jax.tree.flatten((network, experiment.data[0], member.methods[0]))
    described = tuple((leaf.shape, str(leaf.dtype)) if eqx.is_array(leaf) else leaf for leaf in leaves)
    probes = tuple((name, identity.digests[name], only_at_end(one)) for name, one in identity.probes.items())
    times = stops_of(member.methods[0], experiment.times).asked
    return structure, described, probes, len(times), times[0] == 0, _progress(member)


def _progress(member: Member) -> tuple[int, int | None]:
    """Return how far a checkpoint is: the number of records, and the index of the next save time if on its way."""
    path, worker = member.worker.checkpoint, member.worker
    member.resumed = False
    if not worker.resume or not path.exists():
        return -1, None
    try:
        header, _ = read_checkpoint(path)
    except (OSError, ValueError):
        return -1, None
    if header["run"] != worker.digest():
        return -1, None
    member.resumed = True
    times = stops_of(member.methods[0], member.experiment.times).asked
    place = np.flatnonzero(times == header["target"])
    return len(header["snapshots"]), int(place[0]) if len(place) else None


class _Together:
    """A group of members in one driver."""

    def __init__(self, lab: Lab, members: list[Member]) -> None:
        self.lab, self.members = lab, members
        row = 0
        for one in members:
            one.worker.rows = list(range(row, row + len(one.methods)))
            row += len(one.methods)
        self.rows, self.share, self.reported = row, 0.0, 0.0

    def run(self) -> Outcomes:
        """Train all members and store their results."""
        size = next((size for size in _SIZES if size >= self.rows), self.rows)

        def padded(parts: Sequence[Sequence[Any]]) -> list[Any]:
            flat = [one for some in parts for one in some]
            return flat + flat[:1] * (size - len(flat))

        each = [one.experiment for one in self.members]
        driver = Driver.begin(
            padded([one.methods for one in self.members]),
            padded([one.networks for one in each]),
            padded([one.data for one in each]),
            padded([[one.times] * len(one.keys) for one in each]),
            self.members[0].identity.probes,
            padded([one.keys for one in each]),
        )
        set_snapshots(driver, self.lab.snapshots)
        if self.members[0].resumed:  # all of them are: it is part of their shape
            load_several(
                driver,
                [Checkpoint(one.worker.checkpoint, one.worker.digest(), one.worker.rows or []) for one in self.members],
            )
        for one in self.members:
            one.worker.driver = driver
        try:
            driver.run(lambda share, clock: self._tell(driver, share, clock), checkpoint=self._save)
        finally:
            for one in self.members:
                one.live.end()
        if driver.interrupted:
            from unlazy.lab.runner import Interrupted

            self._save()
            raise Interrupted(self.members[0].recipe, self.share, self.lab.fresh)
        outcomes = {one.recipe.digest: self._stored(one, driver) for one in self.members}
        for found in outcomes.values():  # after each of them has been stored, or at least a checkpoint of it
            if isinstance(found, FullDiskError):
                raise found
        for one in self.members:  # after all of them are stored: a signal is raised here
            if outcomes[one.recipe.digest] is True:
                self.lab.tell(one.recipe, 1.0, "stored")
        return outcomes

    def _stored(self, member: Member, driver: Driver) -> UserError | bool:
        from unlazy.lab.runner import check_observed

        worker = member.worker
        try:
            made = worker.tracks(driver, [one.track for one in worker.plans], member.experiment.times, False)
            found = self.lab.store_tracks(worker, made)
            check_observed(member.recipe, found)
            self.lab.finish(member.recipe, member.identity, found, True)
        except UserError as error:
            return error
        return True

    def _save(self) -> None:
        for one in self.members:
            one.worker.save()

    def _tell(self, driver: Driver, share: float, clock: float) -> None:
        self.share, now = share, time.monotonic()
        if now - self.reported < _TELL_SECONDS * len(self.members):
            return
        self.reported = now
        records = [one.observed for one in driver.records]
        for one in self.members:
            rows = one.worker.rows or [0]
            looks = [jax.tree.map(lambda leaf, rows=rows: leaf[rows], look) for look in records]
            one.live.tell(share, driver.at_stop(rows[0]), driver.stops[rows[0]].reached, looks)
            self.lab.tell(one.recipe, share, f"t = {driver.at_stop(rows[0]):g}")
