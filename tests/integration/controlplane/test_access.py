"""Access by role, and the audit log."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.support.controlplane.handles import Api, wait_for

SEEN_S = 90.0


def _may_list_pods(api: Api, kubeconfig: str) -> bool:
    try:
        api.kubectl("get", "pods", f"-n{api.namespace}", kubeconfig=kubeconfig)
    except subprocess.CalledProcessError:
        return False
    return True


def _pod(name: str) -> str:
    container = {"name": "main", "image": "example.invalid/none"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }
    return json.dumps(pod)


def test_anonymous_request_is_refused(api: Api) -> None:
    authority = str(api.control_plane.work / "pki" / "ca.crt")
    trust = ssl.create_default_context(cafile=authority)
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(f"{api.url}/api/v1/pods", context=trust, timeout=10)
    assert refusal.value.code == 403


def test_certificate_of_another_authority_is_refused(api: Api) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{api.url}/readyz", timeout=10)


def test_user_without_rights_is_refused(api: Api) -> None:
    nobody = api.control_plane.kubeconfig_for("nobody", ["nothing"])
    with pytest.raises(subprocess.CalledProcessError) as failure:
        api.kubectl("get", "pods", "-n", api.namespace, kubeconfig=nobody)
    assert 'User "nobody" cannot list resource "pods"' in failure.value.stderr


def test_group_gets_the_rights_it_is_bound_to(api: Api) -> None:
    api.kubectl(
        "create", "rolebinding", "v", "--clusterrole=view", "--group=readers", f"-n{api.namespace}"
    )
    reader = api.control_plane.kubeconfig_for("ada", ["readers"])
    # The authoriser learns of a new binding by a watch, so a moment later.
    wait_for(lambda: _may_list_pods(api, reader), SEEN_S, "the right to list pods")


def test_service_account_logs_in_with_a_token(api: Api) -> None:
    account = api.control_plane.kubeconfig_for_service_account(api.namespace, "default")
    who = json.loads(api.kubectl("auth", "whoami", "-o", "json", kubeconfig=account))
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{api.namespace}:default"


def test_pod_gets_the_service_account_of_its_namespace(api: Api) -> None:
    api.kubectl("create", f"-n{api.namespace}", "-f", "-", stdin=_pod("first"))
    pod = json.loads(api.kubectl("get", "pod", "first", f"-n{api.namespace}", "-o", "json"))
    assert pod["spec"]["serviceAccountName"] == "default"
    assert any("projected" in volume for volume in pod["spec"]["volumes"])


def test_audit_log_has_a_request_as_soon_as_it_is_answered(api: Api) -> None:
    api.kubectl("create", f"-n{api.namespace}", "-f", "-", stdin=_pod("audited"))
    api.kubectl("label", "pod", "audited", f"-n{api.namespace}", "seen=yes")
    patched = {"verb": "patch", "namespace": api.namespace, "name": "audited"}
    found = [each for each in _audited(api) if _matches(each, patched)]
    assert [each["user"]["username"] for each in found] == ["kubernetes-admin"]
    assert found[0]["responseStatus"]["code"] == 200
    assert found[0]["level"] == "Metadata"


def _audited(api: Api) -> list[dict[str, Any]]:
    return [json.loads(line) for line in api.control_plane.audit_log.read_text().splitlines()]


def _matches(event: dict[str, Any], wanted: dict[str, str]) -> bool:
    seen = {"verb": event["verb"], **event.get("objectRef", {})}
    return all(seen.get(key) == value for key, value in wanted.items())
