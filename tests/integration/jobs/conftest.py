"""A cluster with the policies, and other projects' job controllers if they are built."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_policies, started
from tests.support import jobset, kubeflow
from tests.support.argo.running import Argo
from tests.support.auditor import Auditor
from tests.support.controllers import SigsController
from tests.support.controlplane.handles import Cluster
from tests.support.kubeflow.running import MpiOperator, TrainingOperator
from tests.support.kuberay.running import KubeRay


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards, half of them each project's quota. Ends at rest."""
    async with opened_with_policies(cluster, 4, tmp_path) as opened:
        yield opened
        await audited.finish()


@pytest.fixture
async def job_sets(scene: Scene, tmp_path: Path) -> AsyncIterator[SigsController]:
    """JobSet's controller, for tests that are skipped without it."""
    async with started(SigsController(scene.plane, tmp_path, jobset.parts())) as made:
        yield made


@pytest.fixture
async def kuberay(scene: Scene) -> AsyncIterator[KubeRay]:
    """KubeRay's operator, for tests that are skipped without it."""
    async with started(KubeRay(scene.plane)) as made:
        yield made


@pytest.fixture
async def training(scene: Scene) -> AsyncIterator[TrainingOperator]:
    """Kubeflow's training operator, for tests that are skipped without it."""
    async with started(TrainingOperator(scene.plane)) as made:
        yield made


@pytest.fixture
async def mpi(scene: Scene) -> AsyncIterator[MpiOperator]:
    """Kubeflow's MPI operator, for tests that are skipped without it."""
    async with started(MpiOperator(scene.plane)) as made:
        yield made


@pytest.fixture
async def trainer(
    scene: Scene, job_sets: SigsController, tmp_path: Path
) -> AsyncIterator[SigsController]:
    """Kubeflow Trainer's controller beside JobSet's, for tests that are skipped without them."""
    assert job_sets.is_alive
    async with started(SigsController(scene.plane, tmp_path, kubeflow.trainer_parts())) as made:
        yield made


@pytest.fixture
async def argo(scene: Scene) -> AsyncIterator[Argo]:
    """Argo's workflow-controller, for tests that are skipped without it."""
    async with started(Argo(scene.plane)) as made:
        yield made
