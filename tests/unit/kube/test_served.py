"""Kinds that a cluster may lack are watched once they are served."""

import pytest

from extender.kube.errors import KubeError, NotFound, Unavailable
from extender.kube.resources import DEVICES
from extender.kube.served import served_devices

pytestmark = pytest.mark.looptime


class Api:
    """Answers with these errors, one after the other, and then well."""

    def __init__(self, *errors: KubeError) -> None:
        self.errors = list(errors)

    async def get_raw(self, _path: str) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        return b"{}"


async def test_kinds_of_dynamic_resource_allocation_are_watched_where_they_are_served() -> None:
    assert await served_devices(Api()) == DEVICES  # type: ignore[arg-type]


async def test_cluster_without_them_has_none() -> None:
    assert await served_devices(Api(NotFound("no such path"))) == ()  # type: ignore[arg-type]


async def test_api_server_that_does_not_answer_is_asked_again() -> None:
    api = Api(Unavailable("down"), Unavailable("down"))
    assert await served_devices(api) == DEVICES  # type: ignore[arg-type]
    assert api.errors == []
