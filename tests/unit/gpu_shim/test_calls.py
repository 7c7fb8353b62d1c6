"""The page of calls agrees with the libraries' sources and lists all calls."""

import re
from pathlib import Path

import pytest

from gpu_shim.native import calls
from gpu_shim.native.calls import Held
from gpu_shim.native.generate import hooks_in

#: Names that suggest such a call but are none: memory and work of the host, descriptions, and parts
#: of graphs, whose work starts at cuGraphLaunch.
NEITHER = (
    "cuMem(AllocHost|HostAlloc|HostRegister) cuLaunchHostFunc cuMemPoolCreate cuDeviceSetMemPool"
    " cuMemSetMemPool cuGraph(Exec)?(Add|Clone|Create|Kernel|Mem|Batch|Child|Conditional)\\w*"
    " cuLinkCreate cu(Tex|Surf)ObjectCreate cuTexRefCreate cuUserObjectCreate"
    " cuImportExternalSemaphore cuEventCreateFromEGLSync cuLogicalEndpointImport"
    " cuMemAllocationGet\\w* cuGraph(Exec)?Upda\\w*"
    " cuTensorMapSetAllocationClass cuMemPool(Get|Set|Export)\\w* cuMemRetainAllocationHandle"
)
SOUNDS = re.compile(
    r"cu\w*(?:Alloc(?!ation)|(?<!Obj)Create(?!d)|Launch|Memcpy(?!Node)|Memset(?!Node)|Import|Prefetch"
    r"|(?:Module|Library|Func)Load|MemOp|WriteValue|Instantiate|SetLimit|IpcOpenMem|Upload)"
)
NOT_CALLS = re.compile(r"\w*(?:Get|Is)[A-Z]\w*|\w*(?:SetParams|_n|Destroy)" + calls.ENDING)


def test_the_page_is_what_the_sources_say() -> None:
    written = calls.PAGE.read_text("utf-8")
    assert written == calls.page(calls.table()), "run python -m gpu_shim.native.calls"


def test_the_page_has_every_hook_that_the_library_is_built_with() -> None:
    sources = [path for path in calls.HERE.glob("*.c") if path.name != "nvml.c"]
    built = set(hooks_in(sources))
    assert len(built) > 90
    assert built - calls.table().keys() == set()
    said = {name for name, held in calls.table().items() if held & _BY_HOOKS}
    assert said == built


_BY_HOOKS = {Held.REFUSED, Held.CHARGED, Held.GATED, Held.FOLLOWED}


def undeclared(listed: set[str]) -> set[str]:
    """Names that suggest an allocation or work, and are not declared."""
    return {
        name
        for name in listed - calls.table().keys()
        if SOUNDS.match(name) and not NOT_CALLS.fullmatch(name) and not calls.matches(NEITHER, name)
    }


def test_every_listed_call_that_sounds_like_memory_or_work_is_declared() -> None:
    assert undeclared(calls.names()) == set()


@pytest.mark.parametrize(
    "name",
    ["cuMemAllocTiled", "cuLaunchSomething_ptsz", "cuMemcpy4D", "cuRingCreate", "cuModuleLoadX"],
)
def test_a_new_call_of_a_newer_driver_has_to_be_declared(name: str) -> None:
    assert undeclared(calls.names() | {name}) == {name}


def test_what_a_hook_does_is_read_from_its_source(tmp_path: Path) -> None:
    (tmp_path / "more.c").write_text(
        "#define LAUNCH_IT(name, of) \\\n    HOOK(name)(void *f) \\\n"
        "    { GATED(of, REAL(name)(f)); }\n"
        "LAUNCH_IT(cuOne, OWN)\n\n"
        "HOOK(cuTwo)(size_t n)\n{\n    TAKE(n, 0, REAL(cuTwo)(n));\n}\n\n"
        "HOOK(cuThree)(void)\n{\n    return REAL(cuThree)();\n}\n"
    )
    assert calls.hooks(tmp_path) == {
        "cuOne": {Held.GATED},
        "cuTwo": {Held.REFUSED},
        "cuThree": {Held.FOLLOWED},
    }


def test_a_graph_waits_and_its_memory_is_charged_after_its_launch() -> None:
    assert calls.table()["cuGraphLaunch"] == {Held.GATED, Held.CHARGED}


def test_no_declaration_is_about_a_call_that_no_driver_has() -> None:
    declared = " ".join(calls.DECLARED.values()).split()
    dead = [
        each for each in declared if not any(calls.matches(each, name) for name in calls.names())
    ]
    assert dead == []
