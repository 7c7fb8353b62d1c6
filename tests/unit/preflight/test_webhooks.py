"""Which webhooks of other programs `ballast preflight` warns of."""

from typing import Any

import msgspec
import pytest

from extender.preflight.facts import Facts, WebhookConfiguration
from extender.preflight.findings import PreflightFinding, State
from extender.preflight.webhooks import check_webhooks

Webhook = dict[str, Any]
ALL = {"apiGroups": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*/*"], "scope": "*"}
SYSTEM = {"key": "kubernetes.io/metadata.name", "values": ["kube-system", "ballast-system"]}


def webhook(*, rule: Webhook | None = None, **fields: Any) -> Webhook:
    """It is asked about everything, and fails closed, as without `failurePolicy`."""
    return {"rules": [ALL | (rule or {})], **fields}


def finding(*webhooks: Webhook, **facts: Any) -> list[PreflightFinding]:
    body = {"metadata": {"name": "rules"}, "webhooks": list(webhooks)}
    made = msgspec.convert(body, WebhookConfiguration)
    return list(check_webhooks(Facts(webhooks=[made], **facts)))


@pytest.mark.parametrize(
    ("asked", "is_warned"),
    [
        (webhook(), True),
        (webhook(failurePolicy="Ignore"), False),
        (webhook(matchConditions=[{"name": "not-ballast", "expression": "false"}]), False),
        (webhook(rule={"resources": ["pods"]}), False),
        (webhook(rule={"operations": ["DELETE"]}), False),
        (webhook(rule={"apiGroups": ["ballast.dev"], "resources": ["gpunodes"]}), True),
        (webhook(rule={"apiGroups": ["apps"]}), False),
        # The ledger has no namespace, so a selector of namespaces does not exclude it.
        (webhook(namespaceSelector={"matchExpressions": [SYSTEM | {"operator": "NotIn"}]}), True),
        (
            webhook(
                rule={"scope": "Namespaced"},
                namespaceSelector={"matchExpressions": [SYSTEM | {"operator": "NotIn"}]},
            ),
            False,
        ),
        (
            webhook(
                rule={"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
                namespaceSelector={"matchExpressions": [SYSTEM | {"operator": "In"}]},
            ),
            True,
        ),
        (webhook(objectSelector={"matchLabels": {"checked": "true"}}), False),
    ],
)
def test_webhooks_that_can_keep_the_controller_from_its_lease_or_ledger(
    asked: Webhook, *, is_warned: bool
) -> None:
    (found,) = finding(asked)
    assert (found.state is State.WARN) == is_warned
    assert found.found.startswith("rules: asked about" if is_warned else "none can stop")


def test_what_cannot_be_read_is_not_called_harmless() -> None:
    assert not finding(unread=["validatingwebhookconfigurations: forbidden"])
