"""Bytes of the NRI socket as messages: complete, split anywhere, and invalid."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_shim.agent.nri.frames import (
    MAX_MESSAGE,
    PLUGIN,
    RUNTIME,
    Decoder,
    Frame,
    FrameKind,
    FramingError,
    encode,
)

MESSAGES = st.builds(
    Frame,
    st.sampled_from([PLUGIN, RUNTIME]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(list(FrameKind)),
    st.binary(max_size=10_000),
)


def test_a_request_looks_as_the_protocol_says() -> None:
    found = encode(Frame(RUNTIME, 1, FrameKind.REQUEST, b"abc"))
    assert found == bytes.fromhex("00000002 0000000d 00000003 00000001 01 00") + b"abc"


def test_no_frame_is_larger_than_what_the_runtime_reads_at_once() -> None:
    data = encode(Frame(PLUGIN, 1, FrameKind.RESPONSE, b"x" * 9000))
    sizes = []
    while data:
        _, n_bytes = struct.unpack_from(">II", data)
        sizes.append(n_bytes)
        data = data[8 + n_bytes :]
    assert sizes == [4096, 4096, 818]


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(1, 5000), min_size=1))
def test_messages_come_out_whole_however_they_were_cut(
    messages: list[Frame], cuts: list[int]
) -> None:
    data, decoder, found, at = b"".join(map(encode, messages)), Decoder(), list[Frame](), 0
    while at < len(data):
        cut = cuts[at % len(cuts)]
        found += decoder.feed(data[at : at + cut])
        at += cut
    assert [each for each in found if each.connection == PLUGIN] == [
        each for each in messages if each.connection == PLUGIN
    ]
    assert len(found) == len(messages)


def test_frames_of_unknown_connections_are_skipped() -> None:
    stray = struct.pack(">II", 7, 3) + b"???"
    whole = encode(Frame(PLUGIN, 3, FrameKind.REQUEST, b""))
    (found,) = Decoder().feed(stray + whole)
    assert found.stream == 3


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 1, MAX_MESSAGE + 11),
        struct.pack(">II", 1, 10) + struct.pack(">IIBB", MAX_MESSAGE + 1, 1, 1, 0),
    ],
    ids=["frame", "message"],
)
def test_more_than_there_can_be_is_refused_before_it_is_kept(data: bytes) -> None:
    with pytest.raises(FramingError, match="bytes, at most"):
        list(Decoder().feed(data))


@given(st.binary(max_size=300))
def test_nonsense_is_waited_for_skipped_or_refused(data: bytes) -> None:
    with contextlib.suppress(FramingError):
        list(Decoder().feed(data))


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(FramingError, match="at most"):
        encode(Frame(PLUGIN, 1, FrameKind.RESPONSE, b"x" * (MAX_MESSAGE + 1)))
