"""Aggregated ClusterRoles (`view`, `edit`, `admin`): whether the controller has aggregated them."""

from collections.abc import Iterator, Sequence
from typing import Any

PATH = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
Role = dict[str, Any]


def are_added_up(roles: Sequence[Role]) -> bool:
    """Whether every aggregated role has exactly the rules of the roles that its selectors match."""
    for total in roles:
        if "aggregationRule" in total:
            wanted = [rule for role in _parts_of(total, roles) for rule in _rules(role)]
            if not all(rule in _rules(total) for rule in wanted):
                return False
            if not all(rule in wanted for rule in _rules(total)):
                return False
    return True


def _rules(role: Role) -> Sequence[Any]:
    return role.get("rules") or ()


def _parts_of(total: Role, roles: Sequence[Role]) -> Iterator[Role]:
    for selector in total["aggregationRule"].get("clusterRoleSelectors", ()):
        wanted = selector.get("matchLabels", {}).items()
        yield from (role for role in roles if wanted <= role["metadata"].get("labels", {}).items())
