"""How often pods get near cards: the counts, and the effect of stating the sets."""

from pathlib import Path

from click.testing import CliRunner

from extender.lab.openb.data import load_cluster, load_trace
from extender.lab.openb.near_sets import NearPolicy, UnknowingPolicy, fill_and_renew, near_sets
from tests.unit.lab import openb_folder as given

ONE, TWO, FOUR = ((1000, n, 1000, "") for n in (1, 2, 4))


def folder_of(folder: Path) -> Path:
    """Ten nodes of eight cards, and pods of one, two and four."""
    given.nodes(folder, *[(f"n{at}", 96000, 524288, 8, "A100") for at in range(10)])
    given.pods(folder, "x", *[ONE, TWO, FOUR, TWO] * 10)
    return folder


def test_pods_get_near_cards_more_often_where_nodes_say_which_are_near(tmp_path: Path) -> None:
    cluster = load_cluster(folder_of(tmp_path))
    trace = load_trace(tmp_path, "x", cluster)
    today, _ = fill_and_renew(cluster, trace, UnknowingPolicy, 42)
    near, renewed = fill_and_renew(cluster, trace, NearPolicy, 42)
    for size in (2, 4):
        assert today[size].pods == near[size].pods > 0
        assert near[size].percent > today[size].percent
        assert renewed[size].pods > 0


def test_the_command_prints_both(tmp_path: Path) -> None:
    ended = CliRunner().invoke(
        near_sets, ["--data", str(folder_of(tmp_path)), "--trace", "x", "--seeds", "1"]
    )
    assert ended.exit_code == 0, ended.output
    assert ended.output.count("say nothing") == ended.output.count("state sets") == 2
