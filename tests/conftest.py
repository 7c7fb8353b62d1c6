"""Fixtures every test may use: the real control plane, and the shared material.

One control plane serves the session, and each worker where there are several. `api` empties it
for each test that asks, which costs a third of a millisecond per object; `cluster` adds
kube-scheduler and kwok.
A test that uses any of them carries the marker `controlplane`; when the programs cannot be had it
fails, it is not skipped.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.built import require_current_kernels
from tests.support.controlplane.binaries import find_binaries
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api, Cluster
from tests.support.controlplane.process import ControlPlaneError
from tests.support.installation import install
from tests.support.session.closing import add_line
from tests.support.session.used_rights import remember_uses

pytest_plugins = ["tests.support.auditor.fixtures", "tests.support.session.plugin"]

ROOT = Path(__file__).resolve().parent.parent
SCHEDULER = ROOT / "manifests" / "base" / "scheduler"
ON_DEMAND = ("kwok", "kube-scheduler")
NO_PROGRAMS: pytest.StashKey[ControlPlaneError] = pytest.StashKey()
_numbers = itertools.count(1)


#: Hypothesis bounds the time of an example and of its making; a busy machine exceeds both.
settings.register_profile(
    "any machine",
    parent=settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Refuse to test with kernels that were built from older sources."""
    require_current_kernels()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the control plane by what it asks for, so that no mark is forgotten."""
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.controlplane)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make missing programs before the first test: in view, and outside any test's time limit."""
    needed = any(
        "controlplane" in {mark.name for mark in each.iter_markers()} for each in session.items
    )
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        try:
            find_binaries()
        except ControlPlaneError as error:
            session.config.stash[NO_PROGRAMS] = error


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The session's control plane: etcd, kube-apiserver, kube-controller-manager, our kinds
    and rights."""
    missing = request.config.stash.get(NO_PROGRAMS, None)
    if missing is not None:
        raise missing
    plane = ControlPlane()
    plane.start()
    try:
        install(plane)
        plane.mark_baseline()
        yield plane
    finally:
        has_failures = request.session.testsfailed > 0
        if has_failures:
            add_line(request.config, f"control plane logs kept: {plane.logs}")
        remember_uses(request.config, plane.logs)
        plane.stop(is_kept=has_failures)


@pytest.fixture
def api(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Api:
    """An API server that holds nothing but the CRDs, and a namespace of the test's own."""
    if "cluster" not in request.fixturenames:
        for name in ON_DEMAND:
            control_plane.kill(name)
    return Api(control_plane, fresh_namespace(control_plane))


@pytest.fixture
def cluster(api: Api, request: pytest.FixtureRequest) -> Cluster:
    """An empty cluster with kube-scheduler and kwok.

    The scheduler's configuration is ours where there is one; a test gives another by
    `@pytest.mark.parametrize("cluster", [path or None], indirect=True)`, None for the stock one.
    """
    ours = SCHEDULER if any(SCHEDULER.glob("*.yaml")) else None
    config: Path | None = getattr(request, "param", ours)
    plane = api.control_plane
    plane.start_scheduler(config, extender_url=plane.extender_url)
    plane.start_kwok()
    return Cluster(plane, api.namespace, config)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared material (scenarios, traces): $BALLAST_SHARED, else `shared` beside the tree."""
    folder = Path(os.environ.get("BALLAST_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared material at {folder}; set BALLAST_SHARED to its folder")
    return folder


def fresh_namespace(control_plane: ControlPlane) -> str:
    """Empty the API server and make a namespace of a name that no test of the session had."""
    control_plane.reset()
    name = f"test-{next(_numbers)}"
    control_plane.make_namespace(name)
    return name
