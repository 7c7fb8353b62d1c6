"""What a critical error of a card (NVIDIA's "Xid") means for it.

By NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors) and the numbers that its own Kubernetes
device plugin ignores: those are faults of the program that ran. A number that is not known here is
taken for a fault of the card, as the plugin does: nothing new is placed on it, no pod is stopped.
"""

from typing import Final, Literal

#: `program`: a running program is at fault or hit; the card goes on. `note`: it mends itself.
#: `card`: the card needs what the sentence says.
Fault = Literal["program", "note", "card"]

_PROGRAM: Final = {
    13: "graphics engine exception",
    31: "memory page fault",
    43: "stopped processing a program",
    45: "cleaned up after a program",
    68: "video decoder exception",
    69: "graphics engine class error",
    94: "contained memory error: its program was ended",
    109: "context switch timed out",
}
_NOTE: Final = {
    63: "a memory row was remapped",
    92: "many corrected memory errors",
    121: "corrected error of the CPU link",
    137: "error of a link to another card",
    154: "what the driver asks for has changed",
}
_CARD: Final = {
    46: "stopped processing: reset the GPU",
    48: "uncorrectable memory error: reset the GPU",
    54: "auxiliary power is missing: check its cables",
    61: "its microcontroller has a breakpoint: reset the GPU",
    62: "its microcontroller halted: reset the GPU",
    64: "a memory row could not be remapped: reset the GPU, then replace it",
    74: "error of its links: reset the GPU, then check its links",
    79: "fell off the bus: reboot the node",
    95: "uncontained memory error: reset the GPU",
    110: "security fault: reset the GPU",
    119: "its system processor does not answer: reset the GPU",
    120: "its system processor failed: reset the GPU",
    140: "uncorrected memory errors: reset the GPU",
    143: "could not be initialised: reset the GPU",
    155: "its links went down: reset the GPU",
}


def classify(number: int) -> tuple[Fault, str]:
    """What is at fault, and one sentence about it."""
    groups: tuple[tuple[Fault, dict[int, str]], ...] = (
        ("program", _PROGRAM),
        ("note", _NOTE),
        ("card", _CARD),
    )
    for fault, known in groups:
        if number in known:
            return fault, f"Xid {number}: {known[number]}"
    return "card", f"Xid {number}: see NVIDIA's catalogue of Xid errors"
