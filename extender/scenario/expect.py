"""Compares the expectations of a case with the results, in sentences about each difference."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from extender.api.kinds import CardShare
from extender.api.units import count_gpus, format_gpus
from extender.scenario import amounts
from extender.scenario.cluster import n_cards
from extender.scenario.model.expectations import (
    AtMost,
    Expectation,
    JobExpectation,
    NodeExpectation,
    ShareExpectation,
    TaskExpectation,
)
from extender.scenario.model.values import Amount, Limit, Status
from extender.scenario.outcome import Outcome, by_card
from extender.scenario.places import Place
from extender.scenario.world import RunJob, RunTask, World

Places = dict[str, Place]
CardKey = tuple[str, int]
_Wanted = tuple[str, Limit | UnsetType, Callable[[Amount], int]]


@dataclass(slots=True)
class Reading:
    """The results to compare: the places at that moment, and the last cycle."""

    world: World
    places: Places
    outcome: Outcome

    def differences(self, expected: Expectation) -> Iterator[str]:
        """One sentence for each difference from the expectation."""
        for name, job in expected.jobs.items():
            yield from self._job(name, job)
        for name, task in expected.tasks.items():
            yield from self._task(name, task)
        yield from self._letters(expected)
        if expected.nodes:
            yield from self._nodes(expected.nodes)
        for name, share in expected.fair_share.items():
            yield from self._share(name, share)

    def _job(self, name: str, expected: JobExpectation) -> Iterator[str]:
        job = self.world.jobs.get(name)
        if job is None:
            yield f"{name}: there is no such job"
            return
        wanted = _words(expected.status)
        tasks = [(task, self.places[task.id]) for task in job.tasks]
        chosen = [(t, place) for t, place in tasks if not wanted or place.status in wanted]
        n_wanted = len(tasks) if expected.count is None else expected.count
        if wanted and (len(chosen) != n_wanted or not tasks):
            yield (
                f"{name}: expected {_number(expected.count, len(tasks))} {' or '.join(wanted)},"
                f" got {self._found(job)}"
            )
        yield from self._on_node(expected.node, chosen)
        if expected.gpus is not None:
            want = amounts.gpus(expected.gpus)
            held = sum(card.milli for _, place in chosen for card in place.cards)
            if held != want:
                yield f"{name}: expected {count_gpus(want)}, holds {format_gpus(held)}"
        if expected.reason is not None:
            yield from self._reason(job, expected.reason)

    def _task(self, name: str, expected: TaskExpectation) -> Iterator[str]:
        tasks = self._tasks_named(name)
        if not tasks:
            yield f"{name}: there is no such task"
        wanted = _words(expected.status)
        for task in tasks:
            place = self.places[task.id]
            if wanted and place.status not in wanted:
                yield f"{task.id}: expected {' or '.join(wanted)}, got {_shown(place)}"
            else:
                yield from self._on_node(expected.node, [(task, place)])

    def _on_node(self, node: str | None, chosen: list[tuple[RunTask, Place]]) -> Iterator[str]:
        for task, place in chosen:
            if node is not None and place.node and place.node != node:
                yield f"{task.id}: expected on {node}, got {_shown(place)}"

    def _reason(self, job: RunJob, reason: str) -> Iterator[str]:
        refused = self.outcome.plan.waits.get(job.key)
        if refused is None:
            yield f"{job.spec.name}: expected to wait for {reason}, but it does not wait"
        elif refused.reason != reason:
            yield f"{job.spec.name}: expected to wait for {reason}, waits for {refused}"

    def _tasks_named(self, name: str) -> list[RunTask]:
        """The task, or all pods of a repeated one; a job's tasks are named `job/task`."""
        task = self.world.tasks.get(name)
        if task is not None:
            return [task]
        job_name, _, task_name = name.rpartition("/")
        job = self.world.jobs.get(job_name)
        found = job.tasks if job else []
        return [t for t in found if t.id.rpartition("-")[0] == f"{job_name}/{task_name}"]

    def _letters(self, expected: Expectation) -> Iterator[str]:
        """Tasks with the same letter share a card, those with different letters do not."""
        held: dict[str, list[tuple[str, frozenset[CardKey]]]] = {}
        for name, each in expected.tasks.items():
            for task in self._tasks_named(name) if each.card is not None else ():
                place = self.places[task.id]
                cards = _keys(place.node, place.cards)
                if not cards:
                    yield f"{task.id}: expected on card {each.card}, holds no card"
                else:
                    held.setdefault(each.card or "", []).append((task.id, cards))
        first = {letter: found[0] for letter, found in held.items()}
        for letter, found in held.items():
            for id_, cards in found[1:]:
                if not cards & first[letter][1]:
                    yield f"{id_}: expected on the card of {first[letter][0]} ({letter})"
        letters = sorted(held)
        for at, letter in enumerate(letters):
            for other in letters[at + 1 :]:
                if first[letter][1] & first[other][1]:
                    yield f"{first[letter][0]} and {first[other][0]}: expected on different cards"

    def _nodes(self, expected: dict[str, NodeExpectation]) -> Iterator[str]:
        on_cards = by_card(self.places)
        sizes = {node.name: n_cards(node) for node in self.world.cluster.case.nodes}
        for name, node in expected.items():
            if name not in sizes:
                yield f"{name}: there is no such node"
                continue
            states = [
                {place.status for _, place in on_cards.get((name, card), ())}
                for card in range(sizes[name])
            ]
            idle = sum(not found & {"running", "bound", "evicted"} for found in states)
            left = [found for found in states if "evicted" in found and not found & _STAYING]
            releasing = sum("nominated" not in found for found in left)
            if node.idle_gpus not in (None, idle):
                yield f"{name}: expected {node.idle_gpus} idle GPUs, got {idle}"
            if node.releasing_gpus not in (None, releasing):
                yield f"{name}: expected {node.releasing_gpus} GPUs being left, got {releasing}"

    def _share(self, name: str, expected: ShareExpectation) -> Iterator[str]:
        got = self.outcome.fair_shares.get(name)
        if got is None:
            yield f"{name}: expected a fair share, but there is no such queue"
            return
        for (unit, want, read), has in zip(self._wanted(expected), got, strict=True):
            if want is UNSET:
                continue
            amount = None if want is None else read(want)
            if amount != has:
                yield f"{name}: expected a fair share of {amount} {unit}, got {has}"

    def _wanted(self, expected: ShareExpectation) -> list[_Wanted]:
        """By resource: its name, the expectation, and its parser."""
        return [
            ("milli-GPU", expected.gpu, amounts.gpus),
            ("milli-CPU", expected.cpu, amounts.cpu),
            ("of memory", expected.memory, self.world.cluster.memory),
        ]

    def _found(self, job: RunJob) -> str:
        counts = Counter(self.places[task.id].status for task in job.tasks)
        return ", ".join(f"{n} {word}" for word, n in counts.items()) or "no tasks"


_STAYING: frozenset[Status] = frozenset(("running", "bound"))


def newly_decided(outcome: Outcome) -> Counter[str]:
    """How many tasks were newly bound, evicted and nominated; a move counts as the last two."""
    counts: Counter[str] = Counter()
    for _, before, after in outcome.changed():
        if after.is_moved:
            counts["evicted"] += 1
        if after.status != before.status or after.is_moved:
            counts[after.status] += 1
    return counts


def excess(outcome: Outcome, most: AtMost) -> Iterator[str]:
    """One sentence for each bound of `atMost` that the cycle exceeds."""
    counts = newly_decided(outcome)
    for word, bound in (("bound", most.bound), ("evicted", most.evicted)):
        if bound is not None and counts[word] > bound:
            yield f"cycle {outcome.cycle}: at most {bound} {word} expected, got {counts[word]}"
    if most.nominated is not None and counts["nominated"] > most.nominated:
        got = counts["nominated"]
        yield f"cycle {outcome.cycle}: at most {most.nominated} nominated expected, got {got}"


def _words(status: Status | list[Status] | None) -> list[Status]:
    if status is None:
        return []
    return [status] if isinstance(status, str) else status


def _number(count: int | None, n_tasks: int) -> str:
    if count is not None:
        return str(count)
    return "it" if n_tasks == 1 else f"all {n_tasks}"


def _shown(place: Place) -> str:
    where = f" on {place.node}" if place.node else ""
    return f"{place.status}{where}"


def _keys(node: str, cards: tuple[CardShare, ...]) -> frozenset[CardKey]:
    return frozenset((node, card.index) for card in cards)
