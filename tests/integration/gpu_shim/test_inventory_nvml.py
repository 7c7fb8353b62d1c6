"""Cards, processes and errors, read from the fake driver by NVIDIA's binding."""

import os
import shutil
import threading
from pathlib import Path

import pynvml
import pytest

from gpu_shim.agent.nvml import CardLost, Look, Nvml, NvmlError
from tests.support.fakecuda import UUID
from tests.support.fakecuda import Card as FakeCard


@pytest.fixture
def card(place: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    monkeypatch.setenv("FAKECUDA_STATE", str(place / "card"))
    return FakeCard(place / "card")


@pytest.fixture
def nvml(card: FakeCard, driver: Path, place: Path) -> Nvml:
    # A library maps its card once; a copy is another library.
    return Nvml(str(shutil.copy(driver / "libnvidia-ml.so.1", place / "nvml.so")))


def test_the_cards_of_a_node_are_told_with_what_programs_can_have(nvml: Nvml) -> None:
    (device,) = nvml.devices()
    assert (device.index, device.uuid, device.memory_mib) == (0, UUID, 16384)
    assert (device.model, device.health) == ("Fake-GPU", "Healthy")
    assert (nvml.minor(UUID), nvml.cuda_version()) == (0, 13000)
    assert nvml.processes(UUID) == {}


def test_an_error_is_told_once_and_silence_otherwise(nvml: Nvml, card: FakeCard) -> None:
    assert nvml.wait_xid(1) is None
    card.ail(xid=79)
    assert nvml.wait_xid(1000) == (UUID, 79)
    assert nvml.wait_xid(1) is None


def test_what_the_driver_asks_for_is_told_in_words(nvml: Nvml, card: FakeCard) -> None:
    assert nvml.look(UUID) == Look(recovery="")
    card.ail(recovery=2)
    assert nvml.look(UUID) == Look(recovery="reboot the node")


def test_a_card_that_fell_off_is_lost_until_it_answers_again(nvml: Nvml, card: FakeCard) -> None:
    card.ail(is_lost=True)
    with pytest.raises(CardLost, match="nvmlDeviceGetUUID"):
        nvml.look(UUID)
    assert nvml.devices() == []
    card.ail()
    nvml.reopen()
    assert nvml.look(UUID).recovery == ""


def test_no_library_is_an_error_that_names_it(place: Path) -> None:
    with pytest.raises(NvmlError, match="no NVML"):
        Nvml(str(place / "nothing.so"))


def test_a_card_of_another_name_is_not_there(nvml: Nvml) -> None:
    with pytest.raises(NvmlError, match="nvmlDeviceGetHandleByUUID"):
        nvml.processes("GPU-none")


def test_memory_is_told_by_process(nvml: Nvml, card: FakeCard) -> None:
    card.give(os.getpid(), 7 << 20)
    assert nvml.processes(UUID) == {os.getpid(): 7 << 20}


def test_a_call_waits_while_the_driver_is_opened_anew(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()
    asking = threading.Thread(target=nvml.minor, args=(UUID,))

    def shut_down() -> None:
        asking.start()
        asking.join(timeout=0.2)
        done.append("shut")

    def answer(*_: object) -> int:
        done.append("answered")
        return 0

    monkeypatch.setattr(pynvml, "nvmlShutdown", shut_down)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: done.append("opened"))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMinorNumber", answer)
    nvml.reopen()
    asking.join()
    assert done == ["shut", "opened", "answered"]
