"""The users' start pages: my work, my project, usage."""

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from aiohttp import web

from extender.api.reasons import HELP
from extender.view.answers import AsOf, Waiting
from extender.web.answering import Content
from extender.web.evictions import Line, lines
from extender.web.identity import Asker
from extender.web.places import places
from extender.web.questions import NoAnswerError, Questions
from extender.web.running import Running, running_of
from extender.web.tables import ROWS, ordered
from extender.web.usage import by_project, by_user

#: Limit on namespaces on one page; the form selects others.
MOST_SHOWN: Final = 4
_MONTH: Final = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])")
_WAITING: Final = {
    "position": lambda each: each.position,
    "workload": lambda each: each.workload,
    "gpus": lambda each: float(each.request),
    "waits": lambda each: each.waits_since,
    "reason": lambda each: each.reason,
}
_USED: Final = {
    "name": lambda each: each.name,
    "held": lambda each: each.held,
    "borrowed": lambda each: each.borrowed,
    "lost": lambda each: each.lost,
}

T = TypeVar("T")


class PeoplePages:
    """Each page is a method; `asker` determines the identity."""

    def __init__(self, asker: Asker, namespace: str) -> None:
        self._asker = asker
        self._namespace = namespace

    async def mine(self, request: web.Request) -> Content:
        """Pending, running and evicted workloads in the user's namespaces."""
        ask = self._asker(request)
        named = request.query.get("namespace", "").replace(",", " ").split()
        found = await places(ask, self._namespace, named)
        shown = found.chosen[:MOST_SHOWN]
        parts = await asyncio.gather(*(_work_in(ask, name) for name in shown))
        waiting = [each for part in parts for each in part.waiting]
        running = [each for part in parts for each in part.running]
        stopped = [line for part in parts for line in part.stopped]
        data = {"namespaces": shown, "waiting": waiting, "running": running, "stopped": stopped}
        values = {
            **data,
            "waiting": ordered(waiting, _WAITING, request.query.get("sort", ""))[:ROWS],
            "n_waiting": len(waiting),
            "running": running[:ROWS],
            "n_running": len(running),
            "stopped": stopped[:ROWS],
            "helps": HELP,
            "known": found.known,
            "n_left_out": len(found.chosen) - len(shown),
        }
        command = f"kubectl ballast queue -n {shown[0]}"
        return Content("mine.html", command, values, data, parts[0].as_of)

    async def project(self, request: web.Request) -> Content:
        """A project's figures, users, and evictions from and for it."""
        ask, name = self._asker(request), request.match_info["name"]
        shares = await ask.shares()
        figures = [each for each in shares.items if each.queue == name]
        found = next((each for each in await ask.projects() if each.metadata.name == name), None)
        if not figures and found is None:
            raise NoAnswerError(f"There is no project {name} that you may see.", 404)
        namespaces = found.spec.namespaces[:MOST_SHOWN] if found else []
        parts = await asyncio.gather(
            *(_answer_or_reason(_work_in(ask, each)) for each in namespaces)
        )
        whys = [each for each in parts if isinstance(each, str)]
        seen = [each for each in parts if not isinstance(each, str)]
        seen_in = [
            name for name, part in zip(namespaces, parts, strict=True) if not isinstance(part, str)
        ]
        stopped = [line for part in seen for line in part.stopped]
        made_for = [line for part in seen for line in part.made_for]
        running = [each for part in seen for each in part.running]
        users = _users(running, [each for part in seen for each in part.waiting])
        data = {"project": name, "queues": figures, "users": users,
                "stopped": stopped, "madeRoomFor": made_for}  # fmt: skip
        values = {**data, "name": name, "whys": whys, "made_for": made_for[:ROWS],
                  "stopped": stopped[:ROWS], "namespaces": seen_in,
                  "department": next((each.parent for each in figures), "")}  # fmt: skip
        return Content("project.html", "kubectl ballast shares", values, data, shares.as_of)

    async def usage(self, request: web.Request) -> Content:
        """GPU-hours of a month, by project, or by user of one."""
        month = request.query.get("month", "")
        if not _MONTH.fullmatch(month):
            month = f"{datetime.now(UTC):%Y-%m}"
        project = request.query.get("project", "")
        try:
            records = await self._asker(request).usage(month)
            why = "" if records else f"No usage is recorded for {month}."
        except NoAnswerError as error:
            if error.status != 404:
                raise
            records, why = [], "This cluster keeps no usage records (kind GpuUsage)."
        sums = by_user(records, project) if project else by_project(records)
        rows = ordered(sums, _USED, request.query.get("sort", ""))
        days = {record.spec.day for record in records}
        values = {"rows": rows, "month": month, "project": project, "why": why,
                  "n_days": len(days), "total": sum(each.held for each in sums)}  # fmt: skip
        by = " --by project,user" if project else ""
        command = f"kubectl ballast report usage --month {month}{by}"
        return Content("usage.html", command, values, {"month": month, "items": rows})


@dataclass(slots=True, frozen=True)
class _Work:
    """Pending, running and evicted workloads of a namespace, and its beneficiaries of evictions."""

    as_of: AsOf
    waiting: list[Waiting]
    running: list[Running]
    stopped: list[Line]
    made_for: list[Line]


async def _work_in(ask: Questions, namespace: str) -> _Work:
    queue, pods, events = await asyncio.gather(
        ask.queue(namespace, is_own_only=True), ask.pods(namespace), ask.evictions(namespace)
    )
    return _Work(
        queue.as_of,
        queue.items,
        running_of(pods),
        lines(*events, are_stops=True),
        lines(*events, are_stops=False),
    )


async def _answer_or_reason(asked: Awaitable[T]) -> T | str:
    """The answer, or the reason why there is none."""
    try:
        return await asked
    except NoAnswerError as error:
        return str(error)


def _users(running: list[Running], waiting: list[Waiting]) -> list[dict[str, Any]]:
    """GPUs that each user holds and requests; the largest holder first."""
    found: dict[str, list[float]] = {}
    for each in running:
        found.setdefault(each.user, [0.0, 0.0])[0] += each.milli / 1000
    for other in waiting:
        found.setdefault(other.user, [0.0, 0.0])[1] += float(other.request)
    users = [
        {"user": user, "held": held, "waiting": waits} for user, (held, waits) in found.items()
    ]
    return sorted(users, key=lambda each: (-each["held"], each["user"]))
