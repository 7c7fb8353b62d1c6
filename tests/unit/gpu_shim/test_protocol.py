"""The protocol in Python equals the protocol in C."""

import re
from pathlib import Path

import pytest

from gpu_shim.native.build import HERE
from gpu_shim.protocol import wire
from gpu_shim.protocol.wire import Kind, Message, decode

LAYOUT = Path(wire.__file__).with_name("layout.h").read_text()


def in_c(name: str) -> int:
    """A number of the C header: of an enum, a size asserted, or a definition."""
    for pattern in (rf"{name} = (\d+)", rf"{name} == (\d+)", rf"define {name} (\w+?)u?$"):
        if found := re.search(pattern, LAYOUT, re.MULTILINE):
            return int(found[1], 0)
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (wire.MAGIC, "BALLAST_MAGIC"),
        (wire.VERSION, "BALLAST_VERSION"),
        (wire.OLDEST, "BALLAST_OLDEST"),
        (wire.MAX_CARDS, "BALLAST_MAX_CARDS"),
        (wire.MAX_SLOTS, "BALLAST_MAX_SLOTS"),
        (wire.FEW_SLOTS, "BALLAST_FEW_SLOTS"),
        (wire.ACCOUNT.size, r"sizeof\(struct ballast_account\)"),
        (wire.SLOT.size, r"sizeof\(struct ballast_slot\)"),
        (wire.GRANT.size, r"sizeof\(struct ballast_grant\)"),
        (wire.MESSAGE.size, r"sizeof\(struct ballast_message\)"),
        *((int(kind), f"BALLAST_{kind.name}") for kind in Kind),
        *((int(gate), f"BALLAST_{gate.name}") for gate in wire.Gate),
    ],
)
def test_python_and_c_agree(ours: int, theirs: str) -> None:
    assert in_c(theirs) == ours


def test_a_message_survives_the_wire() -> None:
    message = Message(Kind.DRAINED, card=1, value=77)
    assert decode(message.encode(), n_cards=2) == message


def test_the_version_before_is_spoken() -> None:
    """A running container keeps its library when the agent is upgraded."""
    assert wire.OLDEST < wire.VERSION
    for version in range(wire.OLDEST, wire.VERSION + 1):
        assert decode(Message(Kind.HELLO, value=version).encode(), n_cards=1) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 15,
        b"\0" * 16,
        b"\0" * 64,
        Message(Kind.WELCOME).encode(),
        Message(Kind.WANT, card=2).encode(),
        Message(Kind.HELLO, value=wire.OLDEST - 1).encode(),
        Message(Kind.HELLO, value=wire.VERSION + 1).encode(),
        b"\x03\0\1\0" + b"\0" * 12,
    ],
)
def test_what_a_process_may_not_say_is_nothing(data: bytes) -> None:
    assert decode(data, n_cards=2) is None


def test_sources_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in Path(HERE).glob("*.[ch]")}
    assert {name: n for name, n in lengths.items() if n > 400} == {}
