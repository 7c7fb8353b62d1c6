"""How a gang on two cards uses its time, in virtual time."""

import random

import pytest

from tests.unit.gpu_shim.gang_model import MS, Busy, Gang, Machine

SECONDS = 10
#: Steps of 21 ms that a gang with no other container on its cards makes in `SECONDS`.
WHOLE = SECONDS * 1000 / 21
#: How the host behaves: never late; late by up to half a millisecond, and seen idle in every
#: tenth pause; collectives that are launched late.
HOSTS: dict[str, dict[str, int]] = {
    "prompt": {},
    "seen idle": {"rest_ns": MS // 2, "idle_percent": 10},
    "idle after each step": {"rest_ns": MS // 2, "idle_percent": 100},
    "split": {"split_percent": 30},
    "all": {"rest_ns": MS // 2, "idle_percent": 10, "split_percent": 30},
}


def run(host: str, *others: str) -> tuple[Machine, Gang]:
    """A gang of cards x and y, beside always busy programs on the named cards."""
    machine = Machine()
    gang = Gang(machine.container("g", "xy"), random.Random(1), **HOSTS[host])
    machine.programs = [gang]
    for card in others:
        machine.programs.append(Busy(machine.container(f"on-{card}", card), card))
    machine.run(SECONDS)
    assert all(record.n_late == 0 for record in machine.scheduler.cards.values())
    return machine, gang


@pytest.mark.parametrize("host", HOSTS)
def test_a_gang_at_one_half_beside_others_makes_nine_tenths_of_its_steps(host: str) -> None:
    machine, gang = run(host, "x", "y")
    part = gang.n_steps / (WHOLE / 2)
    print(f"{host}: {100 * part:.1f} % of its half")
    assert part >= 0.9
    held = machine.scheduler.node.cards["x"].tenants["g"].held_ns
    assert abs(held / (SECONDS * 1000 * MS) - 0.5) < 0.03


@pytest.mark.parametrize("host", ["seen idle", "all"])
def test_a_gang_with_one_card_shared_makes_nine_tenths_of_its_steps(host: str) -> None:
    _, gang = run(host, "x")
    assert gang.n_steps >= 0.9 * WHOLE / 2


@pytest.mark.parametrize("host", ["prompt", "split"])
def test_a_gang_alone_on_its_cards_makes_all_its_steps(host: str) -> None:
    _, gang = run(host)
    print(f"{host}: {100 * gang.n_steps / WHOLE:.1f} % alone")
    assert gang.n_steps >= 0.97 * WHOLE
