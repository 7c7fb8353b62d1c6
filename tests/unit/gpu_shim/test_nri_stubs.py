"""The generated messages are those of the `.proto` files beside them."""

from pathlib import Path

from gpu_shim.agent.proto.generate import HERE, generate


def test_what_is_checked_in_is_what_the_generator_makes(tmp_path: Path) -> None:
    generate(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.rglob("*_pb2.py*")}
    there = {path.name: path.read_text() for path in HERE.glob("*_pb2.py*")}
    assert made == there, "python -m gpu_shim.agent.proto.generate"
    assert len(made) == 6
