"""The arbiter's thread: turns are passed as they were decided before, and never otherwise."""

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

from gpu_shim.arbiter import wire
from gpu_shim.arbiter.news import Act, Order, Said
from gpu_shim.arbiter.pages import Grants, Library
from gpu_shim.arbiter.relay import Relay
from gpu_shim.arbiter.wire import Gate, Kind, Message
from gpu_shim.native.build import HERE, compile_c

MS = 1_000_000
LONG_NS = 3600 * 1000 * MS


def now_ns() -> int:
    return time.monotonic_ns()


@dataclass
class Hall:
    """Two containers on one card, each with one process; the thread runs."""

    library: Library
    relay: Relay = field(default_factory=Relay)
    grants: dict[str, Grants] = field(default_factory=dict)
    pages: dict[str, mmap.mmap] = field(default_factory=dict)
    doors: dict[str, int] = field(default_factory=dict)
    ends: dict[str, socket.socket] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    ours: list[socket.socket] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)

    def enter(self, name: str, n_cards: int = 1) -> None:
        self.grants[name] = Grants(self.library, n_cards)
        fd = self.grants[name].fd
        self.pages[name] = mmap.mmap(fd, wire.GRANTS_SIZE, access=mmap.ACCESS_READ)
        self.doors[name] = self.relay.open_door(self.grants[name].address, list(range(n_cards)))
        self.connect(name, name)

    def connect(self, name: str, process: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ends[process] = theirs
        self.ours.append(ours)
        self.lines[process] = self.relay.watch(self.doors[name], ours.fileno())

    def gate(self, name: str) -> tuple[Gate, int, int]:
        """(gate, generation, deadline) as the container sees it."""
        raw = wire.GRANT.unpack_from(self.pages[name], wire.GRANTS_HEAD.size)
        return Gate(raw[0]), raw[1], raw[2]

    def say(self, process: str, kind: Kind, value: int = 0) -> None:
        self.ends[process].send(Message(kind, 0, value).encode())

    def drain(self, name: str, process: str = "") -> None:
        """What a process does after its gate has closed."""
        until(lambda: self.gate(name)[0] == Gate.CLOSED)
        self.say(process or name, Kind.DRAINED, self.gate(name)[1])

    def is_rung(self) -> bool:
        """Whether there is news for Python."""
        return bool(select.select([self.relay], [], [], 0)[0])

    def take(self) -> int:
        news = self.relay.take()
        self.acts += news.acts
        self.said += news.said
        return news.now_ns

    def heard(self, process: str) -> list[Said]:
        """What Python hears of a process, now and before."""
        self.take()
        self.relay.release()
        return [said for said in self.said if said.line == self.lines[process]]

    def lend(self, name: str, ns: int) -> None:
        """Give a container the card from now on, as Python would."""
        self.say(name, Kind.WANT)
        until(lambda: bool(self.heard(name)))
        self.take()
        self.relay.set_gate(self.doors[name], 0, Gate.LEASED, now_ns() + ns)
        self.relay.release()

    def order(self, holder: str, after_ns: int, following: str = "", **more: int) -> None:
        """Say what comes after this holder."""
        self.take()
        then = {"latest_ns": LONG_NS + now_ns(), "run_ns": LONG_NS} | more
        to = (self.doors[following], 0) if following else (-1, 0)
        is_renewal = holder == following
        order = Order((self.doors[holder], 0), now_ns() + after_ns, following=to,
                      is_renewal=is_renewal, **then)  # fmt: skip
        self.relay.arm(0, order)
        self.relay.release()


def until(holds: Callable[[], bool]) -> None:
    for _ in range(5000):
        if holds():
            return
        time.sleep(0.001)
    raise AssertionError("not within five seconds")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """What Python writes shared pages with; the rest of the native part is not needed."""
    made = tmp_path_factory.mktemp("pages") / "libballast-pages.so"
    compile_c(made, [HERE / "pages.c", HERE / "table.c"])
    return Library(made)


@pytest.fixture
def hall(pages: Library) -> Iterator[Hall]:
    made = Hall(pages)
    for name in "ab":
        made.enter(name)
    thread = threading.Thread(target=made.relay.run)
    thread.start()
    yield made
    made.relay.stop()
    thread.join()
    for sock in (*made.ends.values(), *made.ours):
        sock.close()


def test_the_turn_passes_when_the_holder_has_drained_and_python_hears_of_it(hall: Hall) -> None:
    hall.lend("a", 20 * MS)
    hall.order("a", 20 * MS, "b", run_ns=500 * MS)
    until(lambda: hall.gate("a")[0] == Gate.CLOSED)
    assert hall.gate("b")[0] == Gate.CLOSED
    hall.drain("a")
    until(lambda: hall.gate("b")[0] == Gate.LEASED)
    hall.take()
    (act,) = hall.acts
    assert act.card == 0
    assert act.closed_generation == hall.gate("a")[1]
    assert act.passed_generation == hall.gate("b")[1]
    assert hall.gate("b")[2] == act.passed_ns + 500 * MS
    assert act.passed_ns > act.closed_ns


def test_who_goes_on_is_not_closed(hall: Hall) -> None:
    hall.lend("a", 10 * MS)
    generation = hall.gate("a")[1]
    hall.order("a", 10 * MS, "a", run_ns=700 * MS)
    until(lambda: hall.gate("a")[1] == generation + 1)
    hall.take()
    assert hall.gate("a")[0] == Gate.LEASED
    assert [act.closed_ns for act in hall.acts] == [0]
    assert hall.gate("a")[2] == hall.acts[0].passed_ns + 700 * MS


def test_a_successor_without_an_end_is_let_in_for_good(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS, "b", run_ns=0)
    hall.drain("a")
    until(lambda: hall.gate("b") == (Gate.OPEN, hall.gate("b")[1], 0))


class Asleep(threading.Thread):
    """Waits for changes of a container's grants, as one of the kinds that layout.h tells."""

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


def test_opening_wakes_who_waits_for_its_turn_and_closing_wakes_helpers(hall: Hall) -> None:
    """A helper that were woken by both would be in the way of who is to launch."""
    helper, in_turn = (Asleep(hall.grants["a"], who) for who in (Asleep.HELPER, Asleep.IN_TURN))
    hall.relay.set_gate(hall.doors["a"], 0, Gate.OPEN, 0)
    in_turn.join(5)
    helper.join(0.1)
    assert not in_turn.is_alive()
    assert helper.is_alive()
    in_turn = Asleep(hall.grants["a"], Asleep.IN_TURN)
    hall.relay.set_gate(hall.doors["a"], 0, Gate.CLOSED, 0)
    helper.join(5)
    assert not helper.is_alive()
    assert in_turn.is_alive()
    hall.relay.set_gate(hall.doors["a"], 0, Gate.OPEN, 0)
    in_turn.join(5)


def test_without_a_successor_the_gate_closes_and_python_decides(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS)
    hall.drain("a")
    until(lambda: any(said.drained for said in hall.heard("a")))
    assert [act.passed_ns for act in hall.acts] == [0]
    assert hall.gate("b")[0] == Gate.CLOSED


def test_who_drains_too_late_leaves_the_decision_to_python(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS, "b", latest_ns=now_ns())
    hall.drain("a")
    until(lambda: any(said.drained for said in hall.heard("a")))
    assert hall.gate("b")[0] == Gate.CLOSED


def test_python_is_not_troubled_before_the_turn_has_passed(hall: Hall) -> None:
    """What it does with the floor would only be in the way of the hand-over."""
    hall.connect("a", "a2")
    hall.say("a2", Kind.WANT)
    until(lambda: bool(hall.heard("a2")))
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS, "b")
    hall.drain("a")
    time.sleep(0.02)
    assert not hall.is_rung()
    hall.drain("a", "a2")
    until(hall.is_rung)
    hall.take()
    assert [bool(act.closed_ns and act.passed_ns) for act in hall.acts] == [True]


def test_python_hears_when_it_gets_late(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS, "b", latest_ns=now_ns() + 30 * MS)
    until(hall.is_rung)
    hall.take()
    assert [(act.closed_ns > 0, act.passed_ns) for act in hall.acts] == [(True, 0)]


def test_nothing_happens_while_python_decides_and_then_at_once(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 20 * MS, "b")
    hall.take()
    time.sleep(0.05)
    assert hall.gate("a")[0] == Gate.LEASED
    hall.relay.release()
    assert hall.gate("a")[0] == Gate.CLOSED


def test_an_order_that_was_taken_back_is_not_done(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 20 * MS, "b")
    hall.take()
    hall.relay.arm(0, None)
    hall.relay.release()
    time.sleep(0.05)
    assert hall.gate("a")[0] == Gate.LEASED


def test_all_processes_that_used_the_card_are_awaited_and_no_others(hall: Hall) -> None:
    hall.connect("a", "a2")
    hall.connect("a", "idle")
    hall.say("a2", Kind.WANT)
    until(lambda: bool(hall.heard("a2")))
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS, "b")
    hall.drain("a")
    until(lambda: any(said.drained for said in hall.heard("a")))
    assert hall.gate("b")[0] == Gate.CLOSED
    # Python heard of that and changed nothing, so the order still holds.
    hall.drain("a", "a2")
    until(lambda: hall.gate("b")[0] == Gate.LEASED)


def test_a_process_that_is_gone_is_not_awaited(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS, "b")
    until(lambda: hall.gate("a")[0] == Gate.CLOSED)
    hall.ends["a"].close()
    until(lambda: hall.gate("b")[0] == Gate.LEASED)
    assert hall.heard("a")[-1].is_gone


@pytest.mark.parametrize("generation", [0, 1, 7, 2**32 - 1])
def test_drained_of_another_generation_means_nothing(hall: Hall, generation: int) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS, "b")
    until(lambda: hall.gate("a")[0] == Gate.CLOSED)
    assert generation != hall.gate("a")[1]
    hall.say("a", Kind.DRAINED, generation)
    until(lambda: any(said.drained for said in hall.heard("a")))
    assert hall.gate("b")[0] == Gate.CLOSED


def test_drained_of_a_lease_before_the_last_does_not_count_for_another(hall: Hall) -> None:
    """One that is given up waiting for says so later, when somebody else is awaited."""
    hall.enter("c")
    hall.lend("a", 1 * MS)
    hall.order("a", 1 * MS)
    until(lambda: hall.gate("a")[0] == Gate.CLOSED)
    hall.lend("b", 1 * MS)
    hall.order("b", 1 * MS, "c")
    until(lambda: hall.gate("b")[0] == Gate.CLOSED)
    hall.drain("a")
    until(lambda: any(said.drained for said in hall.heard("a")))
    assert hall.gate("c")[0] == Gate.CLOSED
    # Numbers of generations are each gate's own, and may be the same.
    hall.drain("b")
    until(lambda: hall.gate("c")[0] == Gate.LEASED)


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
def test_what_may_not_be_said_ends_the_connection_and_no_other(hall: Hall, data: bytes) -> None:
    hall.ends["a"].send(data)
    until(lambda: any(said.is_gone for said in hall.heard("a")))
    hall.say("b", Kind.WANT)
    until(lambda: any((0, True) in said.wants for said in hall.heard("b")))


def test_descriptors_that_come_with_a_message_are_dropped(hall: Hall) -> None:
    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()
    before = n_open()
    for _ in range(100):
        socket.send_fds(hall.ends["a"], [Message(Kind.WANT).encode()], [0, 1])
    until(lambda: any(said.wants for said in hall.heard("a")))
    assert n_open() == before


def _is_sent(hall: Hall, kind: Kind) -> bool:
    with contextlib.suppress(BlockingIOError):
        hall.say("a", kind)
        return True
    return False


def test_a_flood_is_told_as_what_it_comes_to(hall: Hall) -> None:
    for _ in range(5000):
        with contextlib.suppress(BlockingIOError):
            hall.say("a", Kind.WANT)
            hall.say("a", Kind.YIELD)
    until(lambda: _is_sent(hall, Kind.YIELD))
    until(lambda: _is_sent(hall, Kind.DRAINED))
    until(lambda: any(said.drained for said in hall.heard("a")))
    heard = hall.heard("a")
    assert [said.wants for said in heard if said.wants][-1] == [(0, False)]
    assert len(heard) < 5000
    assert hall.relay.take().said == []
    hall.relay.release()


def test_a_container_that_is_closed_takes_its_orders_with_it(hall: Hall) -> None:
    hall.lend("a", 1 * MS)
    hall.order("a", 20 * MS, "b")
    hall.take()
    hall.relay.close_door(hall.doors["b"])
    hall.relay.release()
    time.sleep(0.05)
    assert hall.gate("a")[0] == Gate.LEASED
    assert hall.gate("b")[0] == Gate.CLOSED
    assert hall.relay.open_door(hall.grants["b"].address, [0]) == hall.doors["b"]


def test_a_container_has_from_one_to_sixteen_cards_of_those_there_are(hall: Hall) -> None:
    address = hall.grants["a"].address
    for cards in ([], [0] * 17, [64], [-1]):
        with pytest.raises(ValueError, match="card"):
            hall.relay.open_door(address, cards)
