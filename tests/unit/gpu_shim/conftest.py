"""Fixtures that several modules use."""

import pytest


@pytest.fixture(params=[False, True], ids=["decided late", "planned ahead"])
def is_ahead(request: pytest.FixtureRequest) -> bool:
    """Whether the scheduler under test plans ahead; a test runs both ways."""
    return bool(request.param)
