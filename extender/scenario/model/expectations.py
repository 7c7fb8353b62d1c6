"""The expected results in a scenario file."""

from msgspec import UNSET, UnsetType

from extender.scenario.model.values import Amount, Limit, Natural, Status, Written


class JobExpectation(Written, frozen=True, kw_only=True):
    """The expectation for all tasks of a job, or for `count` of them."""

    status: Status | list[Status] | None = None
    node: str | None = None
    count: Natural | None = None
    gpus: Amount | None = None
    reason: str | None = None


class TaskExpectation(Written, frozen=True, kw_only=True):
    """The expectation for one task; tasks with the same letter `card` share a card."""

    status: Status | list[Status] | None = None
    node: str | None = None
    card: str | None = None


class NodeExpectation(Written, frozen=True, kw_only=True):
    """How many cards of a node are idle, and how many are being released."""

    idle_gpus: int | None = None
    releasing_gpus: int | None = None


class AtMost(Written, frozen=True, kw_only=True):
    """Upper bounds of one cycle's new decisions."""

    bound: Natural | None = None
    evicted: Natural | None = None
    nominated: Natural | None = None


class ShareExpectation(Written, frozen=True, kw_only=True):
    """A queue's fair share, over all node pools."""

    gpu: Limit | UnsetType = UNSET
    cpu: Limit | UnsetType = UNSET
    memory: Limit | UnsetType = UNSET


class Expectation(Written, frozen=True, kw_only=True):
    """The expected results. Absent fields are not checked."""

    jobs: dict[str, JobExpectation] = {}
    tasks: dict[str, TaskExpectation] = {}
    nodes: dict[str, NodeExpectation] = {}
    at_most: AtMost = AtMost()
    fair_share: dict[str, ShareExpectation] = {}
