"""Checks of other programs' webhooks, which are asked about what Ballast writes."""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.api.names import GROUP, SYSTEM_NAMESPACE
from extender.api.selectors import selects
from extender.preflight.facts import Facts, Webhook, WebhookRule
from extender.preflight.findings import PreflightFinding, State, some

#: What the controller cannot work without: its Lease, and the ledger. API group, resource, the
#: labels of its namespace, None if it has none.
_NEEDED: Final[tuple[tuple[str, str, Mapping[str, str] | None], ...]] = (
    ("coordination.k8s.io", "leases", {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE}),
    (GROUP, "gpunodes", None),
)


def check_webhooks(facts: Facts) -> Iterator[PreflightFinding]:
    """Webhooks that can keep the controller from its Lease or its ledger."""
    found = {
        configuration.metadata.name
        for configuration in facts.webhooks
        for webhook in configuration.webhooks or ()
        if _can_stop(webhook)
    }
    if found:
        yield PreflightFinding(
            "other webhooks",
            State.WARN,
            f"{some(list(found))}: asked about Ballast's Lease or ledger, with failurePolicy: Fail",
            f"while they are refused, or the webhook is away, nothing starts: exclude"
            f" {SYSTEM_NAMESPACE} and the API group {GROUP} (docs/platforms.md#kyverno)",
        )
    elif not any("webhookconfigurations" in each for each in facts.unread):
        yield PreflightFinding("other webhooks", State.OK, "none can stop Ballast's own writes")


def _can_stop(webhook: Webhook) -> bool:
    """Whether it fails closed, and is asked about something in `_NEEDED`. One with conditions in
    CEL is assumed to leave these out."""
    if webhook.failure_policy == "Ignore" or webhook.match_conditions:
        return False
    return any(
        selects(webhook.object_selector, {})
        and (namespace is None or selects(webhook.namespace_selector, namespace))
        and any(
            _covers(rule, group, resource, is_namespaced=namespace is not None)
            for rule in webhook.rules or ()
        )
        for group, resource, namespace in _NEEDED
    )


def _covers(rule: WebhookRule, group: str, resource: str, *, is_namespaced: bool) -> bool:
    scopes = {"*", "Namespaced" if is_namespaced else "Cluster"}
    return (
        rule.scope in scopes
        and not {"*", group}.isdisjoint(rule.api_groups)
        and not {"*", "*/*", resource}.isdisjoint(rule.resources)
        and not {"*", "CREATE", "UPDATE"}.isdisjoint(rule.operations)
    )
