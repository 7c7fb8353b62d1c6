import pytest

from extender.kube.lines import CutLine, LineSplitter


def split(chunks: list[bytes], max_bytes: int = 100) -> list[bytes | CutLine]:
    splitter = LineSplitter(max_bytes, head_bytes=3)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [line if isinstance(line, CutLine) else bytes(line) for line in lines]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_whole_however_the_stream_is_cut(size: int) -> None:
    text = b"one\ntwo two\n\nfour\n"
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    assert split(chunks) == [b"one", b"two two", b"", b"four"]


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_line_that_is_too_long_keeps_its_head_and_hides_no_other(size: int) -> None:
    text = b"a\n" + b"abcdefgh" * 10 + b"\nb\n"
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    assert split(chunks, max_bytes=20) == [b"a", CutLine(b"abc"), b"b"]


def test_memory_does_not_grow_with_the_line() -> None:
    splitter = LineSplitter(1000, head_bytes=10)
    for _ in range(10_000):
        assert not list(splitter.feed(b"x" * 100))
    assert len(splitter._kept) <= 1000
    assert splitter.is_inside_line


def test_an_end_in_the_middle_of_a_line_is_seen() -> None:
    splitter = LineSplitter(100, head_bytes=3)
    assert list(splitter.feed(b"whole\n")) == [b"whole"]
    assert not splitter.is_inside_line
    assert not list(splitter.feed(b"half"))
    assert splitter.is_inside_line
