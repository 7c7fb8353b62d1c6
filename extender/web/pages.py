"""The pages about the cluster: each asks, and returns the content for its template."""

from collections import Counter
from dataclasses import asdict, dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from extender.api.units import format_age
from extender.view.answers import QueueFigures, Waiting
from extender.web import cards, changes
from extender.web.answering import Answering, Content
from extender.web.evictions import lines
from extender.web.identity import Asker
from extender.web.people import PeoplePages
from extender.web.places import places
from extender.web.questions import NoAnswerError, Questions
from extender.web.tables import ROWS, ordered, paging

_STATIC: Final = Path(__file__).parent / "static"
#: Hash of the static files: browsers cache them, and while two versions of the program run, each
#: serves only its own.
_CONTENT: Final = b"".join(each.read_bytes() for each in sorted(_STATIC.iterdir()))
VERSION: Final = sha256(_CONTENT).hexdigest()[:12]
_MAX_FORM: Final = 2**18
#: Width of a bar in SVG units.
BAR: Final = 240

_WAITING: Final = {
    "position": lambda each: each.position,
    "workload": lambda each: each.workload,
    "project": lambda each: each.project,
    "user": lambda each: each.user,
    "gpus": lambda each: float(each.request),
    "pods": lambda each: each.pods,
    "waits": lambda each: each.waits_since,
    "reason": lambda each: each.reason,
}
_NODES: Final = {
    "node": lambda row: row.name,
    "free": lambda row: row.free_milli,
    "pieces": lambda row: row.fragment_milli,
    "pods": lambda row: row.n_pods,
    "model": lambda row: row.model,
}
_SHARES: Final = {
    "queue": lambda each: each.queue,
    "quota": lambda each: _number(each.quota),
    "limit": lambda each: _number(each.limit),
    "owed": lambda each: _number(each.fair_share),
    "held": lambda each: _number(each.held),
    "borrowed": lambda each: _number(each.borrowed),
    "waiting": lambda each: _number(each.waiting),
}


class Pages:
    """The application of `ballast web`, below the path `root` (empty, or "/" and a token).

    `asker` determines a request's identity; `namespace` is the default. `login` is the path of a
    login whose token may expire; empty if there is none.
    """

    def __init__(
        self, asker: Asker, namespace: str, root: str, guard: Middleware, *, login: str = ""
    ) -> None:
        self._asker = asker
        self._namespace = namespace
        self._root = root
        self._guard = guard
        self._people = PeoplePages(asker, namespace)
        known = {"root": root, "bar": bar, "login": login, "version": VERSION}
        self._answering = Answering({"age": format_age}, known)

    def app(self) -> web.Application:
        """The HTTP application."""
        app = web.Application(client_max_size=_MAX_FORM, middlewares=[self._guard])
        answer, root = self._answering.answer, self._root
        for path in dict.fromkeys((root or "/", f"{root}/")):
            app.router.add_get(path, self._to_mine)
        for path, page in (
            ("mine", self._people.mine),
            ("project/{name}", self._people.project),
            ("usage", self._people.usage),
            ("queue", self.queue),
            ("workload/{ns}/{name}", self.workload),
            ("shares", self.shares),
            ("cluster", self.cluster),
            ("whatif", self.whatif),
            ("evictions", self.evictions),
        ):
            app.router.add_get(f"{root}/{path}", answer(page))
        app.router.add_post(f"{root}/whatif", answer(self.whatif))
        app.router.add_static(f"{root}/static/{VERSION}", _STATIC)
        app.on_shutdown.append(self._answering.close)
        return app

    # -- pages -------------------------------------------------------------------------------

    async def queue(self, request: web.Request) -> Content:
        """Pending workloads in queue order, filtered by reason and words, in pages of `ROWS`."""
        ask = self._asker(request)
        place = await self._place(ask, request)
        answer = await ask.queue(place.asked)
        words = request.query.get("q", "").strip()
        reason = request.query.get("reason", "")
        found = [each for each in answer.items if _matches(each, words)]
        reasons = Counter(each.reason for each in found)
        shown = [each for each in found if not reason or each.reason == reason]
        rows = ordered(shown, _WAITING, request.query.get("sort", ""))
        part = paging(request.query.get("page", ""), len(rows))
        values = {
            "items": rows[part["first"] : part["last"]],
            "n_all": len(answer.items),
            "reasons": reasons.most_common(),
            "reason": reason,
            "words": words,
            "paging": part,
            **asdict(place),
        }
        command = f"kubectl ballast queue {place.flag}"
        return Content("queue.html", command, values, answer, answer.as_of)

    async def workload(self, request: web.Request) -> Content:
        """Why one workload is pending, and then the ways out that were tried."""
        ask = self._asker(request)
        namespace, name = request.match_info["ns"], request.match_info["name"]
        answer = await ask.explanation(namespace, name, is_tried=False)
        command = f"kubectl ballast why {name} -n {namespace}"

        async def tried(_request: web.Request) -> Content:
            whole = await ask.explanation(namespace, name, is_tried=True)
            return Content("ways.html", command, {"answer": whole}, whole)

        later = tried if answer.reason else None
        return Content(
            "workload.html", command, {"answer": answer}, answer, answer.as_of, later=later
        )

    async def shares(self, request: web.Request) -> Content:
        """Quota, fair share and allocation, by queue."""
        answer = await self._asker(request).shares()
        rows = ordered(_tree(answer.items), _SHARES, request.query.get("sort", ""))
        values = {"items": rows, "scale": _scale(answer.items)}
        return Content("shares.html", "kubectl ballast shares", values, answer, answer.as_of)

    async def cluster(self, request: web.Request) -> Content:
        """Nodes and cards, in pages of `ROWS`."""
        found = cards.rows(await self._asker(request).nodes())
        words = request.query.get("q", "").strip()
        shown = [row for row in found if words in row.name or words in row.model]
        rows = ordered(shown, _NODES, request.query.get("sort", ""))
        part = paging(request.query.get("page", ""), len(rows))
        totals = cards.totals(shown)
        rows = rows[part["first"] : part["last"]]
        values = {"totals": totals, "rows": rows, "words": words, "paging": part}
        data = {"totals": totals, "nodes": [row.node for row in rows], "of": len(shown)}
        return Content("cluster.html", "kubectl ballast top gpus", values, data)

    async def whatif(self, request: web.Request) -> Content:
        """The form, and below it the result of the simulation."""
        ask = self._asker(request)
        form = {key: str(value) for key, value in (await request.post()).items()}
        answer, wrong, status, command = None, "", 200, "kubectl ballast whatif --help"
        if request.method == "POST":
            try:
                spec = changes.read(form)
                command = changes.command(spec)
                answer = await ask.simulate(spec)
            except changes.FormError as error:
                wrong, status = str(error), 422
            except NoAnswerError as error:
                wrong, status = str(error), error.status
        shares = await ask.shares()
        values = {
            "projects": [each for each in shares.items if not _is_department(each)],
            "form": form,
            "wrong": wrong,
            "answer": answer.status if answer else None,
        }
        as_of = answer.status.as_of if answer and answer.status else shares.as_of
        data = answer or {"message": wrong}
        return Content("whatif.html", command, values, data, as_of, status)

    async def evictions(self, request: web.Request) -> Content:
        """Recent evictions, their beneficiaries, and whether these started."""
        ask = self._asker(request)
        place = await self._place(ask, request)
        events, fates = await ask.evictions(place.asked)
        stopped = lines(events, fates, are_stops=True)
        made_for = lines(events, fates, are_stops=False)
        values = {
            "stopped": stopped[:ROWS],
            "n_stopped": len(stopped),
            "made_for": made_for[:ROWS],
            "n_useless": sum(line.is_useless for line in made_for),
            **asdict(place),
        }
        data = {"stopped": stopped, "madeRoomFor": made_for}
        command = f"kubectl ballast history {place.flag} --evictions"
        return Content("evictions.html", command, values, data)

    # -- shared ------------------------------------------------------------------------------

    async def _to_mine(self, _request: web.Request) -> web.Response:
        raise web.HTTPFound(f"{self._root}/mine")

    async def _place(self, ask: Questions, request: web.Request) -> "_Place":
        """The namespace in question: the first of `places`; raises NoAnswerError."""
        named = request.query.get("namespace", "").split()[:1]
        found = await places(ask, self._namespace, named)
        return _Place(found.chosen[0], request.query.get("all", "") == "1", found.known)


@dataclass(slots=True, frozen=True)
class _Place:
    """The values of the namespace form."""

    namespace: str
    is_all: bool
    namespaces: list[str]

    @property
    def asked(self) -> str:
        """The namespace, empty for all."""
        return "" if self.is_all else self.namespace

    @property
    def flag(self) -> str:
        """The namespace as a flag of the command."""
        return "-A" if self.is_all else f"-n {self.namespace}"


def bar(gpus: str, scale: Decimal) -> float:
    """The position of `gpus` on a bar, in SVG units."""
    return round(float(min(_number(gpus) / scale, Decimal(1)) * BAR), 1)


def _number(gpus: str) -> Decimal:
    """GPUs as in answers; unlimited is more than any other amount."""
    return Decimal("Infinity") if gpus == "unlimited" else Decimal(gpus or "0")


def _scale(items: list[QueueFigures]) -> Decimal:
    """GPUs at the end of every bar, common to all bars; never 0."""
    shown = (_number(f) for each in items for f in (each.quota, each.fair_share, each.held))
    return max([Decimal(1), *(figure for figure in shown if figure.is_finite())])


def _is_department(each: QueueFigures) -> bool:
    return each.queue.startswith("department/")


def _tree(items: list[QueueFigures]) -> list[QueueFigures]:
    """Each department before its projects, in each node pool."""
    return sorted(
        items,
        key=lambda each: (
            each.node_pool,
            (each.parent or each.queue).removeprefix("department/"),
            bool(each.parent),
            each.queue,
        ),
    )


def _matches(each: Waiting, words: str) -> bool:
    return not words or words in each.workload or words in each.project or words in each.user
