"""The overlay `web` with its login: none of our accounts may query anything."""

import os
from pathlib import Path

import pytest
import yaml

from extender.kube.borrowed import check_no_credentials
from extender.kube.connection import Connection, Source
from tests.support.overlays import MANIFESTS, Document, of_kind, rendered, rendered_text

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def with_login(tmp_path: Path) -> list[Document]:
    """As docs/web.md has it."""
    path = {each: os.path.relpath(MANIFESTS / each, tmp_path)
            for each in ("overlays/web", "components/web-login")}  # fmt: skip
    kustomization = {
        "resources": [path["overlays/web"]],
        "components": [path["components/web-login"]],
        "images": [{"name": "oauth2-proxy", "newName": "example.com/proxy", "digest": DIGEST}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return list(yaml.safe_load_all(rendered_text(tmp_path)))


def test_the_pages_have_no_token_and_no_rights() -> None:
    (deployment,) = of_kind(rendered("web"), "Deployment")
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    (account,) = of_kind(rendered("web"), "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    assert of_kind(rendered("web"), *kinds) == []


async def test_the_kubeconfig_can_be_read_and_has_no_credentials(tmp_path: Path) -> None:
    (stored,) = of_kind(rendered("web"), "ConfigMap")
    config = yaml.safe_load(stored["data"]["kubeconfig"])
    del config["clusters"][0]["cluster"]["certificate-authority"]  # of the pod's own folder
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    connection = await Connection.open(Source(str(path)))
    await check_no_credentials(connection)
    assert connection.host == "https://kubernetes.default.svc"
    await connection.close()


def test_only_the_login_is_reached_and_it_passes_tokens_on(with_login: list[Document]) -> None:
    (deployment,) = of_kind(with_login, "Deployment")
    containers = {
        each["name"]: each for each in deployment["spec"]["template"]["spec"]["containers"]
    }
    assert containers["login"]["image"] == f"example.com/proxy@{DIGEST}"
    assert "--pass-authorization-header=true" in containers["login"]["args"]
    assert "--upstream=http://127.0.0.1:8080/" in containers["login"]["args"]
    assert {"--behind-proxy", "--listen=127.0.0.1:8080"} <= set(containers["web"]["args"])
    (login,) = containers["login"]["ports"]
    (service,) = of_kind(with_login, "Service")
    assert service["spec"]["ports"][0]["targetPort"] == login["containerPort"]
    (policy,) = of_kind(with_login, "NetworkPolicy")
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 4180}]}]
    for each in containers.values():
        context = each["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
