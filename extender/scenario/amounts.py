"""Converts the amounts in a scenario file to integers: milli-GPU, milli-CPU, and memory.

A file may use so little memory that rounding to MiB would lose it ("750" bytes of "2000"). So each
scenario counts memory in the largest unit that is exact for it, MiB wherever rounding is harmless.
"""

import json
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Final

from extender.api.demand import MAX_DEVICES
from extender.api.units import MILLI_PER_GPU, UnitError, parse_cpu, parse_gpus, parse_quantity
from extender.scenario.model.case import Case
from extender.scenario.model.values import Amount
from extender.state.model import UNLIMITED

MIB: Final = 1 << 20
#: Units that are tried: decimal amounts result in megabytes or kilobytes.
_UNITS: Final = (MIB, 10**6, 1 << 10, 10**3, 1)
#: Digits of "500m": below a million GPUs.
_MOST_DIGITS: Final = 10
#: Characters of a wrong value that a message repeats.
_MOST_SHOWN: Final = 40
#: As in the API, where a weight is an int64.
MOST_WEIGHT: Final = 2**63 - 1
#: All memory of a cluster must stay below the value that means unlimited, with room for sums.
_MOST: Final = UNLIMITED >> 1


@lru_cache(maxsize=4096, typed=True)
def gpus(value: Amount) -> int:
    """Milli-GPU: 2 -> 2000; 0.5, "0.5" and "500m" -> 500."""
    text = _text(value)
    milli = text.removesuffix("m")
    is_milli = milli != text and milli.isascii() and milli.isdigit() and len(milli) < _MOST_DIGITS
    return int(milli) if is_milli else parse_gpus(text)


def cards(value: Amount) -> int:
    """Cards of a node: a whole number."""
    try:
        n, rest = divmod(gpus(value), MILLI_PER_GPU)
    except UnitError:
        n, rest = -1, 0
    if rest or not 0 <= n <= MAX_DEVICES:
        message = f"{json.dumps(value)[:_MOST_SHOWN]} is not accepted"
        raise UnitError(f"{message}; accepted: whole numbers from 0 to {MAX_DEVICES}")
    return n


@lru_cache(maxsize=4096, typed=True)
def cpu(value: Amount) -> int:
    """Milli-CPU of a Kubernetes quantity."""
    return parse_cpu(_text(value))


@lru_cache(maxsize=4096, typed=True)
def quantity(value: Amount) -> int:
    """Bytes of a Kubernetes quantity."""
    return parse_quantity(_text(value))


def fraction(value: Amount) -> Fraction:
    """The exact number: weights and past usage may be fractions."""
    try:
        found = Fraction(_text(value))
    except (ValueError, ZeroDivisionError):
        raise UnitError(f"{value!r} is not a number, such as 2 or 0.5") from None
    if found < 0 or found.denominator > 10**6 or found > MOST_WEIGHT:
        raise UnitError(
            f"{value!r:.60} is not a number from 0 to {MOST_WEIGHT} with at most six decimals"
        )
    return found


def scale_of(weights: Iterable[Amount]) -> int:
    """The smallest factor that makes all weights whole."""
    return lcm(*(fraction(weight).denominator for weight in weights))


def memory_unit(case: Case) -> int:
    """Bytes per unit of memory in this scenario."""
    tasks = [task for job in case.jobs for task in job.tasks]
    tasks += [task for step in case.steps for job in step.add for task in job.tasks]
    tasks += [task for line in case.simulate.arrivals for task in line.job.tasks]
    has = {quantity(node.memory) for node in case.nodes}
    asked = {quantity(text) for text in {task.memory for task in tasks}}
    bounds = _bounds(case)
    if not bounds and has and asked:
        most_pods = max(node.max_pods for node in case.nodes)
        if min(has) // MIB >= most_pods * -(-max(asked) // MIB):
            return MIB
    amounts = has | asked | bounds
    total = sum(quantity(node.memory) for node in case.nodes)
    for unit in _UNITS:
        if total // unit > _MOST:
            break
        if all(amount % unit == 0 for amount in amounts):
            return unit
    return MIB


def _bounds(case: Case) -> set[int]:
    """Bytes of all quotas and limits of memory."""
    found = set()
    for queue in case.queues:
        for figures in (queue.memory, *(pool.memory for pool in queue.pools.values())):
            for value in (figures.quota, figures.limit):
                if isinstance(value, int | float | str):
                    found.add(quantity(value))
    return found


def _text(value: Amount) -> str:
    """The amount as text; a whole float loses its point, others keep every digit."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)
