"""The exit codes of commands, for scripts. click uses 1 for errors and 2 for wrong usage."""

from typing import Final

#: The command succeeded; the workload runs or starts, or the change stops nothing.
OK: Final = 0
#: The command failed, or found a problem: a failed check, or an object without a counterpart.
BAD: Final = 1
#: The workload is pending.
WAITS: Final = 3
#: The workload can never start on the nodes of its node pools.
NEVER: Final = 4
#: The change would stop workloads, or a drain would hang.
STOPS: Final = 5
