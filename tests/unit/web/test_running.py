"""What runs, read from pods."""

from msgspec.structs import replace

from extender.api import names
from extender.web.running import running_of
from tests.support.builders import pod


def test_a_request_in_mib_has_the_share_of_the_card_that_the_pod_holds() -> None:
    built = pod("a").needs_mib(8192).bound("n0").build()
    notes = {**(built.metadata.annotations or {}), names.ANNOTATION_CARDS: "1:250:8192"}
    held = replace(built, metadata=replace(built.metadata, annotations=notes))
    assert [each.gpus for each in running_of([held])] == ["0.25"]
