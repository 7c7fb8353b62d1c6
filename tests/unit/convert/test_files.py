"""Files that cannot be converted, or only in part, and the command's messages."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.__main__ import main

PEERS = ("kai", "runai", "kueue", "hami", "volcano", "slurm")


def convert(peer: str, file: Path) -> tuple[int, str]:
    """The exit code, and standard error as one line."""
    done = CliRunner().invoke(main, ["convert", "--from", peer, "-f", str(file)])
    return done.exit_code, " ".join(done.stderr.split())


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n"])
def test_a_file_without_anything_to_convert_is_an_error(
    peer: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    code, told = convert(peer, file)
    assert code == 1
    if peer != "slurm" or text != "---\n":
        assert f"{file}: there is nothing of {peer} to convert" in told


@pytest.mark.parametrize("peer", PEERS)
def test_a_file_that_is_not_text_is_an_error(peer: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    code, told = convert(peer, file)
    assert (code, told) == (1, f"Error: {file}: not UTF-8 text")


@pytest.mark.parametrize("peer", PEERS[:-1])
@pytest.mark.parametrize("text", ["[1, 2]", "hello"])
def test_what_is_no_object_is_reported(peer: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    code, told = convert(peer, file)
    assert code == 1
    assert "is not an object" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [\n", "neither YAML nor JSON: while parsing a flow node in line 2, column 1, "),
        ("a: [\n", "expected the node content, but found '<stream end>' in line 2, column 1"),
        ("a: 2026-99-99\n", "neither YAML nor JSON: month must be in 1..12"),
        ("[" * 5000, "it is nested too deeply"),
    ],
)
@pytest.mark.parametrize("peer", PEERS[:-1])
def test_what_is_no_yaml_is_reported_with_its_place(
    peer: str, text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    code, told = convert(peer, file)
    assert code == 1
    assert told.startswith(f"Error: {file}: ")
    assert said in told


def test_an_object_of_another_kind_is_told_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("kind: ConfigMap\nmetadata: {name: x}\n---\nfoo: bar\n")
    code, told = convert("kueue", file)
    assert code == 1
    assert "Note: ConfigMap x is not an object of Kueue: left out" in told
    assert "Note: object without a kind is not an object of Kueue: left out" in told


@pytest.mark.parametrize("text", ["root:x:0:0\n", "a|b\n1|2\n"])
def test_a_line_that_slurm_does_not_write_is_reported(text: str, tmp_path: Path) -> None:
    file = tmp_path / "dump"
    file.write_text(text)
    code, told = convert("slurm", file)
    assert code == 1
    assert text.partition("\n")[0] in told


@pytest.mark.parametrize("peer", ["kai", "kueue", "hami", "volcano"])
def test_workload_of_a_kind_that_is_not_kubernetes_own_is_reported(
    peer: str, tmp_path: Path
) -> None:
    text = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: tune, namespace: team}
spec:
  workerGroupSpecs:
  - template: {spec: {schedulerName: other, containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team}
spec: {containers: [{name: c, image: i}]}
"""
    (file := tmp_path / "work.yaml").write_text(text)
    done = CliRunner().invoke(main, ["convert", "--from", peer, "-f", str(file)])
    assert done.exit_code == 1
    told = " ".join(done.stderr.split())
    assert "RayCluster team/tune: pod templates: only workloads of Kubernetes' own kinds" in told
