"""The garbage collector rests while a cycle decides, and is as it was afterwards."""

import gc

import pytest

from extender.policy.collector import paused_collector


def test_nothing_is_collected_inside() -> None:
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_inside_does_not_leave_it_off() -> None:
    with pytest.raises(ValueError, match="broken"), paused_collector():
        raise ValueError("broken")
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
