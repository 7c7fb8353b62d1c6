"""Rights that the manifests grant, and rights that programs used according to the audit log.

A right is one verb on one resource, on one name if the grant is limited to it. Rights that our
kube-scheduler has by Kubernetes' own roles are left out.
"""

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.installation import MANIFESTS

#: What our programs call themselves, and the neighbour that runs under one of our accounts.
PROGRAMS = ("ballast-", "kube-scheduler/")
ACCOUNTS = "system:serviceaccount:ballast-"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """`verb` on `resource` (`pods/binding`) of API group `group`; any name if `name` is empty."""

    account: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        of = f" {self.name}" if self.name else ""
        return f"{self.account}: {self.verb} {what}{of}"


@dataclass(frozen=True, slots=True)
class Use:
    """One request of a Ballast program: the right that it needed, and whether it was allowed."""

    right: Right
    program: str
    is_allowed: bool

    def is_by(self, granted: Right) -> bool:
        """Whether this grant allows the request. A create has no name that a grant could limit."""
        name = "" if self.right.verb in ("create", "list", "watch") else self.right.name
        return granted in (_renamed(self.right, ""), _renamed(self.right, name))


def granted(*folders: Path) -> set[Right]:
    """All rights in the roles below `folders` that are bound to service accounts of Ballast; by
    default those of the base and of overlays with programs."""
    documents = [
        document
        for folder in folders or (MANIFESTS, MANIFESTS.parent / "overlays" / "view")
        for path in sorted(folder.rglob("*.yaml"))
        for document in yaml.load_all(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
        if isinstance(document, dict)
    ]
    rules = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each[
            "rules"
        ]
        for each in documents
        if each["kind"] in ("Role", "ClusterRole")
    }
    found: set[Right] = set()
    for each in documents:
        if each["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            kind = each["roleRef"]["kind"]
            namespace = each["metadata"]["namespace"] if kind == "Role" else ""
            role = (kind, namespace, each["roleRef"]["name"])
            for subject in _accounts(each):
                account = f"{subject['namespace']}:{subject['name']}"
                found.update(_atoms(account, rules.get(role, ())))
    return found


def _accounts(binding: dict[str, Any]) -> list[dict[str, str]]:
    """Service accounts that the binding names; rights of users are left out."""
    return [each for each in binding["subjects"] if each["kind"] == "ServiceAccount"]


def used(logs: Path) -> set[Use]:
    """Requests of programs under Ballast's service accounts, from the audit logs `logs`.

    Takes a few seconds for a gigabyte: lines of other accounts are skipped before decoding.
    """
    found: set[Use] = set()
    for path in sorted(logs.glob("audit*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                if ACCOUNTS.encode() in line and (use := _use(line)) is not None:
                    found.add(use)
    return found


def not_granted(uses: Iterable[Use], grants: set[Right]) -> set[Use]:
    """Requests of Ballast's programs without a grant, and requests that were never allowed.

    A refusal of a request that is granted, and allowed at other times, does not count: the API
    server was starting, or the test had removed the rights.
    """
    uses = set(uses)
    allowed = {use.right for use in uses if use.is_allowed}
    ours = {use for use in uses if use.program.startswith("ballast-")}
    return {
        *(use for use in ours if not any(use.is_by(each) for each in grants)),
        *(use for use in uses if use.right not in allowed),
    }


def not_used(uses: Iterable[Use], grants: set[Right]) -> set[Right]:
    """Grants that no request used."""
    needed = {each for use in uses for each in grants if use.is_by(each)}
    return grants - needed


def _atoms(account: str, rules: Iterable[dict[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", ("",)):
                        yield Right(account, group, resource, verb, name)


def _use(line: bytes) -> Use | None:
    event = json.loads(line)
    user, agent = event["user"]["username"], event.get("userAgent", "")
    where = event.get("objectRef", {})
    if not (user.startswith(ACCOUNTS) and agent.startswith(PROGRAMS) and "resource" in where):
        return None
    parts = (where["resource"], where.get("subresource", ""))
    right = Right(
        account=user.removeprefix("system:serviceaccount:"),
        group=where.get("apiGroup", ""),
        resource="/".join(part for part in parts if part),
        verb=event["verb"],
        name=where.get("name", ""),
    )
    decision = event.get("annotations", {}).get("authorization.k8s.io/decision", "allow")
    return Use(_limited(right), agent.split("/")[0].split(" ")[0], decision == "allow")


def _limited(right: Right) -> Right:
    """The right without the object's name, unless grants name objects of this resource: one entry
    instead of thousands."""
    return right if right.resource in _named() else _renamed(right, "")


def _renamed(right: Right, name: str) -> Right:
    return Right(right.account, right.group, right.resource, right.verb, name)


@functools.cache
def _named() -> frozenset[str]:
    """Resources for which some grant names single objects."""
    return frozenset(each.resource for each in granted() if each.name)
