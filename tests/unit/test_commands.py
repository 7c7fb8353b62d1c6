"""The command line: its commands, and how it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: x, user: {token: t}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return str(path)


def ballast(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "extender", *args],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_names_the_commands() -> None:
    done = ballast("--help")
    assert done.returncode == 0
    words = set(done.stdout.split())
    assert {"why", "queue", "hold", "convert"} <= words
    # Programs of an installation can be called, and are not what people look for.
    assert not {"serve", "control", "view"} & words
    assert ballast("serve", "--help").returncode == 0


#: Asks every command that people call at a cluster for help, and prints what was imported.
HELP = """
import contextlib, io, sys
import click
from extender.__main__ import main

def ask(command, words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    if isinstance(command, click.Group):
        for name in command.list_commands(None):
            if not words and name in ("replay", "bench", "gpu", "time-slicing"):
                continue
            ask(command.get_command(None, name), [*words, name])

ask(main, [])
print(*sorted(sys.modules))
"""


def test_help_imports_no_client_no_numbers_and_no_tables() -> None:
    """They cost up to half a second of CPU."""
    done = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, timeout=120, check=True
    )
    found = set(done.stdout.split())
    assert "extender.cli.past.report" in found
    assert found.isdisjoint({"aiohttp", "kubernetes_asyncio", "numpy", "rich.table", "jinja2"})


@pytest.mark.parametrize("command", ["serve", "control"])
def test_unusable_kubeconfig_is_one_sentence(command: str, tmp_path: Path) -> None:
    done = ballast(command, f"--kubeconfig={tmp_path / 'none'}")
    assert done.returncode == 1
    assert "there is no such kubeconfig" in done.stderr
    assert "Traceback" not in done.stderr


def test_address_that_is_none_is_one_sentence(kubeconfig: str) -> None:
    done = ballast("serve", f"--kubeconfig={kubeconfig}", "--listen=nonsense")
    assert done.returncode == 1
    assert "such as 127.0.0.1:8888" in done.stderr
    assert "Traceback" not in done.stderr


def test_extender_off_loopback_needs_certificates(kubeconfig: str) -> None:
    done = ballast("serve", f"--kubeconfig={kubeconfig}", "--listen=0.0.0.0:0")
    assert done.returncode == 1
    assert "give a serving certificate" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_failpoint_is_refused_so_that_a_test_cannot_pass_on_none(kubeconfig: str) -> None:
    done = ballast(
        "control", f"--kubeconfig={kubeconfig}", BALLAST_FAILPOINT="control.no-such-point"
    )
    assert done.returncode != 0
    assert "no such point" in done.stderr


def test_replay_without_the_lab_says_where_it_is() -> None:
    args = ["replay", "philly"]
    script = f"import extender.__main__ as m; m._LAB = 'extender.absent'; m.main({args})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: this installation has no lab")


def test_setting_that_no_program_can_run_with_is_refused_in_a_sentence(kubeconfig: str) -> None:
    for flag in ("--lease-duration=0", "--bind-timeout=-1", "--cycle-budget=0"):
        done = ballast("control", flag, KUBECONFIG=kubeconfig)
        assert done.returncode == 2
        assert done.stderr.endswith("is not in the range x>0.\n")
