"""Certificates renewed again and again under load, by two replicas, without a failed call, also
where their Secret is deleted.

BALLAST_ROTATIONS says how many renewals are waited for; 100 take about ten minutes.
"""

import base64
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import fresh_namespace
from tests.integration.webhooks.conftest import (
    BASE,
    CONFIGURATIONS,
    PROJECTS,
    SEEN_S,
    manifest,
    project_of,
)
from tests.support.controlplane.cluster import SYSTEM_NAMESPACE, ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.installation import Program
from tests.support.webhook_config import webhook_configurations
from webhooks import certs

pytestmark = pytest.mark.controlplane

N_ROTATIONS = int(os.environ.get("BALLAST_ROTATIONS", "6"))
#: A leaf is renewed two thirds into its life, so a renewal takes about five seconds. A busy machine
#: has the rest of its life for the next one.
LIFETIME_S, OVERLAP_S, CHECK_S = 8.0, 1.2, 0.15
#: Within this time both replicas serve a leaf that is in the Secret.
SERVED_S = 2.0
SECRET = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/ballast-webhooks-tls"


@dataclass(slots=True)
class Replicas:
    """Two webhooks that the API server calls one after the other, and a tenant's namespace."""

    api: Api
    programs: list[Program]

    def leaf(self) -> bytes:
        """The leaf in the Secret; empty while there is none."""
        admin = self.api.control_plane.admin
        if not admin.has(SECRET):
            return b""
        return base64.b64decode(admin.get(SECRET)["data"]["tls.crt"])

    def delete_leaf(self) -> None:
        """Delete the Secret."""
        self.api.control_plane.admin.delete(SECRET)

    def create(self, name: str) -> dict[str, Any]:
        """What the API server would make of a pod that shares a GPU."""
        path = f"/api/v1/namespaces/{self.api.namespace}/pods?dryRun=All"
        made: dict[str, Any] = self.api.control_plane.admin.post(
            path, manifest(name, {"gpu-fraction": "0.5"})
        )
        return made


@pytest.fixture
def replicas(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    api = Api(control_plane, fresh_namespace(control_plane))
    for folder in ("rbac", "priority-classes"):
        api.kubectl("apply", "--server-side", "-k", str(BASE / folder))
    admin = api.control_plane.admin
    admin.post(PROJECTS, project_of(api.namespace))
    ports = [free_port(), free_port()]
    # One webhook for each replica; failures are not passed over here.
    (configuration,) = webhook_configurations(port=1, ca=b"")
    shipped, *_ = configuration["webhooks"]
    configuration["webhooks"] = [
        shipped
        | {
            "name": f"pods-{at}.ballast.dev",
            "failurePolicy": "Fail",
            # The API server insists on a certificate here; the first turn replaces it.
            "clientConfig": {
                "url": f"https://{LOOPBACK}:{port}/mutate",
                "caBundle": base64.b64encode(certs.make().ca).decode(),
            },
        }
        for at, port in enumerate(ports)
    ]
    admin.post(CONFIGURATIONS, configuration)
    programs = [_program(api, port, tmp_path / str(port)) for port in ports]
    try:
        for program in programs:
            program.start_unready()
        for program in programs:
            program.wait_ready()
        found = Replicas(api, programs)
        wait_for(lambda: _is_called(found), SEEN_S, "a pod changed by both webhooks")
        yield found
    finally:
        api.kubectl("delete", "mutatingwebhookconfiguration", "ballast-webhooks")
        for program in programs:
            program.kill()


def _program(api: Api, port: int, folder: Path) -> Program:
    account = api.control_plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, "ballast-webhooks")
    argv = [
        "webhooks",
        f"--listen={LOOPBACK}:{port}",
        f"--cert-dir={folder}",
        "--secret=ballast-webhooks-tls",
        f"--cert-lifetime={LIFETIME_S}",
        f"--cert-overlap={OVERLAP_S}",
        f"--cert-check-every={CHECK_S}",
        f"--kubeconfig={account}",
    ]
    return Program("webhooks", argv, port, api.control_plane.logs / f"webhooks-{port}.log")


def _is_called(replicas: Replicas) -> bool:
    try:
        return "schedulingGates" in replicas.create("probe")["spec"]
    except Exception:  # not trusted yet
        return False


def test_no_call_fails_while_certificates_are_renewed_and_deleted(replicas: Replicas) -> None:
    seen: list[bytes] = []
    n_calls, deleted, since = 0, b"", time.monotonic()
    deadline = time.monotonic() + 60 + 20 * N_ROTATIONS
    while len(seen) <= N_ROTATIONS:
        assert time.monotonic() < deadline, f"{len(seen) - 1} of {N_ROTATIONS} renewals"
        made = replicas.create(f"pod-{n_calls}")
        assert made["spec"]["schedulingGates"] == [{"name": "ballast.dev/admission"}]
        n_calls += 1
        if n_calls % 5 == 0:
            leaf = replicas.leaf()
            if leaf and leaf not in seen:
                seen.append(leaf)
                since = time.monotonic()
            # Every other leaf is deleted once both replicas serve it.
            if len(seen) % 2 and leaf != deleted and time.monotonic() - since > SERVED_S:
                replicas.delete_leaf()
                deleted = seen[-1]
    assert n_calls > 10 * N_ROTATIONS
    assert deleted
