"""The pages: each asks, shapes the answer, and renders one template."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import jinja2
from aiohttp import web

from extender.api.units import format_age
from extender.view.answers import QueueFigures, Waiting
from extender.web import cards, changes
from extender.web.evictions import lines
from extender.web.guard import guard
from extender.web.questions import NoAnswerError, Questions

#: Rows of one page of a long table: the first useful content must not wait for ten thousand.
ROWS: Final = 200
_HERE: Final = Path(__file__).parent
_MAX_FORM: Final = 2**18
#: Width of a bar in the units of its SVG.
BAR: Final = 240

_Page = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(slots=True, frozen=True)
class Reader:
    """For which kubeconfig the pages are: its namespace and the words to show."""

    namespace: str
    context: str = ""


class Pages:
    """The application of `ballast web`."""

    def __init__(
        self,
        questions: Questions,
        reader: Reader,
        token: str,
        hosts: Callable[[], frozenset[str]],
    ) -> None:
        self._questions = questions
        self._reader = reader
        self._token = token
        self._hosts = hosts
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["age"] = format_age
        self._templates.globals["bar"] = bar

    def app(self) -> web.Application:
        """The HTTP surface, below the token."""
        app = web.Application(
            client_max_size=_MAX_FORM, middlewares=[guard(self._token, self._hosts)]
        )
        root = f"/{self._token}"
        app.router.add_get(root, self._to_queue)
        app.router.add_get(f"{root}/", self._to_queue)
        app.router.add_get(f"{root}/queue", self._told(self.queue))
        app.router.add_get(f"{root}/workload/{{ns}}/{{name}}", self._told(self.workload))
        app.router.add_get(f"{root}/shares", self._told(self.shares))
        app.router.add_get(f"{root}/cluster", self._told(self.cluster))
        app.router.add_get(f"{root}/whatif", self._told(self.whatif))
        app.router.add_post(f"{root}/whatif", self._told(self.whatif))
        app.router.add_get(f"{root}/evictions", self._told(self.evictions))
        app.router.add_static(f"{root}/static", _HERE / "static")
        return app

    # -- pages -------------------------------------------------------------------------------

    async def queue(self, request: web.Request) -> web.Response:
        """What waits, in order, filtered by reason and words, in pages of `ROWS`."""
        namespace, is_all = self._where(request)
        told = await self._questions.queue("" if is_all else namespace)
        words = request.query.get("q", "").strip()
        reason = request.query.get("reason", "")
        found = [each for each in told.items if _matches(each, words)]
        reasons = Counter(each.reason for each in found)
        shown = [each for each in found if not reason or each.reason == reason]
        paging = _paging(request, len(shown))
        return self._render(
            request,
            "queue.html",
            command=f"kubectl ballast queue {'-A' if is_all else f'-n {namespace}'}",
            as_of=told.as_of,
            items=shown[paging["first"] : paging["last"]],
            n_all=len(told.items),
            reasons=reasons.most_common(),
            reason=reason,
            words=words,
            namespace=namespace,
            is_all=is_all,
            namespaces=await self._questions.namespaces(),
            paging=paging,
        )

    async def workload(self, request: web.Request) -> web.Response:
        """Why one workload waits, and the ways out that were tried."""
        namespace, name = request.match_info["ns"], request.match_info["name"]
        told = await self._questions.explanation(namespace, name)
        return self._render(
            request,
            "workload.html",
            command=f"kubectl ballast why {name} -n {namespace}",
            as_of=told.as_of,
            told=told,
        )

    async def shares(self, request: web.Request) -> web.Response:
        """Quota, fair share and what is held, by queue."""
        told = await self._questions.shares()
        return self._render(
            request,
            "shares.html",
            command="kubectl ballast shares",
            as_of=told.as_of,
            items=_tree(told.items),
            scale=_scale(told.items),
        )

    async def cluster(self, request: web.Request) -> web.Response:
        """Nodes and cards, in pages of `ROWS`."""
        found = cards.rows(await self._questions.nodes())
        words = request.query.get("q", "").strip()
        shown = [row for row in found if words in row.name or words in row.model]
        paging = _paging(request, len(shown))
        return self._render(
            request,
            "cluster.html",
            command="kubectl get gpunodes",
            totals=cards.totals(shown),
            rows=shown[paging["first"] : paging["last"]],
            words=words,
            paging=paging,
        )

    async def whatif(self, request: web.Request) -> web.Response:
        """The form, and below it what the changed world would bring."""
        form = {key: str(value) for key, value in (await request.post()).items()}
        told, wrong, status, command = None, "", 200, "kubectl ballast whatif --help"
        if request.method == "POST":
            try:
                spec = changes.read(form)
                command = changes.command(spec)
                told = await self._questions.simulate(spec)
            except changes.FormError as error:
                wrong, status = str(error), 422
            except NoAnswerError as error:
                wrong, status = str(error), error.status
        shares = await self._questions.shares()
        return self._render(
            request,
            "whatif.html",
            status=status,
            command=command,
            as_of=told.status.as_of if told and told.status else shares.as_of,
            projects=[each for each in shares.items if not each.queue.startswith("department/")],
            form=form,
            wrong=wrong,
            told=told.status if told else None,
        )

    async def evictions(self, request: web.Request) -> web.Response:
        """What was stopped lately, for what, and whether that started."""
        namespace, is_all = self._where(request)
        events, fates = await self._questions.evictions("" if is_all else namespace)
        stopped = lines(events, fates, are_stops=True)
        made_for = lines(events, fates, are_stops=False)
        return self._render(
            request,
            "evictions.html",
            command=f"kubectl get events {'-A' if is_all else f'-n {namespace}'}"
            " --field-selector reportingComponent=ballast-controller",
            stopped=stopped[:ROWS],
            n_stopped=len(stopped),
            made_for=made_for[:ROWS],
            n_useless=sum(line.is_useless for line in made_for),
            namespace=namespace,
            is_all=is_all,
            namespaces=await self._questions.namespaces(),
        )

    # -- what they share ---------------------------------------------------------------------

    async def _to_queue(self, _request: web.Request) -> web.Response:
        raise web.HTTPFound(f"/{self._token}/queue")

    def _told(self, page: _Page) -> _Page:
        """The page, or one that says why there is no answer."""

        async def answer(request: web.Request) -> web.Response:
            try:
                return await page(request)
            except NoAnswerError as error:
                return self._render(
                    request, "refused.html", status=error.status, message=str(error), command=""
                )

        return answer

    def _where(self, request: web.Request) -> tuple[str, bool]:
        """The namespace that is asked about, and whether all of them are."""
        namespace = request.query.get("namespace", "").strip() or self._reader.namespace
        return namespace, request.query.get("all", "") == "1"

    def _render(
        self, request: web.Request, template: str, status: int = 200, **values: Any
    ) -> web.Response:
        values = {"as_of": None} | values
        text = self._templates.get_template(template).render(
            root=f"/{self._token}",
            page=template.removesuffix(".html"),
            reader=self._reader,
            query=request.query,
            **values,
        )
        return web.Response(text=text, content_type="text/html", status=status)


def bar(gpus: str, scale: Decimal) -> float:
    """Where so many GPUs lie on a bar, in the units of its SVG."""
    return round(float(min(Decimal(gpus or "0") / scale, Decimal(1)) * BAR), 1)


def _scale(items: list[QueueFigures]) -> Decimal:
    """GPUs at the end of every bar, so that bars can be compared; never 0."""
    shown = [figure for each in items for figure in (each.quota, each.fair_share, each.held)]
    return max([Decimal(1), *(Decimal(figure) for figure in shown)])


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


def _paging(request: web.Request, n: int) -> dict[str, int]:
    """First and last row of the page that is asked for, and how many pages there are."""
    n_pages = max(1, math.ceil(n / ROWS))
    text = request.query.get("page", "1")
    page = min(max(1, int(text) if text.isdecimal() and len(text) < 8 else 1), n_pages)
    first = (page - 1) * ROWS
    return {"page": page, "pages": n_pages, "first": first, "last": min(first + ROWS, n), "n": n}
