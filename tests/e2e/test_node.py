"""The real node itself: what comes and goes with it."""

import os
from pathlib import Path

import pytest

from tests.e2e.site import Site
from tests.support.node import NodeOptions, RealNode
from tests.support.node.cgroups import PREFIX, ROOT

NAME = f"passing-by-{os.getpid()}"
#: The beginning of names of control groups and folders of this process; others may run nodes, too.
OURS = f"{PREFIX}{os.getpid()}-"


def test_a_node_that_is_stopped_leaves_nothing(site: Site) -> None:
    if site.plane is None:
        pytest.skip("nodes of a given cluster are not ours to add")
    number = site.plane.network.number
    before = _traces(number)
    with RealNode(site.plane, NodeOptions(NAME, ix=1, labels={"example.com/one": "two"})) as node:
        found = site.get("nodes", "-l", "example.com/one=two")
        assert [each["metadata"]["name"] for each in found] == [NAME]
        assert node.run("ls", "/run/containerd/containerd.sock").strip()
        assert _traces(number) != before
    site.kubectl("delete", "node", NAME)

    assert _traces(number) == before


def _traces(number: int) -> set[str]:
    """Interfaces of this network, mounts, control groups and processes that a node may leave."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    commands = [_command(each) for each in Path("/proc").glob("[0-9]*/cmdline")]
    return {
        *(f"interface {each.name}" for each in Path("/sys/class/net").glob(f"bn{number}-*")),
        *(f"cgroup {each}" for each in ROOT.glob(f"**/{OURS}*")),
        *(f"mount {each.split()[4]}" for each in mounts if OURS in each),
        *(f"folder {each}" for each in Path("/tmp").glob(f"{OURS}*")),
        *(f"process {each}" for each in commands if NAME in each),
    }


def _command(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
