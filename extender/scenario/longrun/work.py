"""A task's progress with checkpoints: its work, the cost of a stop, and its end."""

from dataclasses import dataclass


@dataclass(slots=True)
class TaskProgress:
    """One task's progress, in seconds.

    It has `run_s` of work (None: it never ends), saves it after every `every_s` of running (0:
    never), and after a stop holds its cards for `restart_s` before it continues from the last
    checkpoint. `held_s` is how long it has held its cards in all runs. Time before `since_s`
    belongs to another owner.
    """

    run_s: int | None
    every_s: int = 0
    restart_s: int = 0
    saved_s: int = 0
    held_s: int = 0
    n_stops: int = 0
    started_s: int = 0
    since_s: int = 0

    def start(self, now_s: int) -> int | None:
        """Start now; returns when it will finish unless it is stopped."""
        self.started_s = now_s
        return self.end_s

    @property
    def end_s(self) -> int | None:
        """When the current run finishes; None: never."""
        if self.run_s is None:
            return None
        return self.started_s + self._load_s() + self.run_s - self.saved_s

    def stop(self, now_s: int) -> int:
        """Stop, keeping checkpoints; returns the seconds held in vain, of those since `since_s`."""
        ran_s = now_s - self.started_s
        worked_s = max(0, ran_s - self._load_s())
        kept_s = worked_s // self.every_s * self.every_s if self.every_s else 0
        self.saved_s += kept_s
        self.held_s += ran_s
        self.n_stops += 1
        return min(ran_s - kept_s, self._counted_s(now_s))

    def finish(self, now_s: int) -> int:
        """Finish; returns the seconds of its last run that were held in vain."""
        self.held_s += now_s - self.started_s
        return min(self._load_s(), self._counted_s(now_s))

    def _counted_s(self, now_s: int) -> int:
        return now_s - max(self.since_s, self.started_s)

    def _load_s(self) -> int:
        return self.restart_s if self.n_stops else 0
