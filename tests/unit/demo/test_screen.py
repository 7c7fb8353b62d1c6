"""The demonstration's figures, on a history that the test writes."""

import io
from typing import cast

from rich.console import Console

from tests.demo.board import Board
from tests.demo.screen import draw
from tests.support.auditor import Auditor
from tests.unit.auditor.story import Story


class Audit:
    """As much of an auditor as the board looks at."""

    def __init__(self, story: Story) -> None:
        self.checker = story.checker
        self.violations = story.violations


def board_of(story: Story) -> Board:
    return Board(cast(Auditor, Audit(story)))


def shown(board: Board, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(draw("title", board.figures()))
    return cast(io.StringIO, console.file).getvalue()


def test_figures_are_counted_from_the_history() -> None:
    story = Story()
    board = board_of(story)
    story.node(cards=4).department("d", 4, fairShare="3").project("red", "d", 2, fairShare="1.5")
    story.pod("a").pod("b").pod("c").run("a").wait(2).run("b").evict("b", "Reclaimed")
    figures = board.figures()
    department, project = figures.queues
    assert (department.name, project.name, project.parent) == ("d", "red", "d")
    assert (project.quota, project.fair_share, project.allocated) == (2000, 1500, 1000)
    assert (project.pending_pods, project.pending_milli, project.evicted) == (1, 500, 1)
    assert (figures.cards, figures.cards_used, figures.cards_shared) == (4, 1, 1)
    assert (figures.bound, figures.evicted) == (2, 1)
    assert board.waits_s == [0.0, 2.0]
    assert board.peak_binds() == 1


def test_the_table_names_every_queue_and_its_figures() -> None:
    story = Story()
    board = board_of(story)
    story.node(cards=4).department("d", 4).project("red", "d", 2).pod("a").run("a")
    text = shown(board)
    assert "red" in text
    assert "0.5" in text
    assert "cards 1/4 used (0 shared), 12.5 % allocated\n1 binds" in text


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    story = Story()
    board = board_of(story)
    story.node(cards=4).department("research", 400).project("language", "research", 200)
    story.pod("a").run("a")
    narrow = shown(board, 80)
    assert "…" not in narrow
    wide = shown(board)
    assert [each.rstrip() for each in narrow.splitlines()] == [
        each.rstrip() for each in wide.splitlines()
    ]


def test_an_empty_cluster_can_be_shown() -> None:
    assert "0.0 % allocated" in shown(board_of(Story()))
