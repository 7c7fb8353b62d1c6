"""The baseline content from which tests start."""

import itertools

import pytest

from tests.support.controlplane.process import ControlPlaneError
from tests.support.controlplane.store import RESET_S, Store


def test_a_store_that_does_not_come_to_rest_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_range", lambda *_: [])
    monkeypatch.setattr(Store, "_restore", lambda *_: 0)
    monkeypatch.setattr(Store, "_delete_leftovers", lambda *_: 1)
    seconds = itertools.count()
    monkeypatch.setattr("tests.support.controlplane.store.time.sleep", lambda _: None)
    monkeypatch.setattr("tests.support.controlplane.store.time.monotonic", lambda: next(seconds))
    with pytest.raises(ControlPlaneError, match=f"not as remembered after {RESET_S:.0f} s"):
        Store(1).reset()
