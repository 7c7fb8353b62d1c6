"""The users' start pages, and each page as JSON, as a stream, and in another order."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import click
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from extender.__main__ import main
from extender.web import answering
from extender.web.guard import guard_behind_proxy
from extender.web.identity import one_user
from extender.web.pages import Pages
from extender.web.people import PeoplePages
from extender.web.questions import NoAnswerError
from extender.web.tables import ROWS
from extender.web.usage import UsageRecord, by_project, by_user
from tests.support.builders import pod
from tests.unit.web.pretend import Pretend, node, waiting

LOOPBACK = "127.0.0.1"
HOUR = 3_600_000

Ask = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def pretend() -> Pretend:
    return Pretend()


@pytest.fixture
async def url(pretend: Pretend) -> AsyncIterator[str]:
    pages = Pages(one_user(pretend), "team-a", "", guard_behind_proxy, login="/login")
    runner = web.AppRunner(pages.app(), shutdown_timeout=5)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    yield f"http://{LOOPBACK}:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def ask(url: str) -> AsyncIterator[Ask]:
    async with aiohttp.ClientSession() as session:

        async def send(path: str, method: str = "GET", **options: Any) -> tuple[int, str]:
            async with session.request(method, f"{url}/{path}", **options) as answer:
                return answer.status, await answer.text()

        yield send


def record(name: str, *lines: tuple[str, int, int], over: int = 0) -> UsageRecord:
    """A project's day: (user, hours held, hours lost) in one hour of it."""
    made = [
        {"user": user, "nodePool": "default", "held": [0, held * HOUR], "lost": [lost * HOUR]}
        for user, held, lost in lines
    ]
    spec = {
        "account": "Project", "name": name, "day": "2026-10-01", "lines": made,
        "overQuota": [{"held": [over * HOUR]}],
    }  # fmt: skip
    return msgspec.convert({"metadata": {}, "spec": spec}, UsageRecord)


async def test_my_work_is_what_waits_runs_and_was_stopped_with_forecasts(
    ask: Ask, pretend: Pretend
) -> None:
    pretend.items = [*waiting(1), *waiting(1, workload="team-b/theirs")]
    member = pod("run-1").needs(500).gang("train", 2).of("team-a").bound("gpu-07")
    pretend.running = [member.build(), pod("idle").needs(500).build()]
    status, text = await ask("mine")
    assert status == 200
    assert "team-a/train-0" in text
    assert "team-b/theirs" not in text
    assert "no forecast" in text
    assert "what would let it start" in text
    assert "team-a/train<" in text
    assert "gpu-07" in text
    assert "/idle" not in text
    assert "kubectl ballast queue -n team-a" in text


async def test_my_work_shows_four_namespaces_and_says_how_many_it_leaves_out(ask: Ask) -> None:
    asked = ",".join(f"team-{letter}" for letter in "abcdef")
    _, text = await ask(f"mine?namespace={asked}")
    assert "2 more namespaces are yours" in text
    _, text = await ask("mine?namespace=team-a,team-b,team-c,team-d")
    assert "more namespaces are yours" not in text


@pytest.mark.parametrize(
    ("own", "listed", "asked"),
    [
        ("team-a", ["team-a", "team-b"], ["team-a"]),
        # No project lists it: all that the user may read.
        ("default", ["team-b", "team-a"], ["team-a", "team-b"]),
        ("", ["team-b"], ["team-b"]),
        ("default", [], ["default"]),
    ],
)
async def test_my_work_is_in_the_own_namespace_if_a_project_lists_it(
    pretend: Pretend, own: str, listed: list[str], asked: list[str]
) -> None:
    pretend.listed = listed
    request: Any = make_mocked_request("GET", "/mine")
    await PeoplePages(one_user(pretend), own).mine(request)
    assert [each for each in pretend.asked if each.startswith("queue")] == [
        f"queue {name} own" for name in asked
    ]


async def test_who_may_see_no_work_is_told_what_is_enough(pretend: Pretend) -> None:
    pretend.listed = []
    request: Any = make_mocked_request("GET", "/mine")
    with pytest.raises(NoAnswerError, match="role view in one of them is enough"):
        await PeoplePages(one_user(pretend), "").mine(request)


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("mine", "queue -n team-a"),
        ("project/team-a", "shares"),
        ("usage?month=2026-10", "report usage --month 2026-10"),
        (
            "usage?month=2026-10&project=team-a",
            "report usage --month 2026-10 --by project,user",
        ),
        ("queue", "queue -n team-a"),
        ("queue?all=1", "queue -A"),
        ("workload/team-a/train", "why train -n team-a"),
        ("shares", "shares"),
        ("cluster", "top gpus"),
        ("whatif", "whatif --help"),
        ("evictions", "history -n team-a --evictions"),
        ("evictions?all=1", "history -A --evictions"),
    ],
)
async def test_every_page_shows_a_command_that_prints_the_same(
    ask: Ask, page: str, command: str
) -> None:
    _, text = await ask(page)
    assert f"The same in a terminal: <code>kubectl ballast {command}</code>" in text
    found: click.Command | None = main
    words = [word for word in command.split() if word != "--help"]
    while isinstance(found, click.Group):
        _, found, words = found.resolve_command(click.Context(found), words)
    assert found is not None
    assert found.make_context("", words).params


async def test_a_project_shows_figures_and_users(ask: Ask, pretend: Pretend) -> None:
    pretend.running = [pod("a").needs(1000).user("bo").of("team-a").bound("n").build()]
    _, text = await ask("project/team-a")
    figures = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", text))
    assert (figures["Quota"], figures["Fair share"], figures["Borrowed"]) == ("8", "10", "4")
    assert re.search(r">bo</th><td class=\"n\">1<", text)
    assert re.search(r">ann</th><td class=\"n\">0</td><td class=\"n\">24<", text)
    status, text = await ask("project/nothing")
    assert (status, "no project nothing" in text) == (404, True)


async def test_a_project_says_nothing_of_namespaces_that_the_user_may_not_see(
    ask: Ask, pretend: Pretend
) -> None:
    pretend.listed, pretend.hidden = ["team-a", "secret"], {"secret"}
    _, text = await ask("project/team-a")
    assert "pods of secret are forbidden" in text
    assert "<h2>Users <small>team-a</small></h2>" in text
    pretend.hidden = {"team-a", "secret"}
    _, text = await ask("project/team-a")
    assert "pods of team-a are forbidden" in text
    assert "no running or pending work" not in text
    assert "None." not in text


async def test_my_work_counts_what_runs_beyond_the_rows_that_it_shows(
    ask: Ask, pretend: Pretend
) -> None:
    pretend.running = [
        pod(f"run-{ix}").needs(500).gang(f"g-{ix}", 1).of("team-a").bound("n").build()
        for ix in range(ROWS + 1)
    ]
    _, text = await ask("mine")
    assert f"<h2>Runs <small>{ROWS + 1}</small></h2>" in text


async def test_usage_sums_a_month_by_project_and_by_user(ask: Ask, pretend: Pretend) -> None:
    pretend.records = [record("a", ("ann", 3, 1), ("bo", 5, 0), over=2), record("b", ("eve", 1, 0))]
    project = by_project(pretend.records)
    assert [(s.name, s.held, s.borrowed, s.lost) for s in project] == [
        ("a", 8, 2, 1),
        ("b", 1, 0, 0),
    ]
    assert [(s.name, s.held) for s in by_user(pretend.records, "a")] == [("bo", 5), ("ann", 3)]
    _, text = await ask("usage?month=2026-10")
    assert "9.0 GPU-hours on 1 day" in text
    _, text = await ask("usage?month=2026-10&project=a")
    assert text.index("bo") < text.index("ann")
    assert "eve" not in text
    await ask("usage?month=;DROP")
    assert [each for each in pretend.asked if "DROP" in each] == []


async def test_a_cluster_without_usage_records_says_so(ask: Ask, pretend: Pretend) -> None:
    pretend.refused = NoAnswerError("the server could not find the requested resource", 404)
    status, text = await ask("usage")
    assert (status, "keeps no usage records" in text) == (200, True)


@pytest.mark.parametrize(
    ("page", "key"),
    [("mine", "waiting"), ("project/team-a", "queues"), ("usage", "items"), ("queue", "items"),
     ("workload/team-a/train", "waysOut"), ("shares", "items"), ("cluster", "nodes"),
     ("evictions", "stopped")],
)  # fmt: skip
async def test_every_page_is_json_for_a_program_that_asks_for_it(
    ask: Ask, page: str, key: str
) -> None:
    status, text = await ask(page, headers={"Accept": "application/json"})
    assert status == 200
    assert key in json.loads(text)
    _, text = await ask(page, headers={"Accept": "text/html,application/json;q=0.9"})
    assert text.startswith("<!doctype html>")


async def test_a_refusal_is_json_too(ask: Ask, pretend: Pretend) -> None:
    pretend.refused = NoAnswerError("forbidden", 403)
    status, text = await ask("queue", headers={"Accept": "application/json"})
    assert (status, json.loads(text)) == (403, {"message": "forbidden", "code": 403})


def test_a_connection_may_wait_for_longer_than_a_stream_lives() -> None:
    assert answering.LIMITS.request_s > answering.ROUNDS * answering.EVERY_S + answering.EVERY_S


async def test_a_stream_sends_the_page_again_only_when_it_has_changed(
    url: str, pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "EVERY_S", 0.01)
    headers = {"Accept": "text/event-stream"}
    async with (
        aiohttp.ClientSession(headers=headers, read_bufsize=2**20) as session,
        session.get(f"{url}/shares") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]

        async def event() -> str:
            lines = []
            while (line := (await answer.content.readline()).decode()).strip():
                lines.append(line.removeprefix("data: "))
            return "".join(lines)

        first = await event()
        assert first.startswith("<!doctype html>")
        asked = len(pretend.asked)
        while len(pretend.asked) < asked + 3:
            await asyncio.sleep(0)
        pretend.refused = NoAnswerError("later", 503)
        # The next event is the changed page: the rounds between sent nothing.
        assert "later" in await event()


async def test_a_stream_ends_with_the_login_and_leaves_the_page_as_it_is(
    url: str, pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser asks again, with another token where the proxy has one."""
    monkeypatch.setattr(answering, "EVERY_S", 0.01)
    headers = {"Accept": "text/event-stream"}
    async with aiohttp.ClientSession(headers=headers, read_bufsize=2**20) as session:
        async with session.get(f"{url}/shares") as answer:
            await answer.content.readuntil(b"</html>")
            pretend.refused = NoAnswerError("Unauthorized", 401)
            assert (await answer.content.read()).strip() == b""
        async with session.get(f"{url}/shares") as answer:
            assert "Your login has expired" in await answer.text()


async def test_an_ended_login_leads_to_a_new_one_and_back(ask: Ask, pretend: Pretend) -> None:
    pretend.refused = NoAnswerError("Unauthorized", 401)
    status, text = await ask("queue?namespace=team-a&q=x")
    assert (status, 'href="/login?rd=/queue%3Fnamespace%3Dteam-a%26q%3Dx"' in text) == (401, True)
    pretend.refused = NoAnswerError("forbidden", 403)
    _, text = await ask("queue")
    assert "Your login" not in text


async def test_streams_are_bounded_and_end_with_the_program(
    url: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "MOST_STREAMS", 1)
    headers = {"Accept": "text/event-stream"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{url}/shares"):
        status, _ = await ask("shares", headers=headers)
        assert status == 503
    # The fixture's cleanup would wait for a stream that goes on.


async def test_tables_have_the_order_of_the_heading_that_was_chosen(
    ask: Ask, pretend: Pretend
) -> None:
    pretend.ledger = [node("a", held={0: 500}), node("b", cards=2), node("c", held={0: 200})]
    # a has 7.5 GPUs free, b 2 and c 7.8; by default most pieces come first.
    for sort, names in (("free", "bac"), ("-free", "cab"), ("node", "abc"), ("nothing", "cab")):
        _, text = await ask(f"cluster?sort={sort}")
        assert "".join(re.findall(r'<th scope="row">([abc])</th>', text)) == names, sort
    _, text = await ask("cluster?sort=free&q=")
    assert 'aria-sort="ascending"' in text
    assert "sort=-free" in text


async def test_a_form_of_another_site_is_refused(ask: Ask, url: str, pretend: Pretend) -> None:
    form = {"project": "a"}
    for origin in ("https://evil.example", "null", ""):
        status, _ = await ask("whatif", "POST", data=form, headers={"Origin": origin})
        assert status == 403
    assert pretend.spec is None
    status, _ = await ask("whatif", "POST", data=form, headers={"Origin": url})
    assert status == 200


async def test_pages_of_now_are_live_unless_the_reader_says_otherwise(ask: Ask) -> None:
    for page, is_live in (("shares", True), ("shares?live=0", False), ("usage", False)):
        _, text = await ask(page)
        assert ("data-live" in text) is is_live, page
