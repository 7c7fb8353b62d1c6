"""When a card becomes unhealthy, and when healthy again."""

from pathlib import Path

import pytest

from gpu_shim.agent.health import SILENT, Health, boot_id
from gpu_shim.agent.nvml import Look
from gpu_shim.agent.xids import classify

FINE, SILENT_DRIVER = Look(recovery=""), Look(recovery=None)


@pytest.fixture
def health(tmp_path: Path) -> Health:
    return Health(tmp_path / "health.json", "boot-1")


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 69, 94, 109])
def test_an_error_of_a_program_is_not_the_cards(health: Health, number: int) -> None:
    assert f"Xid {number}" in health.saw_xid("GPU-0", number)
    assert not health.ill


@pytest.mark.parametrize("number", [48, 64, 74, 79, 95, 119, 140, 777])
def test_an_error_of_the_card_or_an_unknown_one_makes_it_unhealthy(
    health: Health, number: int
) -> None:
    health.saw_xid("GPU-0", number)
    assert list(health.ill) == ["GPU-0"]
    (sentence,) = health.sentences(["GPU-1", "GPU-0"])
    assert sentence.startswith(f"GPU-0: Xid {number}: ")


def test_every_sentence_about_a_card_says_what_to_do() -> None:
    for number in range(200):
        fault, sentence = classify(number)
        assert fault != "card" or any(
            word in sentence for word in ("reset", "reboot", "check", "catalogue")
        )


def test_it_is_trusted_again_after_the_driver_asks_for_nothing_twice_in_a_row(
    health: Health,
) -> None:
    health.saw_xid("GPU-0", 79)
    health.looked("GPU-0", FINE)
    health.looked("GPU-0", Look(recovery="reset the GPU"))
    health.looked("GPU-0", FINE)
    assert "GPU-0" in health.ill
    health.looked("GPU-0", FINE)
    assert not health.ill


def test_a_driver_that_does_not_say_leaves_it_to_the_next_boot(health: Health) -> None:
    health.saw_xid("GPU-0", 79)
    for _ in range(5):
        health.looked("GPU-0", SILENT_DRIVER)
    assert "GPU-0" in health.ill
    after = Health(health.path, "boot-1")
    after.recall()
    assert after.ill == health.ill
    booted = Health(health.path, "boot-2")
    booted.recall()
    assert not booted.ill


def test_what_the_driver_asks_for_makes_it_unhealthy_by_itself(health: Health) -> None:
    health.looked("GPU-0", Look(recovery="reboot the node"))
    assert health.ill == {"GPU-0": "the driver asks to reboot the node"}
    health.looked("GPU-1", Look(is_remap_failed=True))
    assert health.ill["GPU-1"].startswith("Xid 64")


def test_silence_passes_when_it_answers_twice_whatever_the_driver(health: Health) -> None:
    health.saw_silence("GPU-0")
    assert health.ill == {"GPU-0": SILENT}
    for _ in range(2):
        health.looked("GPU-0", SILENT_DRIVER)
    assert not health.ill


def test_silence_after_an_error_keeps_the_error(health: Health) -> None:
    health.saw_xid("GPU-0", 79)
    health.saw_silence("GPU-0")
    assert health.ill["GPU-0"].startswith("Xid 79")


@pytest.mark.parametrize("text", ["", "{", '{"boot": 1}', '{"boot": "boot-1"}'])
def test_a_file_that_is_none_is_nothing_known(health: Health, text: str) -> None:
    health.path.write_text(text)
    health.recall()
    assert not health.ill


def test_boots_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("abc\n")
    assert boot_id(tmp_path / "id") == "abc"
    assert boot_id(tmp_path / "none") == ""
