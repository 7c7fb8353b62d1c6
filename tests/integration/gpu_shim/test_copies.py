"""Copies within the card and fills wait for the card as kernels do; small ones do not."""

from tests.integration.gpu_shim.containers import Scene, until
from tests.support.fakecuda import UUID

COPIES = ["cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds", "cuMemcpy", "cuMemcpy_ptds"]
COPIES += ["cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2_ptsz"]
COPIES += ["cuMemcpyAsync", "cuMemcpyAsync_ptsz"]
FILLS = [f"cuMemsetD{width}_v2{own}" for width in (8, 16, 32) for own in ("", "_ptds")]
FILLS += [f"cuMemsetD{width}Async{own}" for width in (8, 16, 32) for own in ("", "_ptsz")]
ROWS = [f"cuMemsetD2D{width}_v2{own}" for width in (8, 16, 32) for own in ("", "_ptds")]
ROWS += [f"cuMemsetD2D{width}Async{own}" for width in (8, 16, 32) for own in ("", "_ptsz")]
PROGRAM = f"""
begin(); tell(0)
here, there = c_uint64(plain(MIB)[1]), c_uint64(plain(MIB)[1])
def call(name, n):
    function = getattr(cuda, name)
    if name in {ROWS!r}:
        return function(here, c_size_t(0), 1, c_size_t(n // 16), c_size_t(16), NOTHING)
    if name in {FILLS!r}:
        return function(here, 1, c_size_t(n), NOTHING)
    return function(here, there if n > 0 else c_uint64(4096), c_size_t(abs(n)), NOTHING)
while True:
    name, n = hear().split()
    tell(call(name, int(n)))
"""


def n_waits(scene: Scene) -> int:
    """How often the container's program waited at the gate."""
    return scene.table("a").tally().n_gate_waits


def is_idle(scene: Scene) -> bool:
    """Whether the card was given back."""
    tenant = scene.arbiter.account("a", UUID)
    return tenant is not None and not tenant.is_busy


async def waits(scene: Scene, asked: list[tuple[str, int]]) -> dict[str, int]:
    """How often each call waited, with the card given back before it."""
    scene.container("a", "1/2", "1/2")
    program = await scene.run("a", PROGRAM)
    await program.answer()
    found = dict[str, int]()
    for name, n in asked:
        before = n_waits(scene)
        await program.say(f"{name} {n}")
        assert await program.answer() == 0, name
        found[name] = n_waits(scene) - before
        await until(lambda: is_idle(scene))
    return found


async def test_what_is_large_waits_for_its_turn_however_it_is_called(scene: Scene) -> None:
    large = [(name, 1 << 20) for name in (*COPIES, *FILLS, *ROWS)]
    found = await waits(scene, large)
    # A program that gets no processor for a lease waits for the next one, too.
    assert {name: min(n, 1) for name, n in found.items()} == {name: 1 for name, _ in large}


async def test_what_is_small_does_not_wait(scene: Scene) -> None:
    small = [(name, 1 << 17) for name in (*COPIES, *FILLS, *ROWS)]
    assert await waits(scene, small) == {name: 0 for name, _ in small}


async def test_a_copy_from_the_host_does_not_wait(scene: Scene) -> None:
    calls = [("cuMemcpy", -(1 << 22)), ("cuMemcpyAsync", -(1 << 22))]
    assert await waits(scene, calls) == {"cuMemcpy": 0, "cuMemcpyAsync": 0}
