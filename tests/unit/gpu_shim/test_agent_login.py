"""The node that the agent's token names."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from gpu_shim.agent.login import node_uid, own_node_uid


def token(claims: Any) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.sig"


BOUND = token({"sub": "x", "kubernetes.io": {"namespace": "n", "node": {"name": "a", "uid": "u"}}})


def test_token_names_its_node(tmp_path: Path) -> None:
    assert node_uid(BOUND, "a") == "u"
    (tmp_path / "token").write_text(BOUND + "\n")
    assert own_node_uid("a", tmp_path / "token") == "u"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opaque",
        "a.b.c",
        "a.\x00.c",
        "a.é.c",
        token([]),
        token({}),
        token({"kubernetes.io": {"node": 1}}),
        token({"kubernetes.io": {"node": {"name": "other", "uid": "u"}}}),
    ],
)
def test_other_tokens_name_none(text: str) -> None:
    assert node_uid(text, "a") == ""


def test_agent_without_a_mounted_token_names_none(tmp_path: Path) -> None:
    assert own_node_uid("a", tmp_path / "token") == ""
