"""Rights granted are rights used: compared at the end of the whole integration suite."""

import pytest

from tests.integration.manifests.conftest import IS_WHOLE
from tests.support.controlplane.cluster import ControlPlane
from tests.support.rights import Use, granted, not_granted, not_used, used


@pytest.fixture(scope="module")
def uses(control_plane: ControlPlane) -> set[Use]:
    """What our programs asked of the session's API server."""
    return used(control_plane.logs)


def test_nothing_was_used_that_is_not_granted(uses: set[Use]) -> None:
    surplus = not_granted(uses, granted())
    assert sorted(f"{each.program} as {each.right}" for each in surplus) == []


def test_nothing_is_granted_that_was_not_used(
    request: pytest.FixtureRequest, uses: set[Use]
) -> None:
    if not request.config.stash[IS_WHOLE]:
        pytest.skip("only a part of the integration suite ran: what it did not use proves nothing")
    if request.session.testsfailed:
        pytest.skip("tests failed, so not all that is used was seen")
    assert uses, "our programs asked nothing of the API server"
    assert sorted(str(each) for each in not_used(uses, granted())) == []
