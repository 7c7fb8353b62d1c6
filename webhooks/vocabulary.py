"""Translates GPU requests in the vocabularies of other schedulers into ours.

Only this module knows the resources and annotations of HAMi, Volcano, Tencent's gpu-manager,
Aliyun's gpushare, Koordinator, KubeShare, nos, nvshare and KAI's NvFractions. Labels that name
projects and groups, and Run:ai's own vocabulary, are in `extender.api.aliases` and `demand`.

A request becomes `gpu-fraction`, `gpu-memory` or `nvidia.com/gpu`, and a share of compute becomes
`gpu-compute-*`. Foreign resources are removed from the pod, since no node has them. Foreign
annotations stay, and must agree with ours if both are present. Only one container of a pod may
request a share.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from extender.api import aliases, demand, names
from extender.api.objects import Container, Pod, Quantity
from extender.api.units import (
    MILLI_PER_GPU,
    UnitError,
    format_gpus,
    parse_memory,
    parse_positive,
    parse_share,
    parse_whole,
)

PERCENT: Final = 100


class Dialect(NamedTuple):
    """The resources of one scheduler; a name is empty if it has no such resource.

    `cards` counts cards, `memory` counts units of `memory_mib` MiB (0: bytes), `percent` is of a
    card's memory, `cores` are hundredths of a card's compute. With `is_core_whole`, multiples of
    100 cores request whole cards.
    """

    cards: str = ""
    memory: str = ""
    memory_mib: int = 1
    percent: str = ""
    cores: str = ""
    ignored: str = ""
    is_core_whole: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The resources that only this scheduler uses; the name of whole cards may be shared."""
        own = (self.memory, self.percent, self.cores, self.ignored)
        count = () if self.cards == names.NVIDIA_GPU else (self.cards,)
        return tuple(filter(None, (*own, *count)))


def _hami(domain: str, count: str) -> Dialect:
    return Dialect(
        count,
        f"{domain}/gpumem",
        percent=f"{domain}/gpumem-percentage",
        cores=f"{domain}/gpucores",
        ignored=f"{domain}/priority",
    )


DIALECTS: Final = (
    _hami("nvidia.com", names.NVIDIA_GPU),
    _hami("hami.io", "hami.io/gpu"),
    Dialect(
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        percent="volcano.sh/vgpu-memory-percentage",
        cores="volcano.sh/vgpu-cores",
    ),
    Dialect(
        memory="tencent.com/vcuda-memory",
        memory_mib=256,
        cores="tencent.com/vcuda-core",
        is_core_whole=True,
    ),
    Dialect("aliyun.com/gpu-count", "aliyun.com/gpu-mem", memory_mib=1024),
    Dialect(
        "koordinator.sh/gpu.shared",
        "koordinator.sh/gpu-memory",
        memory_mib=0,
        percent="koordinator.sh/gpu-memory-ratio",
        cores="koordinator.sh/gpu-core",
        is_core_whole=True,
    ),
    Dialect(cores="koordinator.sh/gpu", is_core_whole=True),
    Dialect("nvshare.com/gpu"),
)
_OF_RESOURCE: Final = {word: dialect for dialect in DIALECTS for word in dialect.words}
#: nos: memory slices in GB, as in `nvidia.com/gpu-10gb`.
_SLICE: Final = re.compile(r"nvidia\.com/gpu-([1-9][0-9]{0,2})gb", re.ASCII)
#: KubeShare's labels (`pkg/scheduler/pod.go::getPodLabels`). It writes annotations of these names
#: when it binds a pod, and reads none.
SHAREDGPU: Final = "sharedgpu/"
_SHAREDGPU_WORDS: Final = ("gpu_request", "gpu_limit", "gpu_mem")
NV_FRACTION: Final = re.compile(
    r"nvidia\.com/container\.([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)\."
    r"(gpu-memory\.request|gpu-memory\.limit|gpus\.devices|gpu-compute\.mode)",
    re.ASCII,
)
_NV_PREFIX: Final = "nvidia.com/container."
_TIME_SLICING: Final = "time-slicing"
_DECIMAL: Final = re.compile(r"(0|1)(\.[0-9]{1,9})?", re.ASCII)
_COUNT: Final = re.compile(r"([1-9][0-9]{0,2})(\.0{1,9})?", re.ASCII)
_ZERO: Final = re.compile(r"0(\.0{1,9})?", re.ASCII)


class Translation(Struct):
    """A translated request: annotations, whole cards, and the resources to remove.

    `container` is the index of the requesting container among the pod's containers; `words` are
    what its author wrote.
    """

    container: int
    notes: dict[str, str]
    whole: int = 0
    dropped: tuple[str, ...] = ()
    words: str = ""

    def of(self, pod: Pod) -> Pod:
        """The pod as if its author had used our vocabulary."""
        containers = list(pod.spec.containers)
        asked = containers[self.container].resources
        containers[self.container] = replace(
            containers[self.container],
            resources=replace(
                asked, requests=self._kept(asked.requests), limits=self._kept(asked.limits)
            ),
        )
        notes = (pod.metadata.annotations or {}) | self.notes
        return replace(
            pod,
            metadata=replace(pod.metadata, annotations=notes),
            spec=replace(pod.spec, containers=containers),
        )

    def _kept(self, listed: Mapping[str, Quantity] | None) -> dict[str, Quantity]:
        kept = {name: amount for name, amount in (listed or {}).items() if name not in self.dropped}
        return kept | ({names.NVIDIA_GPU: self.whole} if self.whole else {})


def is_foreign(resource: str) -> bool:
    """Whether the resource belongs to another scheduler's vocabulary."""
    return resource in _OF_RESOURCE or _SLICE.fullmatch(resource) is not None


def speaks(pod: Pod) -> bool:
    """Whether the pod requests GPUs in another scheduler's vocabulary."""
    if _kubeshare(pod) or any(key.startswith(_NV_PREFIX) for key in pod.metadata.annotations or ()):
        return True
    return any(
        is_foreign(resource)
        for container in (*pod.spec.containers, *(pod.spec.init_containers or ()))
        for listed in (container.resources.requests, container.resources.limits)
        for resource in listed or ()
    )


def asks_for_gpu(pod: Pod) -> bool:
    """Whether the pod requests GPUs in any vocabulary. A claim of dynamic resource allocation
    counts, since the pod alone does not tell its device class."""
    return demand.mentions_gpu(pod) or speaks(pod) or bool(pod.spec.resource_claims)


def translate(pod: Pod) -> Translation | None:
    """The pod's foreign request in our vocabulary, None if it has none; raises UnitError."""
    translations = [
        found
        for ix, container in enumerate(pod.spec.containers)
        if (found := _of_container(ix, container))
    ]
    translations += _of_notes(pod)
    for container in pod.spec.init_containers or ():
        if any(map(is_foreign, _asked(container))):
            raise UnitError(
                f"init container {container.name!r:.80} asks for a share of a card: only one of"
                " the containers can; move the request there"
            )
    if len(translations) > 1:
        raise UnitError(
            "several containers or vocabularies ask for shares of cards; keep one of them, such as"
            f' the annotation {demand.FRACTION}: "0.5"'
        )
    if not translations:
        return None
    found = translations[0]
    for key, value in found.notes.items():
        stated = demand.share_notes(pod.metadata).get(key, "")
        if stated and stated != value:
            own = aliases.written(pod.metadata.annotations, (f"{names.GROUP}/{key}", key))
            raise UnitError(
                f"{own}: {stated!r:.80} contradicts {found.words}, which means {value!r}; keep one"
                " of them"
            )
    return found


def _asked(container: Container) -> dict[str, Quantity]:
    listed = container.resources
    return (listed.limits or {}) | (listed.requests or {})


def _of_container(ix: int, container: Container) -> Translation | None:
    asked = _asked(container)
    slices = [(name, match) for name in asked if (match := _SLICE.fullmatch(name))]
    found = {id(_OF_RESOURCE[name]): _OF_RESOURCE[name] for name in asked if name in _OF_RESOURCE}
    if not slices and not found:
        return None
    if len(slices) + len(found) > 1:
        foreign = " and ".join(name for name in asked if is_foreign(name))
        raise UnitError(f"requests {foreign:.200}, words of several schedulers; keep those of one")
    notes = {demand.FRACTION_CONTAINER: container.name} if ix else {}
    if slices:
        name, match = slices[0]
        notes |= _shares(parse_whole(asked[name], name), mib=int(match[1]) * 1024)
        return Translation(ix, notes, dropped=(name,), words=name)
    (dialect,) = found.values()
    whole, more = _read(dialect, asked)
    dropped = tuple(word for word in (*dialect.words, dialect.cards) if word in asked)
    return Translation(ix, {} if whole else notes | more, whole, dropped, " and ".join(dropped))


def _read(dialect: Dialect, asked: Mapping[str, Quantity]) -> tuple[int, dict[str, str]]:
    """(whole cards, annotations) of one container's request; raises UnitError."""

    def number(word: str) -> int:
        return parse_whole(asked[word], word) if word and word in asked else 0

    count = number(dialect.cards) or 1
    percent, cores, mib = number(dialect.percent), number(dialect.cores), 0
    if dialect.memory in asked:
        text = asked[dialect.memory]
        in_mib = number(dialect.memory) * dialect.memory_mib if dialect.memory_mib else 0
        mib = in_mib or parse_memory(text, dialect.memory)
    if dialect.is_core_whole and max(cores, percent) >= PERCENT and not mib:
        return _whole_of(dialect, max(cores, percent), percent or cores), {}
    _check_hundredths({dialect.percent: percent, dialect.cores: cores})
    if not mib and percent in (0, PERCENT) and cores in (0, PERCENT):
        return count, {}
    shares = percent or (cores if dialect.is_core_whole else PERCENT)
    if not mib and shares >= PERCENT:
        raise UnitError(
            f"{dialect.cores}: {cores} of a whole card's compute: share its memory too"
            + (f" with {dialect.percent} or {dialect.memory}" if dialect.percent else "")
        )
    for word, value in ((dialect.percent, percent), (dialect.cores, cores)):
        if value > PERCENT:
            raise UnitError(f"{word}: {value} is not a whole number from 1 to 100, such as 50")
    notes = _shares(count, mib=mib) if mib else _shares(count, hundredths=shares)
    if cores and (mib or cores != shares):
        key = demand.COMPUTE_REQUEST if dialect.is_core_whole else demand.COMPUTE_LIMIT
        notes[key] = _of_hundredths(cores)
    return 0, notes


def _check_hundredths(stated: Mapping[str, int]) -> None:
    for word, value in stated.items():
        if value > PERCENT:
            raise UnitError(f"{word}: {value} is not a whole number from 1 to 100, such as 50")


def _whole_of(dialect: Dialect, hundredths: int, memory: int) -> int:
    if hundredths % PERCENT or memory != hundredths:
        raise UnitError(
            f"{dialect.cores}: {hundredths} is neither a share of one card (1 to 99) nor whole"
            " cards, such as 200"
        )
    return hundredths // PERCENT


def _shares(count: int, *, hundredths: int = 0, mib: int = 0) -> dict[str, str]:
    notes = {demand.MEMORY: str(mib)} if mib else {demand.FRACTION: _of_hundredths(hundredths)}
    return notes | ({demand.DEVICES: str(count)} if count > 1 else {})


def _of_hundredths(hundredths: int) -> str:
    return format_gpus(hundredths * MILLI_PER_GPU // PERCENT)


def _of_notes(pod: Pod) -> list[Translation]:
    """Requests by KubeShare's labels for the first container, by KAI's notes for a named one."""
    notes = pod.metadata.annotations or {}
    found = []
    if kubeshare := _kubeshare(pod):
        found.append(_of_kubeshare(kubeshare))
    by_container: dict[str, dict[str, str]] = {}
    for key, value in notes.items():
        if match := NV_FRACTION.fullmatch(key):
            by_container.setdefault(match[1], {})[match[3]] = value
        elif key.startswith(_NV_PREFIX):
            raise UnitError(
                f"{key[:120]!r} is none of {_NV_PREFIX}NAME.gpu-memory.request, .gpu-memory.limit,"
                " .gpus.devices and .gpu-compute.mode"
            )
    for name, words in by_container.items():
        found.append(_of_nv_fraction(pod, name, words))
    return found


def _kubeshare(pod: Pod) -> dict[str, str]:
    """The request of KubeShare's labels, by their names without prefix; empty if there is none."""
    labels = pod.metadata.labels or {}
    keys = {word: f"{SHAREDGPU}{word}" for word in _SHAREDGPU_WORDS}
    words = {word: labels[key] for word, key in keys.items() if key in labels}
    return words if any(not _ZERO.fullmatch(text) for text in words.values()) else {}


def _of_kubeshare(words: Mapping[str, str]) -> Translation:
    said = " and ".join(f"{SHAREDGPU}{word}" for word in words)
    if (count := _COUNT.fullmatch(words.get("gpu_request", ""))) and "gpu_mem" not in words:
        return Translation(0, {}, whole=int(count[1]), words=said)
    shares: dict[str, int] = {}
    for word in ("gpu_request", "gpu_limit"):
        if (text := words.get(word)) is not None:
            if not _DECIMAL.fullmatch(text):
                raise UnitError(f'{SHAREDGPU}{word}: {text[:40]!r} is not a share, such as "0.5"')
            whole, _, part = text.partition(".")
            share = f"{whole}.{part.rstrip('0')}".rstrip(".")
            shares[word] = parse_share(share, f"{SHAREDGPU}{word}")
    notes: dict[str, str] = {}
    if "gpu_mem" in words:
        mib = -(-parse_whole(words["gpu_mem"], f"{SHAREDGPU}gpu_mem") // 2**20)
        notes[demand.MEMORY] = str(mib)
    elif 0 < shares.get("gpu_request", 0) < MILLI_PER_GPU:
        notes[demand.FRACTION] = format_gpus(shares["gpu_request"])
    else:
        return Translation(0, {}, whole=1, words=said)
    if "gpu_limit" in shares:
        notes[demand.COMPUTE_LIMIT] = format_gpus(shares["gpu_limit"])
    if "gpu_request" in shares and demand.MEMORY in notes:
        notes[demand.COMPUTE_REQUEST] = format_gpus(shares["gpu_request"])
    return Translation(0, notes, words=said)


def _of_nv_fraction(pod: Pod, name: str, words: Mapping[str, str]) -> Translation:
    present = [container.name for container in pod.spec.containers]
    if name not in present:
        raise UnitError(
            f"{_NV_PREFIX}{name}: the pod has no such container, only {', '.join(present):.200}"
        )
    of_request = "gpu-memory.request" if words.get("gpu-memory.request") else "gpu-memory.limit"
    request = words.get(of_request, "")
    mode = words.get("gpu-compute.mode", _TIME_SLICING)
    if not request or mode != _TIME_SLICING:
        raise UnitError(
            f'{_NV_PREFIX}{name}: give gpu-memory.request, such as "8Gi", and {_TIME_SLICING} as'
            " gpu-compute.mode or none"
        )
    limit = words.get("gpu-memory.limit", request)
    most = parse_memory(limit, f"{_NV_PREFIX}{name}.gpu-memory.limit")
    least = parse_memory(request, f"{_NV_PREFIX}{name}.{of_request}")
    if most < least:
        raise UnitError(
            f"{_NV_PREFIX}{name}.gpu-memory.limit is below gpu-memory.request: raise it"
        )
    devices = words.get("gpus.devices", "1")
    count = parse_positive(devices, f"{_NV_PREFIX}{name}.gpus.devices")
    notes = _shares(count, mib=least)
    if most > least:
        notes[demand.MEMORY_LIMIT] = str(most)
    ix = present.index(name)
    of_container = {demand.FRACTION_CONTAINER: name} if ix else {}
    said = " and ".join(f"{_NV_PREFIX}{name}.{word}" for word in words)
    return Translation(ix, notes | of_container, words=said)
