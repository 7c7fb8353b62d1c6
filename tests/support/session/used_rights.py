"""Compares granted and used rights at the end of a run, over all its control planes.

`manifests/base` grants rights; the audit logs of the API servers show which of them our programs
used. Only runs of all integration tests are judged: a partial run does not use all rights, and
cannot show that a request that was refused once is allowed at other times.
"""

from pathlib import Path

import pytest

from tests.support.rights import Right, Use, granted, not_granted, not_used, used

INTEGRATION = Path(__file__).resolve().parents[2] / "integration"
#: Options that leave out some tests.
CHOOSING = ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob", "collectonly")
#: The expression of `make test`, which leaves out inputs and no test.
USUAL = "not thorough"
#: A use as sent between processes: the right; program; whether it was allowed.
Sent = tuple[tuple[str, str, str, str, str], str, bool]
_USES: pytest.StashKey[set[Use]] = pytest.StashKey()


def remember_uses(config: pytest.Config, logs: Path) -> None:
    """Read the audit log of a control plane before it is removed."""
    config.stash.setdefault(_USES, set()).update(used(logs))


def sent_uses(config: pytest.Config) -> list[Sent]:
    """The uses that this worker saw, for the main process."""
    return [_sent(each) for each in config.stash.get(_USES, set())]


def receive_uses(config: pytest.Config, sent: list[Sent]) -> None:
    """Add the uses that a worker saw."""
    uses = {Use(Right(*right), program, is_allowed) for right, program, is_allowed in sent}
    config.stash.setdefault(_USES, set()).update(uses)


def is_whole(config: pytest.Config) -> bool:
    """Whether the run includes all integration tests."""
    asked = [Path(config.invocation_params.dir, each) for each in config.args]
    given = (getattr(config.option, each, None) for each in CHOOSING)
    chosen = [each for each in given if each and each != USUAL]
    return not chosen and any(INTEGRATION.is_relative_to(each) for each in asked)


def faults(config: pytest.Config) -> list[str]:
    """Problems with the rights, a line each. If tests failed, not all uses were seen."""
    uses, grants = config.stash.get(_USES, set()), granted()
    wrong = [
        f"used and not granted: {use.program} as {use.right}" for use in not_granted(uses, grants)
    ]
    wrong += [f"granted and not used: {right}" for right in not_used(uses, grants)]
    return sorted(wrong)


def _sent(use: Use) -> Sent:
    right = use.right
    fields = right.account, right.group, right.resource, right.verb, right.name
    return fields, use.program, use.is_allowed
