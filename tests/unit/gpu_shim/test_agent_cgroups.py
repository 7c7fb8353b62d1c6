"""The container of the process at the other end of a socket."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu_shim.agent import cgroups
from gpu_shim.agent.cgroups import pod_of_peer

UID = "00112233-4455-6677-8899-aabbccddeeff"
GROUP = f"0::/kubepods/burstable/pod{UID}/cri-1\n"
CONNECT = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.connect(sys.argv[1])
if sys.argv[2] == "by a child" and os.fork():
    os._exit(0)
door.send(str(os.getpid()).encode())
sys.stdin.read()
"""


@dataclass(slots=True)
class Door:
    """A socket that programs connect to, and a /proc of our own making."""

    listening: socket.socket
    path: str
    proc: Path
    programs: list["subprocess.Popen[bytes]"]

    def knock(self, how: str, group: str) -> socket.socket:
        """Our end of a connection of a program that is in this control group."""
        command = [sys.executable, "-I", "-S", "-c", CONNECT, self.path, how]
        self.programs.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        connection, _ = self.listening.accept()
        connection.recv(64)
        folder = self.proc / str(self.programs[-1].pid)
        folder.mkdir()
        (folder / "cgroup").write_text(group)
        return connection


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        (tmp_path / "proc").mkdir()
        made = Door(listening, str(tmp_path / "s"), tmp_path / "proc", [])
        yield made
        for program in made.programs:
            program.communicate()


def test_the_pod_of_the_connected_process_is_found(door: Door) -> None:
    with door.knock("itself", GROUP) as connection:
        assert pod_of_peer(connection, door.proc) == UID


def test_a_process_of_the_host_has_no_pod(door: Door) -> None:
    with door.knock("itself", "0::/system.slice/ssh.service\n") as connection:
        assert pod_of_peer(connection, door.proc) == ""


def test_of_a_node_that_is_a_pod_itself_the_inner_pod_counts(door: Door) -> None:
    outer = UID.replace("0011", "ffff", 1)
    with door.knock(
        "itself", f"0::/kubepods/pod{outer}/node/kubepods/pod{UID}/main\n"
    ) as connection:
        assert pod_of_peer(connection, door.proc) == UID


def test_a_number_that_may_be_anothers_by_now_tells_nothing(door: Door) -> None:
    with door.knock("by a child", GROUP) as connection:
        door.programs[-1].wait()
        assert pod_of_peer(connection, door.proc) == ""


def test_a_kernel_that_can_not_tell_whether_it_lives_is_taken_at_its_word(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_PEER_PIDFD", 9999)
    with door.knock("itself", GROUP) as connection:
        assert pod_of_peer(connection, door.proc) == UID
