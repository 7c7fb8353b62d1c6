"""Files of queues, and a window in which the API server sometimes fails."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.kube.errors import RequestRefused, Unavailable
from extender.kube.transport import Call
from extender.shadow import reading
from extender.shadow.command import shadow
from extender.shadow.reading import OLD_LISTS, QueueFileError, Window, read_queues, watch

HEAD = "apiVersion: ballast.dev/v1alpha1\nkind: GpuProject\n"
EMPTY = b'{"items": [], "metadata": {}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEAD}metadata: [x]\n", "GpuProject without a name: Expected `object`, got `array`"),
        (f"{HEAD}metadata: {{}}\n", "GpuProject without a name: Object missing required field"),
        (f"{HEAD}metadata: {{name: a}}\nspec: 5\n", "GpuProject a: Expected `object`, got `int`"),
        (f"{HEAD}metadata: {{name: a}}\nspec: {{namespaces: x}}\n", "$.spec.namespaces"),
        (f"{HEAD}metadata: {{name: {{}}}}\n", "$.metadata.name"),
        ("a: 2026-99-99\n", "neither YAML nor JSON"),
        ("a: [\n", "expected the node content, but found '<stream end>' in line 2, column 1"),
        ("[" * 5000, "it is nested too deeply"),
        ("? [1]\n: 2\n", "neither YAML nor JSON"),
        ("kind: X\n---\n\n---\n- kind: Y\n", "has no GpuProject"),
        ("kind: X\n---\nhello\n", "'hello' is not an object"),
        ("apiVersion: other/v1\nkind: GpuProject\nmetadata: {name: a}\n", "has no GpuProject"),
    ],
)
def test_odd_file_of_queues_is_reported_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(QueueFileError) as told:
        read_queues(Path("q.yaml"), text)
    assert str(told.value).startswith("q.yaml: ")
    assert said in str(told.value)


def test_file_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_bytes(b"kind: \xff\xfe")
    for args, given in ((["--queues", str(path)], None), (["--queues", "-"], b"\xff")):
        done = CliRunner().invoke(shadow, args, input=given)
        assert done.exit_code == 1
        assert done.stderr.endswith(": not UTF-8\n")


def test_page_that_cannot_be_written_is_reported_before_the_first_look(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "report.html"
    done = CliRunner().invoke(shadow, ["--html", str(path), "--kubeconfig", "/nowhere"])
    assert done.exit_code == 1
    assert "report.html could not be written: No such file or directory" in done.stderr


class Silent:
    """A reflector of a cluster without objects."""

    def __init__(self, *_: object) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def wait_synced(self) -> None:
        pass


class Server:
    """Answers with empty lists; from look `at` on, the list of Kueue's Workloads goes wrong."""

    def __init__(self, at: int, error: Exception | None) -> None:
        self.at, self.error, self.asked = at, error, 0
        self.is_stuck = asyncio.Event()

    async def send(self, call: Call) -> bytes:
        if "workloads" in call.path:
            self.asked += 1
            if self.asked >= self.at:
                if self.error is not None:
                    raise self.error
                self.is_stuck.set()
                await asyncio.Event().wait()
        return EMPTY


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "Reflector", Silent)


def looking(server: Any) -> Any:
    return watch(server, [], Window(0.05, 0.02), lambda _: None)


async def test_list_that_fails_later_leaves_the_last_one_and_is_counted() -> None:
    record = await looking(Server(2, Unavailable("503")))
    assert record.looks >= 2
    assert {each.text: each.count for each in record.report().not_known} == {OLD_LISTS: 1}


async def test_list_that_fails_at_the_first_look_ends_the_command() -> None:
    with pytest.raises(Unavailable):
        await looking(Server(1, Unavailable("503")))


async def test_kind_that_may_not_be_listed_is_no_failure() -> None:
    record = await looking(Server(1, RequestRefused("403")))
    assert not record.report().not_known


async def test_end_by_hand_while_lists_are_read_keeps_the_looks() -> None:
    server = Server(2, None)
    task = asyncio.ensure_future(looking(server))
    await server.is_stuck.wait()
    task.cancel()
    assert (await task).looks == 1
