"""Components can be killed, frozen and restarted, and none outlives its run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Api, wait_for
from tests.support.controlplane.process import ControlPlaneError

ROOT = Path(__file__).resolve().parents[3]
GONE_WITHIN_S = 90.0
STARTED_WITHIN_S = 90.0
#: Starts a control plane on a thread that ends, says which processes it has, and stays.
CHILD = """
import json, sys, threading
from tests.support.controlplane import ControlPlane
plane = ControlPlane()
starting = threading.Thread(target=plane.start)
starting.start()
starting.join()
plane.start_kwok()
print(json.dumps([plane.pids(), str(plane.work)]), flush=True)
sys.stdin.read()
"""


def _config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_killed_api_server_keeps_the_data_and_its_address(api: Api) -> None:
    plane = api.control_plane
    path = f"/api/v1/namespaces/{api.namespace}/configmaps"
    plane.admin.post(path, _config_map("kept"))
    before = plane.pids()["kube-apiserver"]
    plane.kill("kube-apiserver")
    assert not _lives(before)
    assert not plane.admin.is_ready()
    plane.restart("kube-apiserver")
    assert plane.url == api.url
    assert plane.admin.has(f"{path}/kept")


def test_killed_etcd_keeps_the_data(api: Api) -> None:
    plane = api.control_plane
    path = f"/api/v1/namespaces/{api.namespace}/configmaps"
    plane.admin.post(path, _config_map("kept"))
    plane.restart("etcd")
    wait_for(plane.admin.is_ready, STARTED_WITHIN_S, "a ready API server")
    assert plane.admin.has(f"{path}/kept")


def test_frozen_component_answers_again_when_thawed(api: Api) -> None:
    plane = api.control_plane
    plane.freeze("etcd")
    assert not plane.is_running("etcd")
    plane.thaw("etcd")
    wait_for(plane.store.is_ready, STARTED_WITHIN_S, "an answer of etcd")


def test_reset_brings_back_what_a_test_killed_or_froze(api: Api) -> None:
    plane = api.control_plane
    plane.freeze("etcd")
    plane.kill("kube-controller-manager")
    plane.reset()
    assert plane.is_running("etcd")
    assert plane.is_running("kube-controller-manager")


def test_page_token_is_too_old_once_history_is_forgotten(api: Api) -> None:
    plane = api.control_plane
    path = f"/api/v1/namespaces/{api.namespace}/configmaps"
    plane.admin.post_all(path, [_config_map(f"m{number}") for number in range(4)])
    token = plane.admin.get(f"{path}?limit=1")["metadata"]["continue"]
    plane.admin.post(path, _config_map("later"))
    plane.forget_history()
    with pytest.raises(ApiRefusedError) as refusal:
        plane.admin.get(f"{path}?limit=1&continue={token}")
    assert refusal.value.status == 410


def test_component_that_was_never_started_cannot_be_frozen(api: Api) -> None:
    with pytest.raises(ControlPlaneError, match="nothing was never started"):
        api.control_plane.freeze("nothing")


@pytest.mark.controlplane
def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        pids, work = json.loads(child.stdout.readline())
        assert set(pids) == {"etcd", "kube-apiserver", "kube-controller-manager", "kwok"}
        assert all(_lives(pid) for pid in pids.values())
        assert Path(work).is_relative_to(tmp_path)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(GONE_WITHIN_S)
    wait_for(
        lambda: not any(_lives(pid) for pid in pids.values()), GONE_WITHIN_S, "all processes gone"
    )
