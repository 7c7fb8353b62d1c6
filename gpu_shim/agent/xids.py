"""What a critical error of a card (NVIDIA's "Xid") means for it.

Based on NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors) and on the numbers that NVIDIA's
Kubernetes device plugin ignores: faults of the running program. An unknown number counts as a fault
of the card, as in the plugin: nothing new is placed on it, and no pod is stopped.
"""

from typing import Final, Literal

#: `program`: a running program is at fault or affected; the card continues. `note`: the card
#: recovers by itself. `card`: the card needs the action in the sentence.
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
    """The fault, and a sentence about it."""
    groups: tuple[tuple[Fault, dict[int, str]], ...] = (
        ("program", _PROGRAM),
        ("note", _NOTE),
        ("card", _CARD),
    )
    for fault, known in groups:
        if number in known:
            return fault, f"Xid {number}: {known[number]}"
    return "card", f"Xid {number}: see NVIDIA's catalogue of Xid errors"
