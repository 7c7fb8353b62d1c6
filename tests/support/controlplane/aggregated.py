"""APIs that the API server forwards to a test's server on loopback."""

import base64
import json
from typing import Final

from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl, wait_for
from tests.support.controlplane.ports import LOOPBACK

EXTERNAL_METRICS: Final = "external.metrics.k8s.io/v1beta1"
_KNOWN_S: Final = 60.0


class AggregatedApi:
    """An aggregated API `group/version`. Its Service resolves to loopback by name, since there is
    no Service network; its server has a certificate of the plane's CA for that Service."""

    def __init__(
        self, plane: ControlPlane, group_version: str, namespace: str, service: str
    ) -> None:
        self._plane = plane
        self._group_version = group_version
        self._namespace = namespace
        self._service = service
        group, _, version = group_version.partition("/")
        self._name = f"{version}.{group}"

    def add(self, port: int) -> None:
        """Register the server on this port; returns once discovery has the API."""
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self._service, "namespace": self._namespace},
            "spec": {"type": "ExternalName", "externalName": LOOPBACK},
        }
        group, _, version = self._group_version.partition("/")
        where = {"name": self._service, "namespace": self._namespace, "port": port}
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(self._plane.authority.certificate).decode(),
            "service": where,
        }
        api_service = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": self._name},
            "spec": spec,
        }
        for manifest in (service, api_service):
            run_kubectl(self._plane, "apply", "--server-side", "-f-", stdin=json.dumps(manifest))
        wait_for(self._is_known, _KNOWN_S, f"{self._group_version} in discovery")

    def remove(self) -> None:
        """Remove the API; the server must still answer. If it ended first, discovery might keep an
        API without a server, and namespaces could not be deleted."""
        run_kubectl(self._plane, "delete", "apiservice", self._name, "--ignore-not-found")
        wait_for(
            lambda: not self._is_known(), _KNOWN_S, f"{self._group_version} gone from discovery"
        )

    def _is_known(self) -> bool:
        return self._group_version in run_kubectl(self._plane, "api-versions")
