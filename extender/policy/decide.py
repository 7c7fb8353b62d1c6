"""The door: one snapshot in, one plan out."""

from collections.abc import Callable

from extender.policy.allocate import allocate
from extender.policy.fairshare import set_shares
from extender.policy.plan import Plan, Settings, Stage
from extender.policy.promises import settle_promises
from extender.policy.reclaim import reclaim
from extender.policy.session import Session
from extender.state.model import Snapshot

_STAGES: dict[Stage, Callable[[Session], None]] = {"allocate": allocate, "reclaim": reclaim}


def decide(snapshot: Snapshot, settings: Settings | None = None) -> Plan:
    """What to do now: pure, and the same for the same snapshot in whatever order it is listed.

    The snapshot's node table is used up by the simulation. Costs about one pass over all pods, plus
    a search per distinct shape that waits, plus what is decided.
    """
    session = Session(snapshot, settings or Settings())
    settle_promises(session)
    for queues in session.queues.values():
        set_shares(queues)
    session.read_pending()
    for stage in session.settings.stages:
        if stage in _STAGES:
            _STAGES[stage](session)
    return session.plan()
