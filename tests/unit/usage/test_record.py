"""One usage record: the number of lines, and where further users are counted."""

from datetime import UTC, datetime

from extender.api.usage_kinds import OTHER_USERS
from extender.usage.integral import DAY_S, HOUR_S, Counted
from extender.usage.record import MAX_LINES, PROJECT, empty_record, extended

MIDNIGHT_S = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp())


def test_users_beyond_the_lines_of_a_record_are_counted_together() -> None:
    hour = MIDNIGHT_S // HOUR_S
    held = {(f"user-{n}", "default", "H100"): {hour: 1000} for n in range(MAX_LINES + 3)}
    record = empty_record("2026-10-01", (PROJECT, "a"))
    found = extended(record, Counted(held=held), MIDNIGHT_S + DAY_S)
    by_user = {line.user: sum(line.held) for line in found.lines}
    assert len(by_user) == MAX_LINES + 1
    assert by_user[OTHER_USERS] == 3000
    assert sum(by_user.values()) == 1000 * (MAX_LINES + 3)
