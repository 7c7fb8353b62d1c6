"""The CUDA calls that allocate memory of a card or start work on it, and how each one is held.

The behaviour of our libraries is read from their sources: a hook that reserves first can refuse, a
hook that goes through the gate waits. Calls without a hook are declared here. `python -m
gpu_shim.native.calls` writes docs/gpu-calls.md. Tests compare the page with the sources, and know
names that suggest an allocation or work: these must be declared.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PAGE: Final = HERE.parents[1] / "docs" / "gpu-calls.md"


class Held(StrEnum):
    """How a call is held; the order is that of the page."""

    REFUSED = "refused above the cap"
    CHARGED = "charged after the call"
    OWNER = "charged to the process that made the memory"
    AUDIT = "seen by the audit"
    GATED = "waits at the gate"
    UNSEEN = "unseen"
    FOLLOWED = "followed only"


_DEFINITION: Final = re.compile(r"^#define (\w+)\([^)]*\)((?:.*\\\n)*.*)", re.MULTILINE)
_HOOK: Final = re.compile(r"^((?:HOOK|LAUNCH|COPY|FILL)\w*)\((\w+)[,)]", re.MULTILINE)
_DOES: Final = {
    Held.REFUSED: re.compile(r"\b(?:pools_take|TAKE|TAKE_FROM|\w*fits|CUDA_NOT_SUPPORTED)\b"),
    Held.CHARGED: re.compile(r"\b(?:made|pools_settle_graphs)\b"),
    Held.GATED: re.compile(r"\b(?:GATED|gate_enter)\b"),
}
#: Suffixes for the version of a call and for its default stream.
ENDING: Final = r"(?:_v\d)?(?:_pt[sd][sz])?"
#: Calls without a hook, by the whole name without its suffix.
DECLARED: Final = {
    Held.OWNER: "cuIpcOpenMemHandle cuMemImportFromShareableHandle"
    " cuMemPoolImport(FromShareableHandle|Pointer)",
    Held.AUDIT: "cu(Array|Array3D|GLCtx|GreenCtx|VDPAUCtx|Multicast|LogicalEndpoint)Create"
    " cuCtxSetLimit cuModuleLoad(Data|DataEx|FatBinary)? cuLibraryLoad(Data|FromFile) cuFuncLoad"
    " cuImportExternalMemory cu(GreenCtx)?StreamCreate(WithPriority)? cuEventCreate"
    " cuGraphInstantiate(WithFlags|WithParams)? cuGraphUpload",
    Held.UNSEEN: "cuMemcpy(2D|3D)(Unaligned|Async|Peer|PeerAsync|BatchAsync|WithAttributesAsync)?"
    " cuMemcpy(Peer|PeerAsync|BatchAsync|WithAttributesAsync|AtoA|AtoD|DtoA|DtoD|DtoDAsync)"
    " cuMemcpy(AtoH|DtoH|HtoA|HtoD)(Async)? cuMemsetD(2D)?(8|16|32)"
    " cuMem(Discard|DiscardAndPrefetch|Prefetch)(Batch)?Async"
    " cuStream(BatchMemOp|WriteValue32|WriteValue64)",
}


def hooks(folder: Path = HERE) -> dict[str, set[Held]]:
    """What every hook of libcuda does, by its name; one that takes nothing is followed."""
    found = dict[str, set[Held]]()
    for path in sorted(folder.glob("*.c")):
        if path.name != "nvml.c":
            found |= dict(_hooks_of(path.read_text("utf-8")))
    return found


def _hooks_of(text: str) -> Iterator[tuple[str, set[Held]]]:
    macros = dict(_DEFINITION.findall(text))
    # Definitions of macros are not the bodies of the hooks before them.
    code = _DEFINITION.sub("", text)
    for each in _HOOK.finditer(code):
        macro, name = each.groups()
        body = macros.get(macro) or code[each.end() : code.find("\n}", each.end())]
        yield name, {held for held, does in _DOES.items() if does.search(body)} or {Held.FOLLOWED}


def names(folder: Path = HERE) -> set[str]:
    """Every function that a libcuda exports, from the known headers and drivers."""
    return set((folder / "names_cuda.txt").read_text("utf-8").split())


def matches(patterns: str, name: str) -> bool:
    """Whether the function has one of these names, with any version at its end."""
    return any(re.fullmatch(each + ENDING, name) for each in patterns.split())


def table() -> dict[str, set[Held]]:
    """How every call that allocates or starts work is held, and every other hook."""
    made = hooks()
    for name in names() - made.keys():
        if held := {held for held, patterns in DECLARED.items() if matches(patterns, name)}:
            made[name] = held
    return made


_SAYS: Final = {
    Held.REFUSED: "Reserved before the driver is asked: above the cap the program has"
    " `CUDA_ERROR_OUT_OF_MEMORY`. A graph's node is tested alone, not with the others of its graph."
    " `cuMemAlloc` and `cuMemAllocPitch` of 32-bit addresses are not supported at all.",
    Held.CHARGED: "The size is known only afterwards, so the call may end above the cap; what comes"
    " next is refused. A context is charged with an estimate until the audit has seen it.",
    Held.OWNER: "No new memory: the process that made it has been charged.",
    Held.AUDIT: "Not counted by the call. The agent sees it in the driver's figures within a"
    " second, charges it to the container, and reports a pod that stays above its cap.",
    Held.GATED: "Waits until the pod's lease begins. Copies and fills only from 1 MiB on; copies by"
    " `cuMemcpy` only between two places on cards.",
    Held.UNSEEN: "Not held back, and its time is charged only as part of the lease in which"
    " it runs. Copies from and to the host use engines of their own.",
    Held.FOLLOWED: "Takes and starts nothing: frees, captures, look-ups, what is reported.",
}


def page(held: Mapping[str, set[Held]]) -> str:
    """The page of the documentation."""
    groups = defaultdict[Held, list[str]](list)
    for name in sorted(held):
        for each in held[name]:
            groups[each].append(name)
    lines = ["# How every CUDA call is held", ""]
    lines += [
        "Written by `python -m gpu_shim.native.calls` from the libraries' sources and the names",
        "that drivers export. A call that is not listed takes no memory of a card and starts no",
        "work on it. A call that does both is in two rows. [gpu-shim.md](gpu-shim.md) says what",
        "the caps protect from.",
        "",
        "| | calls | |",
        "|---|---|---|",
    ]
    for each in Held:
        calls = " ".join(f"`{name}`" for name in groups[each])
        lines.append(f"| {each.value} ({len(groups[each])}) | {calls} | {_SAYS[each]} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(table()), "utf-8")
