"""The exit codes of commands, for scripts. 1 is what click uses for errors, 2 for wrong usage."""

from typing import Final

#: It ran, and the answer is good news: it runs or starts, nothing stops.
OK: Final = 0
#: It could not be done or answered, or the answer is bad news: a check failed, something has no
#: counterpart.
BAD: Final = 1
#: The work waits.
WAITS: Final = 3
#: The work will never start on the nodes of its pools.
NEVER: Final = 4
#: The change would stop work, or a drain would hang.
STOPS: Final = 5
