"""The commands for people: flags, lists, watching, holding, Jobs, completion."""

import json
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from extender.__main__ import _ELSEWHERE, _SECTIONS, main
from extender.api import names
from extender.cli import holds
from extender.cli.completion import answer_kubectl
from extender.cli.flags import How, Scope, Where, cluster_flags, output_flags, scope_flags
from extender.cli.jobs import Ask, BadAskError, documents
from extender.cli.questions import _differs
from extender.cli.show import Column, Listing, show_list

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


class TestFlags:
    def test_flags_are_given_as_values(self) -> None:
        found: dict[str, Any] = {}

        @click.command()
        @scope_flags
        @output_flags()
        @cluster_flags
        def command(scope: Scope, how: How, where: Where) -> None:
            found.update(scope=scope, how=how, where=where)

        args = ["-n", "a", "-o", "wide", "--no-headers", "-w", "--as", "ann", "--as-group", "g"]
        done = CliRunner().invoke(command, args)
        assert done.exit_code == 0, done.output
        assert found["scope"] == Scope("a", is_all=False)
        assert found["how"] == How("wide", no_headers=True, is_watched=True)
        assert found["where"].headers == (
            ("Impersonate-User", "ann"),
            ("Impersonate-Group", "g"),
        )

    def test_group_without_user_is_refused(self) -> None:
        done = CliRunner().invoke(main, ["shares", "--as-group", "g"])
        assert done.exit_code == 2
        assert "--as-group needs --as" in done.output

    def test_every_command_that_people_see_is_in_one_section(self) -> None:
        listed = [name for _, names_of in _SECTIONS for name in names_of]
        # Commands that others add stand in the list of all as soon as they are there.
        assert sorted(listed) == sorted(_ELSEWHERE)


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

        monkeypatch.setattr("extender.cli.show.time.sleep", sleep)
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

        monkeypatch.setattr("extender.cli.show.time.sleep", sleep)
        with pytest.raises(SystemExit):
            show_list(How(is_watched=True), THINGS, lambda: next(answers))
        lines = capsys.readouterr().out.splitlines()[1:]
        assert [line.split() for line in lines] == [["a", "up"], ["a", "up"], ["a", "down"]]

    def test_why_does_not_call_a_forecast_that_moves_with_the_clock_a_change(self) -> None:
        def at(moment: int, word: str) -> dict[str, Any]:
            times = {"earliest": str(moment), "latest": str(moment + 60)}
            return {"asOf": moment, "forecast": {"word": word, **times}}

        first = at(1, "promised")
        assert not _differs(first, at(2, "promised"))
        assert _differs(first, at(2, "forecast"))
        assert _differs({}, first)

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


def pod(name: str, *, owner: str = "", group: str = "", gate: bool = True, hold: str = "") -> Any:
    meta: dict[str, Any] = {"name": name, "namespace": "n", "labels": {}, "annotations": {}}
    if owner:
        meta["ownerReferences"] = [{"name": owner, "controller": True}]
    if group:
        meta["labels"][names.LABEL_POD_GROUP] = group
    if hold:
        meta["annotations"][names.ANNOTATION_HOLD] = hold
    return {"metadata": meta, "spec": {"schedulingGates": [{"name": names.GATE}] if gate else []}}


def group(name: str, hold: str = "") -> Any:
    notes = {names.ANNOTATION_HOLD: hold} if hold else {}
    return {"metadata": {"name": name, "namespace": "n", "annotations": notes}}


class TestHolds:
    def test_pods_of_a_job_that_wait_are_held_and_what_runs_is_not(self) -> None:
        pods = [pod("j-1", owner="j"), pod("j-2", owner="j", gate=False), pod("k-1", owner="k")]
        assert holds._targets(pods, {}, "j", is_held=True) == [("pod", "j-1")]

    def test_group_is_held_in_place_of_its_pods(self) -> None:
        pods = [pod("j-1", owner="j", group="g"), pod("j-2", owner="j", group="g")]
        found = holds._targets(pods, {"g": group("g")}, "j", is_held=True)
        assert found == [("gpupodgroup.ballast.dev", "g")]

    def test_pods_of_a_group_that_has_no_object_are_held_themselves(self) -> None:
        pods = [pod("j-1", owner="j", group="g")]
        assert holds._targets(pods, {}, "g", is_held=True) == [("pod", "j-1")]

    def test_resume_takes_what_is_held_only(self) -> None:
        pods = [
            pod("j-1", owner="j", hold="true"),
            pod("j-2", owner="j"),
            pod("j-3", owner="j", group="g", hold="true"),
        ]
        found = holds._targets(pods, {"g": group("g", "true")}, "j", is_held=False)
        assert found == [
            ("pod", "j-1"),
            ("gpupodgroup.ballast.dev", "g"),
            ("pod", "j-3"),
        ]
        assert holds._targets(pods, {"g": group("g")}, "other", is_held=False) == []


class TestJobs:
    def asked(self, **given: Any) -> Ask:
        words = {"gpus": "1", "checkpoint": "", "run_time": "", "envs": ()}
        return Ask.of(**{"name": "j", "image": "i", **words, **given})

    def test_plain_job_is_one_object_without_a_group(self) -> None:
        (job,) = documents(self.asked(command=("a", "b")), "n")
        template = job["spec"]["template"]
        assert template["spec"]["containers"][0]["command"] == ["a", "b"]
        assert template["spec"]["containers"][0]["resources"] == {"limits": {names.NVIDIA_GPU: "1"}}
        assert template["metadata"] == {"labels": {names.LABEL_WORKLOAD_KIND: "training"}}
        assert "parallelism" not in job["spec"]

    def test_half_a_gpu_is_an_annotation(self) -> None:
        (job,) = documents(self.asked(gpus="0.5", checkpoint="30m"), "n")
        template = job["spec"]["template"]
        assert template["metadata"]["annotations"] == {
            names.ANNOTATION_FRACTION: "0.5",
            names.ANNOTATION_CHECKPOINT: "1800",
        }
        assert "resources" not in template["spec"]["containers"][0]

    def test_elastic_gang_states_its_minimum_and_run_time(self) -> None:
        made, job = documents(self.asked(pods=4, min_pods=2, run_time="1d"), "n")
        assert made["spec"] == {"minMember": 2, "expectedRunSeconds": 86_400}
        assert job["spec"]["parallelism"] == job["spec"]["completions"] == 4
        notes = job["spec"]["template"]["metadata"]["annotations"]
        assert notes[names.ANNOTATION_MIN_MEMBER] == "2"

    @pytest.mark.parametrize(
        ("given", "word"),
        [
            ({"gpus": "1.5"}, "part of one GPU"),
            ({"gpus": "0"}, "part of one GPU"),
            ({"name": "Ä"}, "is no name"),
            ({"pods": 2, "min_pods": 3}, "--min-pods"),
            ({"run_time": "1w"}, "--run-time"),
            ({"envs": ("A",)}, "NAME=VALUE"),
        ],
    )
    def test_what_cannot_be_meant_is_one_sentence(self, given: Any, word: str) -> None:
        with pytest.raises(BadAskError, match=word):
            self.asked(**given)


class TestCompletion:
    def test_kubectl_is_told_commands_with_their_help(self) -> None:
        lines = answer_kubectl(main, ["ho"]).splitlines()
        assert lines == ["hold\tKeep work that waits from starting.", ":4"]

    def test_kubectl_is_told_flags_and_choices(self) -> None:
        assert "--all-namespaces\tAll namespaces." in answer_kubectl(main, ["queue", "--a"])
        assert answer_kubectl(main, ["queue", "-o", "y"]).splitlines() == ["yaml", ":4"]

    def test_names_that_no_cluster_tells_are_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", "/nonexistent/config")
        assert answer_kubectl(main, ["why", ""]) == ":4\n"

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_script_of_each_shell_names_the_command(self, shell: str) -> None:
        done = CliRunner().invoke(main, ["completion", shell])
        assert done.exit_code == 0, done.output
        assert "_BALLAST_COMPLETE" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["top", "nodes", "-n", "a"],
        ["top", "gpus", "-A"],
        ["top", "projects", "-l", "a=b"],
        ["whatif", "-w", "--quota", "a=1"],
        ["whatif", "--no-headers", "--quota", "a=1"],
    ],
    ids=" ".join,
)
def test_a_flag_that_would_do_nothing_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(main, words).exit_code == 2


def test_help_imports_neither_a_client_nor_a_decision() -> None:
    script = """
import sys
from extender.__main__ import main
for words in (
    [], ["why"], ["queue"], ["whatif"], ["run"], ["top"], ["convert"], ["simulate"],
    ["bench"], ["bench", "cycle"],
):
    try:
        main([*words, "--help"])
    except SystemExit:
        pass
heavy = {"aiohttp", "asyncio", "msgspec", "rich.console", "extender.policy.decide", "yaml"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr.strip() == "[]", done.stderr
