"""Reading the openb folder: what is read, and errors of broken folders."""

from pathlib import Path

import pytest

from extender.kernels.typical import ALL_MODELS
from extender.lab.openb.data import (
    DataError,
    load_cluster,
    load_reference,
    load_trace,
    trace_names,
)
from tests.unit.lab import openb_folder as given

ONE_GPU = (4000, 1, 1000, "")


def test_nodes_have_their_cards_cpu_memory_and_models(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"), ("n2", 8000, 1024, 1, "G2"))
    cluster = load_cluster(tmp_path)
    assert cluster.total_milli == 3000
    assert list(cluster.nodes.cards.free_of(0)) == [1000, 1000]
    assert cluster.nodes.free_cpu_milli[1] == 8000
    assert cluster.nodes.free_pods[1] == 1001
    assert cluster.models_named("T4") == 0b01
    assert cluster.models_named("G2|T4") == 0b11
    assert cluster.models_named("H100") == 0
    assert cluster.models_named("") == ALL_MODELS


def test_pods_of_one_kind_share_a_shape_and_come_by_name(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"))
    rows = [("b", 1, 1, 1, 500, ""), ("a", 2, 1, 1, 500, ""), ("c", 1, 1, 1, 500, "")]
    given.write(tmp_path / "openb_pod_list_x.csv", given.POD_COLUMNS, rows)
    trace = load_trace(tmp_path, "x", load_cluster(tmp_path))
    assert [trace.shapes[at].demand.cpu_milli for at in trace.pods] == [2, 1, 1]
    assert len(trace.shapes) == 2


def test_typical_pods_are_the_most_frequent_that_hold_95_percent(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"))
    often, seldom, once = (1000, 1, 500, ""), (2000, 1, 500, "T4"), (3000, 0, 0, "")
    given.pods(tmp_path, "x", *[often] * 60, *[seldom] * 35, *[once], *[(9, 0, 0, "")] * 4)
    typical = load_trace(tmp_path, "x", load_cluster(tmp_path)).typical
    assert [(pod.cpu_milli, pod.weight, pod.models) for pod in typical] == [
        (1000, 60, ALL_MODELS),
        (2000, 35, 0b1),
    ]


def test_of_kinds_equally_frequent_the_larger_is_typical(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"))
    given.pods(tmp_path, "x", *[ONE_GPU] * 94, (1, 1, 500, ""), (2, 1, 500, ""), *[ONE_GPU] * 4)
    given.pods(tmp_path, "y", *[ONE_GPU] * 93, *[(1, 1, 500, "")] * 3, *[(2, 1, 500, "")] * 3)
    cluster = load_cluster(tmp_path)
    assert len(load_trace(tmp_path, "x", cluster).typical) == 1
    assert [pod.cpu_milli for pod in load_trace(tmp_path, "y", cluster).typical] == [4000, 2]


def test_columns_of_types_and_times_may_be_missing(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"))
    given.write(tmp_path / "openb_pod_list_x.csv", given.POD_COLUMNS[:5], [("a", 1, 1, 1, 500)])
    assert load_trace(tmp_path, "x", load_cluster(tmp_path)).shapes[0].models == ALL_MODELS


def test_unknown_trace_is_reported_with_those_that_are_there(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"))
    given.pods(tmp_path, "b", ONE_GPU)
    given.pods(tmp_path, "a", ONE_GPU)
    assert trace_names(tmp_path) == ["a", "b"]
    with pytest.raises(DataError, match="no trace 'x'; there are: a, b"):
        load_trace(tmp_path, "x", load_cluster(tmp_path))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("a", "x", 1, 1, 500, ""), "line 2: cpu_milli is 'x'; accepted is a whole number from 0"),
        (("a", -1, 1, 1, 500, ""), "cpu_milli is '-1'"),
        (("a", 10**9, 1, 1, 500, ""), "cpu_milli is '1000000000'"),
        (
            ("a", 1, 1, 1, 1001, ""),
            "gpu_milli is '1001'; accepted is a whole number",
        ),
        (("a", 1, 1, 1, 0, ""), "gpu_milli is '0'; accepted is 0 without GPUs"),
        (("a", 1, 1, 2, 500, ""), "gpu_milli is '500'"),
        (("a", 1, 1), "line 2: fields are missing"),
    ],
)
def test_broken_pod_is_told_by_file_and_line(
    tmp_path: Path, row: tuple[object, ...], told: str
) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"))
    given.write(tmp_path / "openb_pod_list_x.csv", given.POD_COLUMNS, [row])
    with pytest.raises(DataError, match=r"openb_pod_list_x\.csv") as error:
        load_trace(tmp_path, "x", load_cluster(tmp_path))
    assert told in str(error.value)


def test_folder_without_nodes_names_the_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no openb_node_list_gpu_node\.csv"):
        load_cluster(tmp_path)


def test_two_nodes_of_one_name_are_refused(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 1, 1, 1, ""), ("n1", 1, 1, 1, ""))
    with pytest.raises(DataError, match="line 3: sn is 'n1'"):
        load_cluster(tmp_path)


def test_file_that_is_no_gzip_and_file_without_columns_are_reported(tmp_path: Path) -> None:
    given.nodes(tmp_path, ("n1", 96000, 393216, 2, "T4"))
    (tmp_path / "openb_pod_list_x.csv.gz").write_bytes(b"no gzip")
    given.write(tmp_path / "openb_pod_list_y.csv", ("name", "cpu_milli"), [])
    cluster = load_cluster(tmp_path)
    with pytest.raises(DataError, match=r"openb_pod_list_x\.csv\.gz: "):
        load_trace(tmp_path, "x", cluster)
    with pytest.raises(DataError, match="no column memory_mib, num_gpu, gpu_milli"):
        load_trace(tmp_path, "y", cluster)


def test_published_curves_are_found_by_trace_policy_and_seed(tmp_path: Path) -> None:
    columns = ["workload", "sc_policy", "tune", "seed", "total_gpus", *map(str, range(131))]
    row = ["openb_pod_list_default", "06-FGD", "1.3", "42", "6212", *range(131)]
    given.write(tmp_path / "reference_alloc_by_seed.csv", columns, [row])
    curve = load_reference(tmp_path)["default", "fgd"][42]
    assert (curve[0], curve[130]) == (0.0, 130.0)


def test_published_curves_need_not_be_there(tmp_path: Path) -> None:
    assert load_reference(tmp_path) == {}
