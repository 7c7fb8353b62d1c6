"""Integrals over a replay: GPUs held, idle and owed, for every tenant.

All figures are whole GPUs and GPU-seconds, so a replay of the same trace gives the same integers.
"""

from dataclasses import dataclass, field
from typing import Final

from extender.lab.philly.trace import WINDOW_START_S, PhillyTrace

#: Allocation and demand of every tenant are sampled at each full hour, for shares over time.
SAMPLE_S: Final = 3600


@dataclass(slots=True, frozen=True)
class Sample:
    """GPUs held and pending of each tenant, in the order of the trace's quotas."""

    at_s: int
    held: tuple[int, ...]
    waiting: tuple[int, ...]


@dataclass(slots=True)
class ReplayMeter:
    """Integrals up to `now_s`. `steady` figures are over the trace's steady days only.

    Deprived is how much less a tenant holds than the smaller of its quota and its demand; lost is
    time held for work that was repeated, or for restarts.
    """

    trace: PhillyTrace
    now_s: int = 0
    lost_gpu_s: int = 0
    deprived_gpu_s: int = 0
    steady_held_gpu_s: int = 0
    steady_lost_gpu_s: int = 0
    steady_idle_pending_gpu_s: int = 0
    steady_deprived_gpu_s: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    _held: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, int] = field(default_factory=dict)
    _owed: dict[str, int] = field(default_factory=dict)
    _n_held: int = 0
    _n_waiting: int = 0

    def __post_init__(self) -> None:
        self.now_s = self.trace.jobs[0].submit_s
        tenants = self.trace.quota_nodes
        self._held = dict.fromkeys(tenants, 0)
        self._waiting = dict.fromkeys(tenants, 0)
        self.steady_deprived_gpu_s = dict.fromkeys(tenants, 0)

    def demand_of(self, tenant: str) -> int:
        """GPUs that the tenant holds or requests."""
        return self._held[tenant] + self._waiting[tenant]

    def wait(self, tenant: str, gpus: int) -> None:
        """The tenant has `gpus` more pending (negative: fewer)."""
        self._waiting[tenant] += gpus
        self._n_waiting += gpus
        self._settle(tenant)

    def hold(self, tenant: str, gpus: int) -> None:
        """The tenant holds `gpus` more (negative: fewer)."""
        self._held[tenant] += gpus
        self._n_held += gpus
        self._settle(tenant)

    def advance(self, now_s: int) -> None:
        """Integrate the current state until `now_s`."""
        took_s = now_s - self.now_s
        if took_s == 0:
            return
        self._sample_until(now_s)
        self.deprived_gpu_s += sum(self._owed.values()) * took_s
        start_s, end_s = self.trace.steady_s
        steady_s = min(now_s, end_s) - max(self.now_s, start_s)
        if steady_s > 0:
            self._advance_steady(steady_s)
        self.now_s = now_s

    def lose(self, gpu_s: int) -> None:
        """Count GPU-seconds up to now as lost."""
        self.lost_gpu_s += gpu_s
        start_s, end_s = self.trace.steady_s
        if start_s <= self.now_s < end_s:
            self.steady_lost_gpu_s += gpu_s

    def _advance_steady(self, took_s: int) -> None:
        self.steady_held_gpu_s += self._n_held * took_s
        if self._n_waiting:
            self.steady_idle_pending_gpu_s += (self.trace.gpus - self._n_held) * took_s
        for tenant, owed in self._owed.items():
            self.steady_deprived_gpu_s[tenant] += owed * took_s

    def _sample_until(self, now_s: int) -> None:
        past_s = self.now_s - WINDOW_START_S
        at_s = WINDOW_START_S + -(-past_s // SAMPLE_S) * SAMPLE_S
        while at_s < now_s:
            held, waiting = tuple(self._held.values()), tuple(self._waiting.values())
            self.samples.append(Sample(at_s, held, waiting))
            at_s += SAMPLE_S

    def _settle(self, tenant: str) -> None:
        entitled = min(self.trace.quota_gpus(tenant), self.demand_of(tenant))
        owed = entitled - self._held[tenant]
        if owed > 0:
            self._owed[tenant] = owed
        else:
            self._owed.pop(tenant, None)
