"""The arbiter's thread executes plans exactly as they were made."""

import contextlib
import ctypes
import gc
import mmap
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpu_shim.arbiter.fast_path.event_loop import EventLoop
from gpu_shim.arbiter.fast_path.events import CardState, Events, Handover, Plan
from gpu_shim.native.build import HERE, compile_c
from gpu_shim.protocol import wire
from gpu_shim.protocol.pages import Grants, Library
from gpu_shim.protocol.wire import Gate, Kind, Message
from tests.integration.gpu_shim.containers import DONE_S

MS = 1_000_000
LONG_NS = 3600 * 1000 * MS
#: When a plan is due that is to be stopped before: later than a busy machine stops a test.
SOON_MS = 500
AFTER_S = 0.6


def now_ns() -> int:
    return time.monotonic_ns()


@dataclass
class Stage:
    """Two containers on one card, each with one process; the thread runs."""

    library: Library
    loop: EventLoop = field(default_factory=EventLoop)
    grants: dict[str, Grants] = field(default_factory=dict)
    pages: dict[str, mmap.mmap] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    ends: dict[str, socket.socket] = field(default_factory=dict)
    connections: dict[str, int] = field(default_factory=dict)
    ours: list[socket.socket] = field(default_factory=list)
    handovers: list[Handover] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)

    def enter(self, name: str, n_cards: int = 1) -> None:
        self.grants[name] = Grants(self.library, n_cards)
        fd = self.grants[name].fd
        self.pages[name] = mmap.mmap(fd, wire.GRANTS_SIZE, access=mmap.ACCESS_READ)
        cards = list(range(n_cards))
        self.slots[name] = self.loop.add_container(self.grants[name].address, cards)
        self.connect(name, name)

    def connect(self, name: str, process: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ends[process] = theirs
        self.ours.append(ours)
        self.connections[process] = self.loop.add_connection(self.slots[name], ours.fileno())

    def gate(self, name: str) -> tuple[Gate, int, int]:
        """(gate, generation, deadline) as the container sees it."""
        raw = wire.GRANT.unpack_from(self.pages[name], wire.GRANTS_HEAD.size)
        return Gate(raw[0]), raw[1], raw[2]

    @property
    def card(self) -> CardState:
        return self.loop.card(0)

    def say(self, process: str, kind: Kind, value: int = 0) -> None:
        self.ends[process].send(Message(kind, 0, value).encode())

    def want(self, process: str, name: str = "") -> None:
        """The process wants the card, and that has been received."""
        before = self.loop.n_users(self.slots[name or process], 0)
        self.say(process, Kind.WANT)
        until(lambda: self.loop.n_users(self.slots[name or process], 0) == before + 1)

    def drain(self, name: str, process: str = "") -> None:
        """What a process does after its gate has closed."""
        until(lambda: self.gate(name)[0] == Gate.CLOSED)
        self.say(process or name, Kind.DRAINED, self.gate(name)[1])

    def is_woken(self) -> bool:
        """Whether there are events for the scheduler."""
        return bool(select.select([self.loop], [], [], 0)[0])

    def begin(self) -> Events:
        events = self.loop.begin_decision()
        self.handovers += events.handovers
        self.ended += events.ended
        return events

    def take(self) -> Events:
        """Events; nothing is decided."""
        events = self.begin()
        self.loop.end_decision()
        return events

    def has_ended(self, process: str) -> bool:
        self.take()
        return self.connections[process] in [connection for _, connection in self.ended]

    def lend(self, name: str, ns: int) -> None:
        """Give a container the card from now on, as the scheduler would."""
        if not self.loop.n_users(self.slots[name], 0):
            self.want(name)
        self.begin()
        self.loop.set_gate(self.slots[name], 0, Gate.LEASED, now_ns() + ns)
        self.loop.end_decision()

    def plan(self, after_ns: int, successor: str = "", **more: int) -> None:
        """Say what comes after the holder."""
        self.begin()
        then = {"latest_ns": LONG_NS + now_ns(), "run_ns": LONG_NS} | more
        to = (self.slots[successor], 0) if successor else (-1, 0)
        is_renewal = self.card.holder == to[0]
        plan = Plan(now_ns() + after_ns, successor=to, is_renewal=is_renewal, **then)
        self.loop.plan(0, plan)
        self.loop.end_decision()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DONE_S
    while not holds():
        assert time.monotonic() < end, f"not seen in {DONE_S:g} s"
        time.sleep(0.001)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """What Python writes shared pages with; the rest of the native part is not needed."""
    made = tmp_path_factory.mktemp("pages") / "libballast-pages.so"
    compile_c(made, [HERE / "pages.c", HERE / "table.c"])
    return Library(made)


@pytest.fixture
def stage(pages: Library) -> Iterator[Stage]:
    made = Stage(pages)
    for name in "ab":
        made.enter(name)
    thread = threading.Thread(target=made.loop.run)
    thread.start()
    yield made
    made.loop.stop()
    thread.join()
    for sock in (*made.ends.values(), *made.ours):
        sock.close()


def test_the_successor_is_let_in_when_the_holder_has_drained(stage: Stage) -> None:
    stage.lend("a", 20 * MS)
    stage.plan(20 * MS, "b", run_ns=500 * MS)
    until(lambda: stage.gate("a")[0] == Gate.CLOSED)
    assert stage.gate("b")[0] == Gate.CLOSED
    stage.drain("a")
    until(lambda: stage.gate("b")[0] == Gate.LEASED)
    stage.take()
    (done,) = stage.handovers
    assert done.card == 0
    assert done.opened_ns > done.closed_ns
    assert done.drain_ns == done.opened_ns - done.closed_ns
    assert stage.gate("b")[2] == done.opened_ns + 500 * MS
    assert stage.card == CardState(stage.slots["b"], Gate.LEASED, 0, 0)


def test_a_renewed_lease_does_not_close_the_gate(stage: Stage) -> None:
    stage.lend("a", 10 * MS)
    generation = stage.gate("a")[1]
    stage.plan(10 * MS, "a", run_ns=700 * MS)
    until(lambda: stage.gate("a")[1] == generation + 1)
    stage.take()
    assert stage.gate("a")[0] == Gate.LEASED
    assert [(done.closed_ns, done.drain_ns) for done in stage.handovers] == [(0, 0)]
    assert stage.gate("a")[2] == stage.handovers[0].opened_ns + 700 * MS


def test_a_successor_without_a_deadline_is_let_in_for_good(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS, "b", run_ns=0)
    stage.drain("a")
    until(lambda: stage.gate("b") == (Gate.OPEN, stage.gate("b")[1], 0))


class Asleep(threading.Thread):
    """Waits for changes of a container's grants, as one of the kinds that layout.h defines."""

    HELPER, IN_TURN = 1, 2

    def __init__(self, grants: Grants, who: int) -> None:
        super().__init__(daemon=True)
        self.word = grants.address + 12
        self.seen = ctypes.c_uint32.from_address(self.word).value
        self.who = who
        self.start()
        until(lambda: "futex" in Path(f"/proc/self/task/{self.native_id}/wchan").read_text())

    def run(self) -> None:
        number = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
        wait, word = 9, ctypes.c_void_p(self.word)
        ctypes.CDLL(None).syscall(number, word, wait, self.seen, None, None, self.who)


def test_opening_wakes_waiting_threads_and_closing_wakes_helpers(stage: Stage) -> None:
    """A helper that an opening woke would take the processor from the thread that launches."""
    helper, in_turn = (Asleep(stage.grants["a"], who) for who in (Asleep.HELPER, Asleep.IN_TURN))
    stage.loop.set_gate(stage.slots["a"], 0, Gate.OPEN, 0)
    in_turn.join(DONE_S)
    helper.join(0.1)
    assert not in_turn.is_alive()
    assert helper.is_alive()
    in_turn = Asleep(stage.grants["a"], Asleep.IN_TURN)
    stage.loop.set_gate(stage.slots["a"], 0, Gate.CLOSED, 0)
    helper.join(DONE_S)
    assert not helper.is_alive()
    assert in_turn.is_alive()
    stage.loop.set_gate(stage.slots["a"], 0, Gate.OPEN, 0)
    in_turn.join(DONE_S)


def test_without_a_successor_the_gate_closes_and_the_scheduler_decides(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS)
    stage.drain("a")
    until(lambda: stage.card.n_awaited == 0)
    until(stage.is_woken)
    stage.take()
    assert [done.opened_ns for done in stage.handovers] == [0]
    assert stage.gate("b")[0] == Gate.CLOSED


def test_a_late_drain_leaves_the_decision_to_the_scheduler(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS, "b", latest_ns=now_ns())
    stage.drain("a")
    until(lambda: stage.card.n_awaited == 0)
    assert stage.gate("b")[0] == Gate.CLOSED


def test_the_scheduler_is_not_woken_before_the_successor_is_let_in(stage: Stage) -> None:
    """Python that runs during a hand-over would only delay it."""
    stage.connect("a", "a2")
    stage.want("a2", "a")
    stage.lend("a", 30 * MS)
    stage.plan(30 * MS, "b")
    until(lambda: stage.gate("a")[0] == Gate.CLOSED)
    assert not stage.is_woken()
    stage.drain("a")
    until(lambda: stage.card.n_awaited == 1)
    assert not stage.is_woken()
    stage.drain("a", "a2")
    until(lambda: stage.gate("b")[0] == Gate.LEASED)
    until(stage.is_woken)


def test_the_scheduler_is_woken_when_it_gets_late(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS, "b", latest_ns=now_ns() + 30 * MS)
    until(stage.is_woken)
    stage.take()
    assert [(done.closed_ns > 0, done.opened_ns) for done in stage.handovers] == [(True, 0)]


def test_plans_rest_while_the_scheduler_decides(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(SOON_MS * MS, "b")
    stage.begin()
    time.sleep(AFTER_S)
    assert stage.gate("a")[0] == Gate.LEASED
    stage.loop.end_decision()
    assert stage.gate("a")[0] == Gate.CLOSED


def test_a_plan_that_was_taken_back_is_not_carried_out(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(SOON_MS * MS, "b")
    stage.begin()
    stage.loop.plan(0, None)
    stage.loop.end_decision()
    time.sleep(AFTER_S)
    assert stage.gate("a")[0] == Gate.LEASED


def test_all_processes_that_used_the_card_are_awaited_and_no_others(stage: Stage) -> None:
    stage.connect("a", "a2")
    stage.connect("a", "idle")
    stage.want("a2", "a")
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS, "b")
    stage.drain("a")
    until(lambda: stage.card.n_awaited == 1)
    assert stage.gate("b")[0] == Gate.CLOSED
    # The scheduler hears of that and changes nothing, so the plan still holds.
    stage.take()
    stage.drain("a", "a2")
    until(lambda: stage.gate("b")[0] == Gate.LEASED)


def test_a_process_that_has_ended_is_not_awaited(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS, "b")
    until(lambda: stage.gate("a")[0] == Gate.CLOSED)
    stage.ends["a"].close()
    until(lambda: stage.gate("b")[0] == Gate.LEASED)
    assert stage.has_ended("a")
    assert not stage.loop.is_wanted(stage.slots["a"])


@pytest.mark.parametrize("generation", [0, 1, 7, 2**32 - 1])
def test_drained_of_another_generation_means_nothing(stage: Stage, generation: int) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS, "b")
    until(lambda: stage.gate("a")[0] == Gate.CLOSED)
    assert generation != stage.gate("a")[1]
    stage.say("a", Kind.DRAINED, generation)
    stage.want("b")
    assert stage.card.n_awaited == 1
    assert stage.gate("b")[0] == Gate.CLOSED


def test_a_process_that_drains_too_late_does_not_count_for_the_next_holder(stage: Stage) -> None:
    stage.enter("c")
    stage.lend("a", 1 * MS)
    stage.plan(1 * MS)
    until(lambda: stage.gate("a")[0] == Gate.CLOSED)
    stage.lend("b", 1 * MS)
    stage.plan(1 * MS, "c")
    until(lambda: stage.gate("b")[0] == Gate.CLOSED)
    stage.drain("a")
    stage.want("c")
    assert stage.card.n_awaited == 1
    assert stage.gate("c")[0] == Gate.CLOSED
    # Numbers of generations are each gate's own, and may be the same.
    stage.drain("b")
    until(lambda: stage.gate("c")[0] == Gate.LEASED)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 15,
        b"\0" * 17,
        Message(Kind.HELLO, value=wire.VERSION).encode(),
        Message(Kind.WELCOME).encode(),
        Message(Kind.WANT, card=1).encode(),
        Message(Kind.WANT, card=255).encode(),
        b"\x03\0\1\0" + b"\0" * 12,
        b"\xff" * 16,
        b"x" * 4096,
    ],
)
def test_a_message_that_is_not_allowed_ends_its_connection_and_no_other(
    stage: Stage, data: bytes
) -> None:
    stage.ends["a"].send(data)
    until(lambda: stage.has_ended("a"))
    stage.want("b")


def test_descriptors_that_come_with_a_message_are_dropped(stage: Stage) -> None:
    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()
    before = n_open()
    for _ in range(100):
        socket.send_fds(stage.ends["a"], [Message(Kind.WANT).encode()], [0, 1])
    stage.say("a", Kind.YIELD)
    until(lambda: stage.loop.n_users(stage.slots["a"], 0) == 1)
    until(lambda: not stage.loop.is_wanted(stage.slots["a"]))
    assert n_open() == before


def _is_sent(stage: Stage, kind: Kind) -> bool:
    with contextlib.suppress(BlockingIOError):
        stage.say("a", kind)
        return True
    return False


def test_of_a_flood_only_the_last_state_counts(stage: Stage) -> None:
    stage.ends["a"].setblocking(False)
    for _ in range(5000):
        with contextlib.suppress(BlockingIOError):
            stage.say("a", Kind.WANT)
            stage.say("a", Kind.YIELD)
    until(lambda: _is_sent(stage, Kind.YIELD))
    stage.want("b")
    until(lambda: not stage.loop.is_wanted(stage.slots["a"]))
    assert stage.take().containers
    until(lambda: not stage.take().containers)


def test_a_container_that_is_removed_voids_plans_that_name_it(stage: Stage) -> None:
    stage.lend("a", 1 * MS)
    stage.plan(SOON_MS * MS, "b")
    stage.begin()
    stage.loop.remove_container(stage.slots["b"])
    stage.loop.end_decision()
    time.sleep(AFTER_S)
    assert stage.gate("a")[0] == Gate.LEASED
    assert stage.gate("b")[0] == Gate.CLOSED
    assert stage.loop.add_container(stage.grants["b"].address, [0]) == stage.slots["b"]


def test_a_container_has_from_one_to_sixteen_cards_of_those_there_are(stage: Stage) -> None:
    address = stage.grants["a"].address
    for cards in ([], [0] * 17, [64], [-1]):
        with pytest.raises(ValueError, match="card"):
            stage.loop.add_container(address, cards)
