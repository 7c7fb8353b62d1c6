"""Answers in kubectl's style: tables, data, names, watching."""

import json
import time
from typing import Any

import click
import pytest

from extender.cli.terminal.flags import How
from extender.cli.terminal.show import Column, Listing, show_list

THINGS = Listing(
    (
        Column("NAME", lambda item: item["name"]),
        Column("STATE", lambda item: item["state"], style=lambda item: "red"),
        Column("MORE", lambda item: "x", is_wide=True),
    ),
    lambda item: f"thing/{item['name']}",
    "There are no things.",
)


def told(*items: tuple[str, str]) -> dict[str, Any]:
    return {"kind": "ThingList", "items": [{"name": n, "state": s} for n, s in items]}


class TestLists:
    def test_table_wide_names_and_data(self, capsys: pytest.CaptureFixture[str]) -> None:
        def printed(how: How, *items: tuple[str, str]) -> str:
            show_list(how, THINGS, lambda: told(*items))
            return capsys.readouterr().out

        assert printed(How(), ("a", "up")).splitlines() == ["NAME  STATE", "a     up"]
        assert "MORE" in printed(How("wide"), ("a", "up"))
        assert printed(How(no_headers=True), ("a", "up")).split() == ["a", "up"]
        assert printed(How("name"), ("a", "up"), ("b", "up")) == "thing/a\nthing/b\n"
        assert json.loads(printed(How("json"), ("a", "up")))["items"][0]["name"] == "a"
        assert printed(How("yaml"), ("a", "up")).startswith("kind: ThingList\n")

    @pytest.mark.parametrize("empty", [{}, {"used": None}, {"used": ""}])
    def test_what_is_not_known_is_a_dash(
        self, capsys: pytest.CaptureFixture[str], empty: dict[str, Any]
    ) -> None:
        listing = Listing((Column("NAME", "name"), Column("USED", "used")), lambda _: "")
        items = [{"name": "a"} | empty, {"name": "b", "used": 0}]
        show_list(How(), listing, lambda: {"items": items})
        assert capsys.readouterr().out.splitlines() == ["NAME  USED", "a     -", "b     0"]

    def test_a_sparse_column_without_values_is_left_out_of_a_terminal(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        columns = (Column("USER", "user", is_sparse=True), Column("NAME", "name"))

        def header(*users: str) -> list[str]:
            items = [{"name": "a", "user": user} for user in users]
            show_list(How(), Listing(columns, str), lambda: {"items": items})
            return click.unstyle(capsys.readouterr().out.splitlines()[0]).split()

        assert header("", "") == ["USER", "NAME"]
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert header("", "") == ["NAME"]
        assert header("", "ann") == ["USER", "NAME"]

    def test_a_terminal_gets_colours_and_a_pipe_or_no_color_none(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def printed() -> str:
            show_list(How(), THINGS, lambda: told(("a\x1b[2J", "down"), ("名", "up")))
            return capsys.readouterr().out

        in_pipe = printed()
        assert in_pipe.splitlines() == [
            "NAME      STATE",
            "a\\x1b[2J  down",
            "名        up",
        ]
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert "\x1b[31mdown\x1b[0m" in printed()
        assert "\x1b[2J" not in printed()
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b[31m" not in printed()
        monkeypatch.delenv("FORCE_COLOR")
        assert printed() == in_pipe

    @pytest.mark.parametrize("width", [80, 40])
    def test_a_sentence_is_below_its_line_where_there_is_no_room_beside_it(
        self, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = "a sentence of some words that says why it waits"
        columns = (Column("NAME", "name"), Column("MESSAGE", "said", folds=True))
        items = [{"name": "a" * 20, "said": said}, {"name": "b"}]
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("extender.cli.terminal.show.WIDTH", width)
        show_list(How(no_headers=True), Listing(columns, str), lambda: {"items": items})
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert max(map(len, lines)) <= width
        beside, below = (
            [f"{'a' * 20}  {said}", "b                     -"],
            [
                "a" * 20,
                "    a sentence of some words that says",
                "    why it waits",
                "b",
            ],
        )
        assert lines == (beside if width == 80 else below)

    def test_ten_thousand_lines_take_little(self, capsys: pytest.CaptureFixture[str]) -> None:
        """0.2 s of CPU; rich took 8 s for them."""
        many = told(*((f"thing-{number}", "up") for number in range(10_000)))
        began_s = time.process_time()
        show_list(How(), THINGS, lambda: many)
        assert time.process_time() - began_s < 2
        assert len(capsys.readouterr().out.splitlines()) == 10_001

    def test_no_items_are_one_sentence_beside_the_data(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        show_list(How(), THINGS, told)
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", "There are no things.\n")

    def test_watch_prints_what_changed_until_it_is_interrupted(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = iter(
            [
                told(("a", "up"), ("b", "up")),
                told(("a", "up"), ("b", "down")),
                told(("a", "up"), ("b", "down")),
            ]
        )
        waits = iter([None, None, KeyboardInterrupt])

        def sleep(_seconds: float) -> None:
            if error := next(waits):
                raise error

        monkeypatch.setattr("extender.cli.terminal.show.time.sleep", sleep)
        with pytest.raises(SystemExit) as ended:
            show_list(How(is_watched=True), THINGS, lambda: next(answers))
        assert ended.value.code == 130
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines] == [
            ["NAME", "STATE"],
            ["a", "up"],
            ["b", "up"],
            ["b", "down"],
        ]

    def test_watch_tells_items_of_one_name_in_two_namespaces_apart(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def in_both(state: str) -> dict[str, Any]:
            first, second = told(("a", state), ("a", "up"))["items"]
            items = [{**first, "namespace": "one"}, {**second, "namespace": "two"}]
            return {"kind": "ThingList", "items": items}

        answers = iter([in_both("up"), in_both("down"), in_both("down")])
        waits = iter([None, None, KeyboardInterrupt])

        def sleep(_seconds: float) -> None:
            if error := next(waits):
                raise error

        monkeypatch.setattr("extender.cli.terminal.show.time.sleep", sleep)
        with pytest.raises(SystemExit):
            show_list(How(is_watched=True), THINGS, lambda: next(answers))
        lines = capsys.readouterr().out.splitlines()[1:]
        assert [line.split() for line in lines] == [["a", "up"], ["a", "up"], ["a", "down"]]

    def test_pipe_has_no_colours_and_each_row_in_one_line(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        long = "word " * 100
        columns = (*THINGS.columns, Column("SAID", lambda item: long, folds=True))
        listing = Listing(columns, THINGS.name)
        show_list(How(), listing, lambda: told(("a", "up")))
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 2
        assert lines[1].endswith(long.strip())
        assert "\x1b" not in "".join(lines)
