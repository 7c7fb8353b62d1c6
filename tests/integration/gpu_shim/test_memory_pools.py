"""Pools and memory of graphs are charged what they keep, to the card that they are on."""

from tests.integration.gpu_shim.containers import Scene
from tests.support.fakecuda import SECOND, UUID


async def test_a_pool_is_charged_what_it_keeps_until_it_is_trimmed(scene: Scene) -> None:
    scene.container("a")
    code = """
begin()
pool = c_void_p(); cuda.cuDeviceGetMemPool(byref(pool), 0)
cuda.cuMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40)))
at = queued(32 * MIB)[1]; free("queued", at)
kept = memory()[0]; again = queued(32 * MIB)[0]; reused = memory()[0]
tell([kept, again, reused, cuda.cuMemPoolTrimTo(pool, c_size_t(0)), memory()[0]])
"""
    assert await scene.ask("a", code) == [32, 0, 32, 0, 32]


async def test_what_a_pool_gives_back_at_a_synchronisation_is_free_for_every_way(
    scene: Scene,
) -> None:
    """The driver releases it then, and calls nothing of ours."""
    scene.container("a")
    code = """
begin()
def cycle():
    at = queued(48 * MIB)[1]; free("queued", at); cuda.cuStreamSynchronize(NOTHING)
cycle(); told = memory()[0]; cycle(); status, at = plain(48 * MIB)
tell([told, status, free("plain", at)])
"""
    assert await scene.ask("a", code) == [64, 0, 0]


POOLS = """
begin()
def pool_at(kind):
    pool = c_void_p(); want = (c_int * 22)(1, 0, kind, 0)
    assert not cuda.cuMemPoolCreate(byref(pool), want); return pool
def from_pool(pool, n):
    at = c_uint64()
    return cuda.cuMemAllocFromPoolAsync(byref(at), c_size_t(n), pool, NOTHING), at.value
"""


async def test_a_pool_of_the_hosts_memory_is_charged_to_no_card(scene: Scene) -> None:
    scene.container("a")
    code = f"""
{POOLS}
pool = pool_at(2); status, at = from_pool(pool, 100 * MIB); left = [status, memory()[0]]
free("queued", at); cuda.cuMemPoolTrimTo(pool, c_size_t(0)); tell([*left, memory()[0]])
"""
    assert await scene.ask("a", code) == [0, 64, 64]


async def test_a_pool_is_charged_to_the_card_that_it_is_on(scene: Scene) -> None:
    """Whichever card is current when memory is taken from it and when it is trimmed."""
    scene.container("a", cards=(UUID, SECOND))
    code = f"""
{POOLS}
second = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(second), 1)
first = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(first), 0)
pool = pool_at(1); cuda.cuMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40)))
cuda.cuCtxSetCurrent(second); status, at = from_pool(pool, 32 * MIB)
cuda.cuCtxSetCurrent(first); left = [status, memory()[0]]
cuda.cuCtxSetCurrent(second); left.append(memory()[0])
free("queued", at); cuda.cuMemPoolTrimTo(pool, c_size_t(0)); left.append(memory()[0])
cuda.cuCtxSetCurrent(first); left.append(memory()[0]); tell(left)
"""
    assert await scene.ask("a", code, FAKECUDA_CARDS="2") == [0, 32, 64, 64, 64]


async def test_memory_from_a_destroyed_pool_is_charged_until_it_is_freed(scene: Scene) -> None:
    scene.container("a")
    code = f"""
{POOLS}
pool = pool_at(1); blocks = [from_pool(pool, 20 * MIB)[1] for _ in range(2)]
left = [cuda.cuMemPoolDestroy(pool), memory()[0]]
for at in blocks: free("queued", at); left.append(memory()[0])
tell(left)
"""
    assert await scene.ask("a", code) == [0, 24, 44, 64]


async def test_memory_of_graphs_is_free_again_when_it_is_trimmed(scene: Scene) -> None:
    scene.container("a")
    code = """
begin(); stream, graph, instance = c_void_p(), c_void_p(), c_void_p()
cuda.cuStreamCreate(byref(stream), 0); cuda.cuStreamBeginCapture_v2(stream, 2)
cuda.cuStreamEndCapture(stream, byref(graph))
cuda.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0))
left = [cuda.cuGraphLaunch(instance, stream), memory()[0]]
cuda.cuDeviceGraphMemTrim(0); tell([*left, plain(64 * MIB)[0]])
"""
    assert await scene.ask("a", code, FAKECUDA_GRAPH_MIB="40") == [0, 24, 0]
