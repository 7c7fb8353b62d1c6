"""The requests of a trial's load, and that all of it can be trimmed."""

from random import Random
from typing import Any

from tests.faults.kinds import flood
from tests.faults.load import FOLDERS, OWN, Load, job_of, stream_of
from tests.faults.stage import QUOTAS


class _Shelf:
    """The objects of a stage, by folder, and the paths that were deleted."""

    def __init__(self, folders: dict[str, list[dict[str, Any]]]) -> None:
        self._folders = folders
        self.deleted: list[str] = []
        self.admin = self

    def items(self, path: str) -> list[dict[str, Any]]:
        return self._folders.get(path.removesuffix(f"?labelSelector={OWN}"), [])

    def delete(self, path: str) -> None:
        self.deleted.append(path)


def test_what_is_left_of_a_flood_is_cut_back_to_the_quota() -> None:
    pods = flood(Random(1))
    for pod in pods:
        pod["metadata"]["creationTimestamp"] = "2026-11-25T12:00:00Z"
        pod["status"] = {}
    asked = {pod["metadata"]["name"]: 1000 * _fraction(pod) for pod in pods}
    shelf = _Shelf({FOLDERS["Pod"].format("team-a"): pods})
    Load(shelf, Random(1)).trim()  # type: ignore[arg-type]
    left = asked.keys() - {path.rpartition("/")[2] for path in shelf.deleted}
    assert 0 < sum(asked[name] for name in left) <= 1000 * QUOTAS["team-a"]


def _fraction(pod: dict[str, Any]) -> float:
    return float(pod["metadata"]["annotations"]["gpu-fraction"])


def test_no_stream_is_left_when_the_load_is_cut_back() -> None:
    stream, job = stream_of("stream-1", Random(1)), job_of("job-1", Random(1))
    for each in (stream, job):
        each["metadata"]["creationTimestamp"] = "2026-11-25T12:00:00Z"
    jobs = FOLDERS["Job"].format("team-a")
    shelf = _Shelf({jobs: [stream, job]})
    Load(shelf, Random(1)).trim()  # type: ignore[arg-type]
    assert shelf.deleted == [f"{jobs}/stream-1"]
