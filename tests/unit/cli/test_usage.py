"""Wrong usage: exit code 2 and a message, without any request to a cluster."""

import pytest
from click.testing import CliRunner

from extender.__main__ import main

_NAME = "is neither NAME nor KIND/NAME, such as job/train-7"
_GPUS = "is not a number of GPUs below 1000000 with at most three decimals, such as 4 or 2.5"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("why job/", f"'job/' {_NAME}"),
        ("why /a", f"'/a' {_NAME}"),
        ("why a/b/c", f"'a/b/c' {_NAME}"),
        ("why job a b", f"'job a b' {_NAME}"),
        ("why job/a b", f"'job/a b' {_NAME}"),
        ("why job/a%2f", "'a%2f' is not a name"),
        ("hold a job/", f"'job/' {_NAME}"),
        ("history a/b/c", f"'a/b/c' {_NAME}"),
        ("whatif --quota a=x", f"a: 'x' {_GPUS}"),
        ("whatif --limit a=-1", f"a: '-1' {_GPUS}"),
        ("whatif --quota a=1 --quota a=2", "a is named twice"),
        ("whatif --budget a=1.5", "'1.5' is not a whole number of hours"),
        ("whatif --job a=4x", "'a=4x' is not PROJECT=PODSxGPUS"),
        ("run X --image i", "'X' is not a name"),
        ("run a --image i --cpu x", "--cpu: 'x' is not a Kubernetes quantity"),
        ("run a --image i --memory 3Q", "--memory: '3Q' is not a Kubernetes quantity"),
        ("run a --image i --gpu-memory -5", "the unit is MiB: for 8 GiB write 8192"),
        ("run a --image i --gpu-memory 10G", "--gpu-memory: '10G' is not a whole number"),
        ("run a --image i --gpu-memory 8192 --gpus 2", "and takes no --gpus"),
        ("run a --image i --run-time 1w", "--run-time: '1w' is not a time such as 1800, 30m or 2h"),
        ("web --listen 8080", "'8080' is not an address such as 127.0.0.1:8888"),
        ("web --listen 0.0.0.0:8080", "0.0.0.0:8080 can be reached from other hosts"),
        ("shadow --minutes x", "'x' is not a valid number."),
        ("shadow --minutes nan", "'nan' is not a valid number."),
        ("shadow --every 0", "0.0 is not in the range 1<=x<=3600."),
        ("quue", "No such command 'quue'. Did you mean 'queue'?"),
        ("hold -n a", "give either names or a selector (-l)"),
        ("report usage --prices /nowhere", "File '/nowhere' does not exist"),
    ],
)
def test_wrong_usage_is_reported_before_a_cluster_is_asked(command: str, said: str) -> None:
    done = CliRunner().invoke(main, command.split(), env={"KUBECONFIG": "/nowhere"})
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(("time", "is_warned"), [("12", True), ("12h", False), ("1800", False)])
def test_a_time_of_a_few_seconds_is_warned_of(time: str, is_warned: bool) -> None:
    words = ["run", "a", "--image", "i", "-n", "n", "--run-time", time, "--dry-run=client"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    said = "Warning: --run-time 12 means 12 s: for hours write 12h\n"
    assert done.stderr == (said if is_warned else "")


def test_help_of_the_plugin_of_kubectl_names_what_people_type() -> None:
    done = CliRunner().invoke(main, ["why", "--help"], prog_name="kubectl-ballast")
    assert done.stdout.startswith("Usage: kubectl ballast why "), done.stdout


@pytest.mark.parametrize("group", ["report", "scenario", "replay", "bench"])
def test_help_of_a_group_shows_whole_sentences(group: str) -> None:
    done = CliRunner().invoke(main, [group, "--help"])
    assert done.exit_code == 0
    assert "..." not in done.stdout.partition("\nCommands:")[2]


@pytest.mark.parametrize("word", ["node", "gpu", "pod", "project"])
def test_top_accepts_the_singular_as_kubectl_top_does(word: str) -> None:
    done = CliRunner().invoke(main, ["top", word], env={"KUBECONFIG": "/nowhere"})
    assert (done.exit_code, done.stderr) == (1, "Error: /nowhere: there is no such kubeconfig\n")
