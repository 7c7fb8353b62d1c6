"""The pages: the requests they answer, their content, and that all content is escaped."""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from rich.text import Text

from extender.view.answers import AsOf, Change
from extender.view.command import SIGNS
from extender.web.evictions import Event
from extender.web.guard import POLICY, guard
from extender.web.identity import one_user
from extender.web.pages import VERSION, Pages
from extender.web.questions import NoAnswerError
from extender.web.tables import ROWS
from tests.unit.web.pretend import NOW, Pretend, node, waiting

TOKEN = "a-token"
LOOPBACK = "127.0.0.1"
PAGES = (
    "mine",
    "project/team-a",
    "usage",
    "queue",
    "workload/team-a/train",
    "shares",
    "cluster",
    "whatif",
    "evictions",
)

Get = Callable[..., Awaitable[tuple[int, str, dict[str, str]]]]
Begin = Callable[[str], AbstractAsyncContextManager[aiohttp.ClientResponse]]


@pytest.fixture
def pretend() -> Pretend:
    return Pretend()


@pytest.fixture
async def get(pretend: Pretend) -> AsyncIterator[Get]:
    async with session_of(pretend) as (session, root):

        async def ask(
            path: str, *, token: str = TOKEN, method: str = "GET", **options: Any
        ) -> tuple[int, str, dict[str, str]]:
            url = f"{root}/{token}/{path}"
            async with session.request(method, url, **options) as answer:
                return answer.status, await answer.text(), dict(answer.headers)

        yield ask


@pytest.fixture
async def begin(pretend: Pretend) -> AsyncIterator[Begin]:
    """The answer to a GET, its body unread."""
    async with session_of(pretend) as (session, root):
        yield lambda path: session.get(f"{root}/{TOKEN}/{path}")


@asynccontextmanager
async def session_of(pretend: Pretend) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A session, and where the pages are."""
    hosts: set[str] = set()
    checked = guard(TOKEN, lambda: frozenset(hosts))
    pages = Pages(one_user(pretend), "team-a", f"/{TOKEN}", checked)
    runner = web.AppRunner(pages.app())
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    port = runner.addresses[0][1]
    hosts.add(f"{LOOPBACK}:{port}")
    async with aiohttp.ClientSession() as session:
        yield session, f"http://{LOOPBACK}:{port}"
    await runner.cleanup()


class _Inline(HTMLParser):
    """What the policy would block: inline scripts, styles and handlers, and other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.found.append(tag)
        self.found += [key for key in given if key == "style" or key.startswith("on")]
        for key in ("src", "href", "action"):
            if (given.get(key) or "").startswith(("http", "//", "javascript:")):
                self.found.append(f"{key}={given[key]}")


@pytest.mark.parametrize("page", PAGES)
async def test_every_page_obeys_a_policy_without_inline_code(get: Get, page: str) -> None:
    status, text, headers = await get(page)
    assert status == 200
    assert headers["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    inline = _Inline()
    inline.feed(text)
    assert inline.found == []


def test_the_policy_forbids_inline_code_other_hosts_and_frames() -> None:
    directives = dict(each.strip().split(" ", 1) for each in POLICY.split(";"))
    assert directives.pop("default-src") == "'none'"
    assert directives.pop("frame-ancestors") == "'none'"
    assert directives.pop("base-uri") == "'none'"
    assert set(directives.values()) == {"'self'"}


@pytest.mark.parametrize("page", [each for each in PAGES if each != "cluster"])
async def test_wide_tables_become_lists_where_there_is_no_room(
    get: Get, pretend: Pretend, page: str
) -> None:
    """A phone would show the first columns only. The cluster's cards are a picture, and scroll."""
    pretend.events = [_event("Reclaimed", note="left", related="taker")]
    _, text, _ = await get(page)
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        is_wide = table.count('<th scope="col"') + table.count('<th class="n" scope') > 3
        assert not is_wide or table.startswith('<table class="stack">'), table[:300]


@pytest.mark.parametrize("page", [*PAGES, f"static/{VERSION}/ballast.js", "nothing"])
async def test_a_wrong_token_is_refused_on_every_path(
    get: Get, pretend: Pretend, page: str
) -> None:
    for token in ("", "a-toke", "a-token2", "static"):
        status, text, _ = await get(page, token=token)
        assert status == 403
        assert "token" in text
    assert pretend.asked == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil"])
async def test_another_host_header_is_refused(get: Get, pretend: Pretend, host: str) -> None:
    status, _, _ = await get("queue", headers={"Host": host})
    assert status == 421
    assert pretend.asked == []


async def test_browsers_keep_static_files_until_these_change(get: Get) -> None:
    """Behind a proxy each request may renew the login, and some issuers renew it once only."""
    _, text, headers = await get("queue")
    assert headers["Cache-Control"] == "no-store"
    named = re.findall(rf'"[^"]*/(static/{VERSION}/[^"]*)"', text)
    assert len(named) == 3
    for path in named:
        status, _, headers = await get(path)
        assert (status, headers["Cache-Control"]) == (200, "private, max-age=31536000, immutable")


async def test_static_files_are_served_and_no_others(get: Get) -> None:
    status, _, headers = await get(f"static/{VERSION}/ballast.css")
    assert (status, headers["Content-Security-Policy"]) == (200, POLICY)
    files = f"static/{VERSION}"
    for path in (f"{files}/../../pages.py", f"{files}/%2e%2e/pages.py", f"{files}/", "static/"):
        status, text, _ = await get(path)
        assert status in {403, 404}, text


async def test_what_objects_say_is_text_and_never_markup(get: Get, pretend: Pretend) -> None:
    bad = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    for each in pretend.items:
        each.workload, each.project, each.message = f"team-a/{bad}", bad, bad
        each.user = each.reason = bad
    pretend.ledger = [node(bad, held={0: 500})]
    pretend.events = [_event("Preempted", note=bad)]
    for page in (*PAGES, f"queue?q={bad}&all=1", f"cluster?q={bad}"):
        _, text, _ = await get(page)
        assert "<script>" not in text
        assert "<img" not in text
    pretend.refused = NoAnswerError(bad, 403)
    status, text, _ = await get("queue")
    assert status == 403
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


async def test_queue_is_that_of_the_own_namespace_unless_asked(get: Get, pretend: Pretend) -> None:
    await get("queue")
    await get("queue?namespace=team-b")
    await get("queue?all=1")
    assert pretend.asked == ["queue team-a", "queue team-b", "queue "]


async def test_a_page_warns_if_no_controller_leads(get: Get, pretend: Pretend) -> None:
    pretend.as_of = AsOf(NOW.time, "8872", "no Ballast controller has led: nothing starts")
    _, text, _ = await get("queue")
    assert '<p class="wrong" role="status">No Ballast controller has led: nothing starts.' in text


@pytest.mark.parametrize("page", ["queue", "evictions"])
async def test_a_page_opens_with_a_namespace_of_a_project_that_the_user_may_see(
    get: Get, pretend: Pretend, page: str
) -> None:
    pretend.listed = ["team-c", "team-b"]
    status, text, _ = await get(page)
    assert (status, 'name="namespace" value="team-b"' in text) == (200, True)
    assert pretend.asked == ["readable", f"{page} team-b"]


async def test_queue_links_to_ways_out_and_filters_by_reason(get: Get) -> None:
    _, text, _ = await get("queue")
    assert f'href="/{TOKEN}/workload/team-a/train-1"' in text
    _, text, _ = await get("queue?reason=OverFairShare")
    assert text.count("team-a/train-1<") == 1
    assert "team-a/train-0<" not in text
    _, text, _ = await get("queue?q=train-2")
    assert "team-a/train-2<" in text
    assert "team-a/train-0<" not in text


async def test_work_of_others_has_no_name_and_no_link(get: Get, pretend: Pretend) -> None:
    for each in pretend.items:
        each.workload = each.user = ""
    _, text, _ = await get("queue")
    assert "of another namespace" in text
    assert "/workload/" not in text


async def test_workload_shows_checks_and_ways_out(get: Get, pretend: Pretend) -> None:
    _, text, _ = await get("workload/team-a/train")
    for words in ("OverFairShare", "Number 1 of 2", "room now", "2 pods or fewer must"):
        assert words in text
    assert (text.count("none free"), text.count("as for room now")) == (1, 1)
    assert "Not tried, since that would have taken too long: more quota." in text
    assert text.endswith("</html>")
    assert pretend.asked == ["explanation team-a/train"] * 2 + ["tried"]


async def test_what_is_known_of_a_workload_comes_before_what_is_tried(
    begin: Begin, pretend: Pretend
) -> None:
    pretend.trying.clear()
    async with begin("workload/team-a/train") as answer:
        first = (await answer.content.readuntil(b"being tried")).decode()
        for words in ("OverFairShare", "Number 1 of 2", "Its queue"):
            assert words in first
        assert answer.headers["Content-Security-Policy"] == POLICY
        pretend.trying.set()
        assert "2 pods or fewer must start together" in await answer.text()


async def test_a_refusal_of_what_is_tried_is_reported_in_its_place(
    begin: Begin, pretend: Pretend
) -> None:
    pretend.trying.clear()
    async with begin("workload/team-a/train") as answer:
        await answer.content.readuntil(b"being tried")
        pretend.refused = NoAnswerError("32 questions wait; ask again", 429)
        pretend.trying.set()
        rest = await answer.text()
    assert "was not tried: 32 questions wait; ask again" in rest
    assert rest.endswith("</html>")


async def test_refused_credentials_of_a_kubeconfig_are_no_login_that_has_ended(
    get: Get, pretend: Pretend
) -> None:
    pretend.refused = NoAnswerError("Unauthorized", 401)
    status, text, _ = await get("shares")
    assert (status, "No answer" in text, "Log in" in text) == (401, True, False)


async def test_shares_put_a_department_before_its_projects(get: Get) -> None:
    _, text, _ = await get("shares")
    assert text.index(">research<") < text.index(">team-a<")
    # 12 GPUs end the scale: the quota of 8 at two thirds, 4 borrowed after it.
    assert '<rect class="borrowed" x="160.0" y="3" width="80.0"' in text
    assert "GPU-hours of the month" in text
    assert ">812.5 of 1000<" in text


async def test_cluster_puts_sick_cards_first_and_counts_pieces(get: Get) -> None:
    _, text, _ = await get("cluster")
    assert text.index("gpu-01") < text.index("gpu-00")
    figures = re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", text)
    assert figures == [
        ("GPUs held", "1.25"),
        ("Whole cards free", "13"),
        ("Free in pieces", "0.75"),
        ("Unhealthy cards", "1"),
    ]


async def test_a_form_asks_what_it_says_and_leaves_out_what_is_as_it_was(
    get: Get, pretend: Pretend
) -> None:
    form = {
        "quota:a/default": "6", "was:a/default": "8", "quota:b/default": "2",
        "was:b/default": "2", "drain": "gpu-1, gpu-2", "like": "gpu-0", "count": "2",
        "project": "a", "pods": "4", "gpus": "0.5",
    }  # fmt: skip
    status, text, _ = await get("whatif", method="POST", data=form)
    assert status == 200
    assert "The next decision would be the same." in text
    assert msgspec.to_builtins(pretend.spec) == {
        "quotas": {"a/default": "6"},
        "drain": ["gpu-1", "gpu-2"],
        "addNodes": [{"like": "gpu-0", "count": 2}],
        "jobs": [{"project": "a", "gpus": "0.5", "pods": 4}],
    }
    assert "--quota a/default=6 --drain gpu-1 --drain gpu-2" in text


async def test_each_change_has_its_sign_and_a_colour(get: Get, pretend: Pretend) -> None:
    pretend.changes = [Change(what, f"a/{ix}", "a", 1, "1") for ix, what in enumerate(SIGNS)]
    _, text, _ = await get("whatif", method="POST", data={"drain": "gpu-1"})
    _, style, _ = await get(f"static/{VERSION}/ballast.css")
    for what, sign in SIGNS.items():
        shown = str(Text.from_markup(sign)).replace("-", "\u2212")
        name = what.replace(" ", "-")
        assert f'<span class="change {name}">{shown} {what}</span>' in text
        assert what == "waits" or f".change.{name}" in style


@pytest.mark.parametrize("form", [{}, {"like": "gpu-0", "count": "many"}])
async def test_a_form_that_says_nothing_or_nonsense_is_not_asked(
    get: Get, pretend: Pretend, form: dict[str, str]
) -> None:
    status, text, _ = await get("whatif", method="POST", data=form)
    assert status == 422
    assert 'role="alert"' in text
    assert pretend.spec is None


async def test_one_evicted_pod_is_counted_in_the_singular(get: Get, pretend: Pretend) -> None:
    pretend.events = [_event("Reclaimed", note="reclaimed for project c")]
    _, text, _ = await get("evictions")
    assert "<small>1 pod in the events" in text


async def test_evictions_that_helped_nothing_stand_out(get: Get, pretend: Pretend) -> None:
    pretend.events = [
        _event("Preempted", note="preempted for a", related="gone-uid"),
        _event("WaitingForVictims", note="1 pod leaves for it", uid="gone-uid"),
        _event("Preempted", note="preempted for b", related="ran-uid"),
        _event("Reclaimed", note="reclaimed for project c"),
    ]
    pretend.fates = {"gone-uid": "gone", "ran-uid": "started"}
    _, text, _ = await get("evictions")
    assert "Pods were evicted for 1 workload that never started" in text
    assert text.count('<tr class="bad">') == 2
    assert text.index("preempted for a") < text.index("reclaimed for project c")


@pytest.mark.parametrize("page", ["queue", "cluster"])
async def test_first_rows_of_a_large_cluster_come_within_a_second(
    get: Get, pretend: Pretend, page: str
) -> None:
    pretend.items = waiting(10_000)
    pretend.ledger = [
        node(f"gpu-{i:04}", held=dict.fromkeys(range(i % 9), 500)) for i in range(5000)
    ]
    started_s, cpu_s = time.perf_counter(), time.process_time()
    _, text, _ = await get(page)
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    assert text.count("<tr") <= ROWS + 2
    assert f"1 to {ROWS} of" in text
    print(f"{page}: {took_s:.3f} s, {cpu_s:.3f} s of CPU, {len(text) / 1024:.0f} KiB")
    # Client and server are one process here; its CPU time does not depend on other tests.
    assert cpu_s < 1.0
    _, last, _ = await get(f"{page}?page=999999")
    assert f"{'10000 of 10000' if page == 'queue' else '5000 of 5000'}" in last


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(scheme: str) -> None:
    colours = _colours(scheme)
    for back in ("back", "soft", "bad-soft"):
        for fore in ("fore", "dim", "link", "bad"):
            assert _contrast(colours[fore], colours[back]) >= 4.5, (fore, back)
    for fore in ("good", "warn"):
        assert _contrast(colours[fore], colours["back"]) >= 4.5, fore
    # Pictures need 3 to 1 against what they lie on.
    for fore in ("held", "borrowed", "fair"):
        assert _contrast(colours[fore], colours["back"]) >= 3, fore


def _event(reason: str, *, note: str, related: str = "", uid: str = "victim") -> Event:
    told: dict[str, Any] = {
        "reason": reason,
        "message": note,
        "type": "Normal" if reason == "WaitingForVictims" else "Warning",
        "involvedObject": {"name": "p", "namespace": "team-a", "uid": uid, "kind": "Pod"},
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
    }
    if related:
        told["related"] = {"name": "b", "namespace": "team-a", "uid": related, "kind": "Pod"}
    return msgspec.convert(told, Event)


def _colours(scheme: str) -> dict[str, str]:
    css = (Path(__file__).parents[3] / "extender/web/static/ballast.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.S)
    block = blocks[0 if scheme == "light" else 1]
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))


def _contrast(one: str, other: str) -> float:
    """WCAG 2.1: (lighter + 0.05) / (darker + 0.05) of the relative luminances."""
    lights = sorted((_luminance(one), _luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
