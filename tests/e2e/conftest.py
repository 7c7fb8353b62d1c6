"""One cluster for the whole suite; Ballast is installed on it by the first test that needs it.

`BALLAST_E2E_KUBECONFIG` names a cluster; else one is made here. Where this machine can't, or the
node's programs are not built, the suite is skipped with a word; `BALLAST_E2E=required` builds them
and makes the rest a failure. `BALLAST_E2E_IMAGE` is an archive to install instead of one made from
the tree.
"""

import contextlib
import fcntl
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.site import (
    DEFINITIONS,
    KUBECONFIG,
    LEAST_GPUS,
    OVERLAY,
    ROOT,
    SYSTEM,
    Site,
    given_site,
    open_simulated,
    own_site,
)
from tests.e2e.workloads import NAMESPACES
from tests.support.controlplane.process import ControlPlaneError
from tests.support.node import missing_needs
from tests.support.node.binaries import find_node_binaries, missing_programs, programs_folder
from tests.support.session.closing import add_line

GIVEN_IMAGE = os.environ.get("BALLAST_E2E_IMAGE", "")
IMAGE = Path(GIVEN_IMAGE) if GIVEN_IMAGE else ROOT / "build" / "image" / "ballast.tar"
HERE = Path(__file__).parent
IS_REQUIRED = os.environ.get("BALLAST_E2E") == "required"
IMAGE_TIMEOUT_S = 1800.0
READY_S = 180.0
WHY_NOT: pytest.StashKey[str] = pytest.StashKey()


@dataclass(frozen=True, slots=True)
class Installed:
    """A site with Ballast on it, and how long that took from `kubectl apply` to all Ready."""

    site: Site
    took_s: float


def pytest_configure(config: pytest.Config) -> None:
    """Make the suite's marker known."""
    config.addinivalue_line("markers", "e2e: installs Ballast on a whole cluster")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, and put the uninstall last."""
    for item in items:
        if _is_here(item.path):
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda each: (_is_here(each.path), each.path.name == "test_uninstall.py"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make programs and image before the first test: in view, and outside any time limit."""
    is_asked = any(_is_here(each.path) for each in session.items)
    if not is_asked or session.config.option.collectonly or os.environ.get(KUBECONFIG):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        session.config.stash[WHY_NOT] = _prepare()


@functools.cache
def _is_here(path: Path) -> bool:
    return HERE in path.parents


def _prepare() -> str:
    """Make what a site of our own needs; returns why there can be none, or nothing."""
    missing = missing_needs()
    if missing:
        return "; ".join(missing)
    if not IS_REQUIRED and missing_programs(programs_folder()):
        return "the node's programs are not built: python -m tests.support.node build"
    try:
        find_node_binaries()
    except ControlPlaneError as error:
        return str(error)
    return "" if GIVEN_IMAGE else _make_image()


def _make_image() -> str:
    """Make the image, once for all workers of a run; returns why there is none, or nothing."""
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    with (IMAGE.parent / ".run").open("a+") as made_by:
        fcntl.flock(made_by, fcntl.LOCK_EX)
        made_by.seek(0)
        if run and made_by.read() == run:
            return ""
        words = _build_image()
        if not words:
            made_by.truncate(0)
            made_by.write(run)
    return words


def _build_image() -> str:
    command = [sys.executable, "-m", "manifests.image", f"--output={IMAGE}"]
    done = subprocess.run(
        command, cwd=ROOT, timeout=IMAGE_TIMEOUT_S, check=False, stderr=subprocess.PIPE
    )
    return done.stderr.decode().strip() if done.returncode else ""


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Puts a line below the results of the whole run."""
    return lambda line: add_line(request.config, line)


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """The cluster, without Ballast."""
    kubeconfig = os.environ.get(KUBECONFIG, "")
    why_not = request.config.stash.get(WHY_NOT, "")
    if why_not and IS_REQUIRED:
        pytest.fail(why_not)
    if why_not:
        pytest.skip(why_not)

    def has_failed() -> bool:
        is_failed = request.session.testsfailed > 0
        if is_failed and made.plane is not None:
            add_line(request.config, f"logs of the e2e cluster kept: {made.plane.logs}")
        return is_failed

    with given_site(kubeconfig) if kubeconfig else own_site(IMAGE, has_failed) as made:
        yield made


@pytest.fixture(scope="session")
def installed(site: Site, request: pytest.FixtureRequest) -> Iterator[Installed]:
    """Ballast, as README says to install it; taken away at the end if no test did."""
    if "ballast.dev" in site.kubectl("get", "crd", "-o", "name"):
        pytest.fail("the cluster has Ballast already, and the suite would uninstall it")
    started = time.monotonic()
    for folder in (DEFINITIONS, OVERLAY):
        site.kubectl("apply", "--server-side", "-k", str(folder))
    timeout = f"--timeout={READY_S:.0f}s"
    site.kubectl("wait", "-n", SYSTEM, "deployment", "--all", "--for=condition=Available", timeout)
    site.kubectl("wait", "-n", SYSTEM, "pod", "--all", "--for=condition=Ready", timeout)
    took_s = time.monotonic() - started
    add_line(request.config, f"from kubectl apply to everything Ready: {took_s:.1f} s")
    open_simulated(site)
    try:
        if site.n_gpus() < LEAST_GPUS:
            pytest.fail(f"the cluster has {site.n_gpus()} GPUs, the stories need {LEAST_GPUS}")
        yield Installed(site, took_s)
    finally:
        site.kubectl("delete", "namespace", *NAMESPACES, "--ignore-not-found", "--timeout=120s")
        if site.get("namespaces", f"--field-selector=metadata.name={SYSTEM}"):
            site.kubectl("delete", "-k", str(OVERLAY), "--ignore-not-found", "--wait=false")
        site.wait("deletion of the kinds", READY_S, lambda: _are_kinds_deleted(site), True)


def _are_kinds_deleted(site: Site) -> bool:
    """Delete the definitions; False while the API server still has the policy against that."""
    try:
        site.kubectl("delete", "-k", str(DEFINITIONS), "--ignore-not-found", "--wait=false")
    except subprocess.CalledProcessError:
        return False
    return True
