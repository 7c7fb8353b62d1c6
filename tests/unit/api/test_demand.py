"""The GPU request of a pod: all valid forms, and all errors."""

from typing import Any

import msgspec
import pytest

from extender.api import demand as demands
from extender.api.demand import Demand, read_compute, read_demand
from extender.api.objects import Pod
from extender.api.reasons import Reason, Refused
from extender.api.units import UnitError
from extender.api.workload import read_min_member, read_sub_groups
from tests.support.admission import PodDocument, pod
from tests.support.hostile import hostile_counts, hostile_fractions


def asked(built: PodDocument) -> Demand | Refused:
    return read_demand(_decoded(built))


def _decoded(built: PodDocument) -> Pod:
    return msgspec.convert(built.body, Pod)


def _sidecar(resource: str, amount: str) -> dict[str, Any]:
    return _init(resource, amount) | {"restartPolicy": "Always"}


def _init(resource: str, amount: str) -> dict[str, Any]:
    return {"name": "i", "resources": {"requests": {resource: amount}}}


def refusal(built: PodDocument) -> str:
    found = asked(built)
    assert isinstance(found, Refused)
    assert found.reason is Reason.INVALID_REQUEST
    return found.detail


def test_pod_without_gpu_words_wants_no_gpu() -> None:
    found = asked(pod())
    assert found == Demand()
    assert not Demand().wants_gpu


def test_fraction_is_milli_of_one_card() -> None:
    assert asked(pod().noted({"gpu-fraction": "0.25"})) == Demand(devices=1, milli=250)


def test_fraction_of_several_cards() -> None:
    notes = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "4"}
    found = asked(pod().noted(notes))
    assert found == Demand(devices=4, milli=500)
    assert isinstance(found, Demand)
    assert demands.gpu_milli_request(found) == 2000


def test_memory_is_mib_of_one_card_and_counts_one_milli_until_it_has_a_card() -> None:
    found = asked(pod().noted({"gpu-memory": "8192"}))
    assert found == Demand(devices=1, gpu_memory_mib=8192)
    assert isinstance(found, Demand)
    assert demands.gpu_milli_request(found) == 1


def test_whole_cards_are_a_thousand_milli_each() -> None:
    assert asked(pod().asking("nvidia.com/gpu", "2")) == Demand(devices=2, milli=1000)


@pytest.mark.parametrize(
    ("amount", "devices", "milli"), [("300", 1, 300), ("1000", 1, 1000), ("3000", 3, 1000)]
)
def test_gpu_milli_alone_is_understood(amount: str, devices: int, milli: int) -> None:
    assert asked(pod().asking("ballast.dev/gpu-milli", amount)) == Demand(devices, milli)


def test_one_and_a_half_cards_by_milli_are_refused() -> None:
    text = refusal(pod().asking("ballast.dev/gpu-milli", "1500"))
    assert "1500 is neither one fraction (1 to 999) nor whole GPUs" in text


def test_milli_of_two_containers_that_is_no_share_of_cards_is_refused() -> None:
    both = pod().asking("ballast.dev/gpu-milli", "600")
    assert "1200" in refusal(both.asking("ballast.dev/gpu-milli", "600", container=1))


def test_containers_are_added_up() -> None:
    both = pod().asking("nvidia.com/gpu", "1").asking("nvidia.com/gpu", "2", container=1)
    assert asked(both) == Demand(devices=3, milli=1000)


def test_init_container_counts_only_above_what_runs_later() -> None:
    small = pod().asking("nvidia.com/gpu", "2")
    small.with_spec(initContainers=[_init("nvidia.com/gpu", "1")])
    large = pod().asking("nvidia.com/gpu", "2")
    large.with_spec(initContainers=[_init("nvidia.com/gpu", "4")])
    assert asked(small) == Demand(devices=2, milli=1000)
    assert asked(large) == Demand(devices=4, milli=1000)


def test_sidecar_counts_beside_the_containers() -> None:
    built = pod().asking("nvidia.com/gpu", "2")
    built.with_spec(initContainers=[_sidecar("nvidia.com/gpu", "1")])
    assert asked(built) == Demand(devices=3, milli=1000)


def test_limit_counts_where_no_request_is_stated() -> None:
    resources = {"limits": {"nvidia.com/gpu": 2}}
    built = pod().with_spec(containers=[{"name": "main", "resources": resources}])
    assert asked(built) == Demand(devices=2, milli=1000)


def test_cpu_and_memory_are_counted_as_kube_scheduler_counts_them() -> None:
    built = pod().asking("cpu", "500m").asking("memory", "1Gi")
    built.with_spec(
        initContainers=[_sidecar("cpu", "250m"), _init("memory", "4Gi")],
        overhead={"cpu": "10m", "memory": "1Mi"},
    )
    assert asked(built) == Demand(cpu_milli=760, memory_mib=4097)


@pytest.mark.parametrize("text", hostile_fractions(), ids=lambda text: ascii(text)[:24])
def test_hostile_fraction_is_refused_with_an_example(text: str) -> None:
    said = refusal(pod().noted({"gpu-fraction": text}))
    assert said.startswith("team-a/train-1: gpu-fraction: ")
    assert 'such as "0.5"' in said


@pytest.mark.parametrize("text", hostile_counts(), ids=lambda text: ascii(text)[:24])
def test_hostile_memory_is_refused_with_an_example(text: str) -> None:
    said = refusal(pod().noted({"gpu-memory": text}))
    assert said.startswith("team-a/train-1: gpu-memory: ")
    assert "whole number from 1" in said


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "65", "1000000000", "two", ""])
def test_hostile_number_of_devices_is_refused(text: str) -> None:
    notes = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": text}
    assert refusal(pod().noted(notes))


@pytest.mark.parametrize("amount", ["500m", "-1", "1.5", "1e30"])
def test_hostile_number_of_cards_is_refused(amount: str) -> None:
    assert refusal(pod().asking("nvidia.com/gpu", amount))


def test_more_cards_than_a_node_has_are_refused() -> None:
    assert "at most 64" in refusal(pod().asking("nvidia.com/gpu", "65"))


@pytest.mark.parametrize(
    ("built", "may_be_default"),
    [
        (pod().noted({"gpu-fraction": "0.5", "gpu-memory": "8192"}), False),
        (pod().noted({"gpu-fraction": "0.5"}).asking("nvidia.com/gpu", "1"), True),
        (pod().noted({"gpu-memory": "8192"}).asking("nvidia.com/gpu", "1"), True),
    ],
)
def test_two_ways_at_once_are_refused_never_merged(
    built: PodDocument, may_be_default: bool
) -> None:
    said = refusal(built)
    assert "use one of them" in said
    assert ("LimitRange" in said) is may_be_default


def test_number_of_devices_without_a_share_of_each_is_refused() -> None:
    built = pod().noted({"gpu-fraction-num-devices": "2"}).asking("nvidia.com/gpu", "2")
    assert "needs gpu-fraction or gpu-memory beside it" in refusal(built)


@pytest.mark.parametrize(
    ("built", "means"),
    [
        (pod().noted({"gpu-fraction": "0.5"}).asking("ballast.dev/gpu-milli", "400"), 500),
        (pod().noted({"gpu-memory": "8192"}).asking("ballast.dev/gpu-milli", "400"), 1),
        (pod().asking("nvidia.com/gpu", "2").asking("ballast.dev/gpu-milli", "1000"), 2000),
    ],
)
def test_gpu_milli_that_disagrees_is_refused(built: PodDocument, means: int) -> None:
    assert f"means {means}" in refusal(built)


@pytest.mark.parametrize(
    "built",
    [
        pod().noted({"gpu-fraction": "0.5"}).asking("ballast.dev/gpu-milli", "500"),
        pod().noted({"gpu-memory": "8192"}).asking("ballast.dev/gpu-milli", "1"),
        pod().asking("nvidia.com/gpu", "2").asking("ballast.dev/gpu-milli", "2000"),
    ],
)
def test_gpu_milli_that_agrees_changes_nothing(built: PodDocument) -> None:
    assert isinstance(asked(built), Demand)


@pytest.mark.parametrize(
    ("notes", "milli"),
    [
        ({}, (500, 1000)),
        ({"gpu-compute-limit": "0.25"}, (250, 250)),
        ({"gpu-compute-request": "0.3", "gpu-compute-limit": "1"}, (300, 1000)),
        ({"ballast.dev/gpu-compute-request": "0"}, (0, 1000)),
        ({"ballast.dev/gpu-compute-request": "300", "gpu-compute-request": "0.3"}, (300, 1000)),
    ],
)
def test_compute_of_a_half_card(notes: dict[str, str], milli: tuple[int, int]) -> None:
    assert read_compute(_decoded(pod().noted(notes)), Demand(1, 500)) == milli


def test_memory_request_is_guaranteed_no_compute() -> None:
    assert read_compute(_decoded(pod()), Demand(1, 0, 8192)) == (0, 1000)


@pytest.mark.parametrize(
    "notes",
    [
        {"gpu-compute-request": "0.6", "gpu-compute-limit": "0.5"},
        {"gpu-compute-request": "0.501"},
        {"ballast.dev/gpu-compute-request": "1000"},
        {"ballast.dev/gpu-compute-request": "300", "gpu-compute-request": "0.5"},
        {"gpu-compute-limit": "1.5"},
        {"ballast.dev/gpu-compute-limit": "0.5"},
    ],
)
def test_compute_that_makes_no_sense_is_refused(notes: dict[str, str]) -> None:
    with pytest.raises(UnitError):
        read_compute(_decoded(pod().noted(notes)), Demand(1, 500))


def test_the_refusal_of_compute_above_the_fraction_says_both_figures() -> None:
    with pytest.raises(UnitError, match=r"is 1, above the 0.1 of each card"):
        read_compute(_decoded(pod().noted({"gpu-compute-request": "1"})), Demand(1, 100))


def test_part_of_a_card_as_a_resource_is_refused_with_the_annotation_that_means_it() -> None:
    assert refusal(pod().asking("nvidia.com/gpu", "500m")).endswith(
        "nvidia.com/gpu: '500m' (0.5) is not a whole number, such as 2; half of a GPU is the"
        ' annotation gpu-fraction: "0.5"'
    )


def test_the_refusal_of_a_minimum_names_the_key_as_it_was_written() -> None:
    key = "pod-group.scheduling.sigs.k8s.io/min-available"
    with pytest.raises(UnitError, match=f"^{key}: 'all' is not"):
        read_min_member(None, {key: "all"})
    with pytest.raises(UnitError, match=r"^ballast\.dev/min-member: '0' is not"):
        read_min_member({"ballast.dev/min-member": "0"}, {key: "all"})


def test_min_member_is_read_from_every_known_key() -> None:
    assert read_min_member({"ballast.dev/min-member": "4"}, None) == 4
    assert read_min_member(None, {"pod-group.scheduling.sigs.k8s.io/min-available": "3"}) == 3
    assert read_min_member(None, None) == 0


@pytest.mark.parametrize("text", ["0", "-1", "4 ", "1e1", "\u0664"])
def test_hostile_min_member_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="min-member"):
        read_min_member({"ballast.dev/min-member": text}, None)


def test_min_members_that_differ_are_refused() -> None:
    both = {"ballast.dev/min-member": "4", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
    with pytest.raises(UnitError, match="differ"):
        read_min_member(both, None)


def test_fraction_goes_to_the_container_it_names() -> None:
    built = pod().asking("cpu", "1", container=1)
    assert demands.fraction_container(_decoded(built)) == 0
    built.noted({"gpu-fraction-container-name": "c1"})
    assert demands.fraction_container(_decoded(built)) == 1


def test_container_that_is_not_there_is_refused_with_those_that_are() -> None:
    built = pod().noted({"gpu-fraction-container-name": "nope"})
    with pytest.raises(UnitError, match=r"'nope' is none of spec.containers \(main\)"):
        demands.fraction_container(_decoded(built))


def sub_groups(text: str, min_member: int = 0) -> object:
    return read_sub_groups({"ballast.dev/sub-groups": text}, min_member)


def test_sub_groups_are_names_with_the_pods_that_each_needs() -> None:
    assert sub_groups("driver=1,workers=8", 9) == (("driver", 1), ("workers", 8))
    assert sub_groups("spare=0,driver=1", 4) == (("spare", 0), ("driver", 1))
    assert sub_groups("driver=1,workers=8") == (("driver", 1), ("workers", 8))
    assert read_sub_groups(None, 9) == read_sub_groups({}, 0) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("driver", "driver=", "=1", "driver=01", "driver=-1", "driver=1,", "driver=1, workers=8"),
        *("Driver=1", "a.b=1", "x=1=2", "a" * 64 + "=1", "driver=1000000", "driver=\u0661", " "),
    ],
)
def test_malformed_sub_groups_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UnitError, match=r"sub-groups: .* such as .driver=1,workers=8"):
        sub_groups(text)


@pytest.mark.parametrize("text", ["a=1,a=2", ",".join(f"g{ix}=1" for ix in range(65))])
def test_sub_groups_that_are_too_many_or_twice_the_same_are_refused(text: str) -> None:
    with pytest.raises(UnitError, match="at most 64 different names"):
        sub_groups(text)


def test_sub_groups_of_more_pods_than_min_member_are_refused() -> None:
    with pytest.raises(UnitError, match="9 pods in all are more than min-member, 8"):
        sub_groups("driver=1,workers=8", 8)
