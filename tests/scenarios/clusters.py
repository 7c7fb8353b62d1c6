"""Random small clusters, written as scenario files are."""

from typing import Any

from hypothesis import strategies as st

Entry = dict[str, Any]
_STAGES = ["allocate", "consolidate", "reclaim", "preempt", "stale-gangs"]
_SIZES: list[int | str] = ["0.25", "0.5", "0.5", 0, 1, 1, 1, 1, 2, 3]


@st.composite
def entries(draw: st.DrawFn, policies: tuple[str, ...] = ("fairshare",)) -> Entry:
    """Up to four nodes, two departments, four projects, and ten jobs that run or wait.

    Half of the clusters are full of running jobs when the others come.
    """
    nodes = [
        {
            "name": f"n{at}",
            "gpus": draw(st.integers(1, 4)),
            "cpu": draw(st.sampled_from(["64"] * 7 + ["4"])),
        }
        for at in range(draw(st.integers(1, 4)))
    ]
    queues = draw(_queues())
    projects = [queue["name"] for queue in queues if not queue["name"].startswith("d")]
    room = _Room(nodes)
    jobs: list[Entry] = []
    if draw(st.booleans()):
        borrowers = projects[::2]
        while room.is_left() and len(jobs) < 8:
            jobs.append(draw(_job(f"j{len(jobs)}", borrowers, room, is_running=True)))
    others = projects[::-1] if jobs else projects
    for _ in range(draw(st.integers(2, 4 if jobs else 8))):
        jobs.append(draw(_job(f"j{len(jobs)}", others, room)))
    return {
        "scenario": "v1",
        "id": "random",
        "settings": {
            "stages": _STAGES,
            "policy": draw(st.sampled_from(policies)),
            "placement": {"gpu": draw(st.sampled_from(["binpack", "binpack", "spread"]))},
            "reclaimMovesVictims": draw(st.booleans()),
            "jobOrder": draw(st.sampled_from(["fifo", "fifo", "strict-fifo"])),
        },
        "nodes": nodes,
        "queues": queues,
        "jobs": jobs,
    }


@st.composite
def _queues(draw: st.DrawFn) -> list[Entry]:
    departments = [f"d{at}" for at in range(draw(st.integers(0, 2)))]
    found: list[Entry] = []
    for name in departments:
        found.append(draw(_queue(name, None, st.sampled_from([None, None, 0, 2, 4, 6]))))
    for at in range(draw(st.sampled_from([1, 2, 2, 3, 4]))):
        parent = draw(st.sampled_from(departments)) if departments else None
        quotas = st.integers(1, 4) if at % 2 else st.sampled_from([0, 0, 1, 2])
        queue = draw(_queue(f"p{at}", parent, quotas))
        found.append(
            queue
            | {
                "priority": draw(st.sampled_from([100, 100, 100, 101])),
                "reclaimMinRuntime": draw(st.sampled_from([0] * 7 + [300])),
                "preemptMinRuntime": draw(st.sampled_from([0] * 7 + [300])),
            }
        )
    return found


@st.composite
def _queue(
    draw: st.DrawFn, name: str, parent: str | None, quotas: st.SearchStrategy[int | None]
) -> Entry:
    gpu = {
        "quota": draw(quotas),
        "limit": draw(st.sampled_from([None] * 12 + [1, 2, 4])),
        "weight": draw(st.sampled_from([1, 1, 2, 3, 0])),
    }
    return {"name": name, "parent": parent, "gpu": gpu}


@st.composite
def _job(
    draw: st.DrawFn, name: str, projects: list[str], room: "_Room", *, is_running: bool = False
) -> Entry:
    gpu = draw(st.sampled_from(_SIZES))
    n = draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
    least = draw(st.integers(1, n))
    job: Entry = {
        "name": name,
        "queue": draw(st.sampled_from(projects)),
        "priority": draw(st.sampled_from([50, 50, 50, 25, 75, 100][: 4 if is_running else 6])),
        "kind": draw(st.sampled_from(["training", "training", "training", "interactive"])),
        "group": {"min": least},
        "runningFor": draw(st.integers(0, 1000)),
    }
    n_running = draw(st.sampled_from([n, least] if is_running else [0, 0, n, least]))
    seats = room.take(draw, gpu, n_running)
    job["tasks"] = [
        {"name": f"t{at}", "gpu": gpu, **(seats[at] if at < len(seats) else {})} for at in range(n)
    ]
    if n > 1 and draw(st.sampled_from([False, False, False, True])):
        _divide(draw, job, n, len(seats))
    return job


def _divide(draw: st.DrawFn, job: Entry, n: int, n_running: int) -> None:
    """Put the tasks into two groups; what runs of a job that is divided runs whole."""
    if n_running not in (0, n):
        return
    first = draw(st.integers(1, n - 1))
    for at, task in enumerate(job["tasks"]):
        task["group"] = "a" if at < first else "b"
    job["group"] = {
        "children": [{"name": "a", "min": draw(st.integers(1, first))}, {"name": "b", "min": 1}]
    }


class _Room:
    """What is free of every card, and CPUs of every node, while running tasks are placed."""

    def __init__(self, nodes: list[Entry]) -> None:
        self.cards = {node["name"]: [1000] * node["gpus"] for node in nodes}
        self.cpu = {node["name"]: int(node["cpu"]) for node in nodes}

    def is_left(self) -> bool:
        """Whether any card is wholly free."""
        return any(1000 in free for free in self.cards.values())

    def take(self, draw: st.DrawFn, gpu: int | str, n: int) -> list[Entry]:
        """Places for `n` running tasks, or none when not all of them fit."""
        milli = round(float(gpu) * 1000)
        kept = {name: list(free) for name, free in self.cards.items()}, dict(self.cpu)
        seats: list[Entry] = []
        for _ in range(n):
            fitting = [name for name in self.cards if self._fits(name, milli)]
            if not fitting:
                self.cards, self.cpu = kept
                return []
            seats.append(self._seat(draw, draw(st.sampled_from(fitting)), milli))
        return seats

    def _fits(self, name: str, milli: int) -> bool:
        need, n_cards = (milli, 1) if milli < 1000 else (1000, milli // 1000)
        return self.cpu[name] >= 1 and sum(free >= need for free in self.cards[name]) >= n_cards

    def _seat(self, draw: st.DrawFn, name: str, milli: int) -> Entry:
        self.cpu[name] -= 1
        free = self.cards[name]
        seat: Entry = {"state": "running", "node": name}
        if 0 < milli < 1000:
            card = draw(st.sampled_from([c for c, left in enumerate(free) if left >= milli]))
            free[card] -= milli
            return seat | {"cards": [str(card)]}
        whole = [c for c, left in enumerate(free) if left == 1000][: milli // 1000]
        for card in whole:
            free[card] = 0
        return seat
