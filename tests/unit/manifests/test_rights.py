"""Reading rights from roles and from an audit log, and comparing them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.rights import Right, Use, granted, not_granted, not_used, used

ROLES = """
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [pods, pods/status], verbs: [get, list]}
- {apiGroups: [""], resources: [secrets], resourceNames: [one], verbs: [get]}
---
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, namespace: ballast-system, name: a}]
"""
#: Two Roles of one name.
ROLES_OF_NAMESPACES = "---".join(
    f"""
kind: Role
metadata: {{name: reader, namespace: {namespace}}}
rules: [{{apiGroups: [""], resources: [{resource}], verbs: [get]}}]
---
kind: RoleBinding
metadata: {{name: reader, namespace: {namespace}}}
roleRef: {{kind: Role, name: reader}}
subjects: [{{kind: ServiceAccount, namespace: ballast-system, name: a}}]
"""
    for namespace, resource in (("kube-system", "configmaps"), ("ballast-system", "leases"))
)


def _right(resource: str, verb: str, name: str = "") -> Right:
    return Right("ballast-system:a", "", resource, verb, name)


def _event(agent: str = "ballast-a", decision: str = "allow", **where: str) -> dict[str, Any]:
    verb = where.pop("verb", "get")
    return {
        "user": {"username": "system:serviceaccount:ballast-system:a"},
        "userAgent": agent,
        "verb": verb,
        "objectRef": where,
        "annotations": {"authorization.k8s.io/decision": decision},
    }


@pytest.fixture
def grants(tmp_path: Path) -> set[Right]:
    (tmp_path / "roles.yaml").write_text(ROLES)
    return granted(tmp_path)


def _logged(folder: Path, *events: dict[str, Any]) -> set[Use]:
    (folder / "audit.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    return used(folder)


def test_roles_of_one_name_in_two_namespaces_are_two(tmp_path: Path) -> None:
    (tmp_path / "roles.yaml").write_text(ROLES_OF_NAMESPACES)
    assert granted(tmp_path) == {_right("configmaps", "get"), _right("leases", "get")}


def test_role_is_as_many_rights_as_verbs_times_resources(grants: set[Right]) -> None:
    assert grants == {
        _right("pods", "get"),
        _right("pods", "list"),
        _right("pods/status", "get"),
        _right("pods/status", "list"),
        _right("secrets", "get", "one"),
    }


def test_grant_of_one_name_covers_that_name_only() -> None:
    named = _right("leases", "get", "mine")
    assert Use(named, "ballast-a", True).is_by(named)
    assert not Use(_right("leases", "get", "other"), "ballast-a", True).is_by(named)
    assert Use(named, "ballast-a", True).is_by(_right("leases", "get"))


def test_requests_of_people_and_of_other_programs_are_passed_over(tmp_path: Path) -> None:
    found = _logged(tmp_path, _event("kubectl/v1", resource="pods"), _event(resource="nodes"))
    assert {use.right for use in found} == {_right("nodes", "get")}


def test_rotated_logs_are_read_too(tmp_path: Path) -> None:
    line = json.dumps(_event(resource="pods")) + "\n"
    (tmp_path / "audit-2026-01-01T00-00-00.000.jsonl").write_text(line)
    assert len(used(tmp_path)) == 1


def test_refused_request_is_a_use_without_a_grant(tmp_path: Path, grants: set[Right]) -> None:
    found = _logged(tmp_path, _event(resource="pods", decision="forbid"))
    assert len(not_granted(found, grants)) == 1


def test_refusal_while_the_api_server_starts_is_passed_over(
    tmp_path: Path, grants: set[Right]
) -> None:
    early = _event(resource="pods", decision="forbid")
    assert not not_granted(_logged(tmp_path, early, _event(resource="pods")), grants)


def test_request_that_another_role_allowed_is_a_use_without_a_grant(
    tmp_path: Path, grants: set[Right]
) -> None:
    found = _logged(tmp_path, _event(resource="configmaps"))
    assert len(not_granted(found, grants)) == 1


def test_grants_that_nobody_needed_are_left_over(tmp_path: Path, grants: set[Right]) -> None:
    found = _logged(
        tmp_path,
        _event(resource="pods"),
        _event(resource="pods", verb="list"),
        _event(resource="pods", subresource="status"),
    )
    assert not_used(found, grants) == {
        _right("pods/status", "list"),
        _right("secrets", "get", "one"),
    }
