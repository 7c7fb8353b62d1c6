"""The objects of `ballast run`, and their creation."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self
from uuid import uuid4

from extender.api import names
from extender.api.demand import MAX_DEVICES
from extender.api.names import DNS_LABEL
from extender.api.units import (
    MILLI_PER_GPU,
    UnitError,
    format_gpus,
    parse_gpus,
    parse_positive,
    parse_quantity,
)
from extender.cli.ask import Answer
from extender.kube.client import MERGE_PATCH, Client
from extender.kube.errors import KubeError, NotFound
from extender.kube.transport import Call

_TIME: Final = re.compile(r"([1-9][0-9]{0,8})([smhd]?)", re.ASCII)
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_JOBS: Final = "/apis/batch/v1"


#: In the API server's message, if a webhook or policy of Ballast refused an object.
_OUR_REFUSAL: Final = re.compile(
    r"""webhook "[a-z.-]+\.ballast\.dev" denied|Policy '[a-z.-]+\.ballast\.dev' .* denied"""
)


class BadAskError(ValueError):
    """An option has an invalid value; the message says what is accepted."""


@dataclass(slots=True, frozen=True)
class Ask:
    """The options of the command. `gpus` is milli-GPU per pod; times are seconds, 0: not set."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    gpus: int = MILLI_PER_GPU
    gpu_memory: int = 0
    pods: int = 1
    min_pods: int = 0
    kind: str = "training"
    priority_class: str = ""
    checkpoint: int = 0
    run_time: int = 0
    node_pools: str = ""
    user: str = ""
    cpu: str = ""
    memory: str = ""
    envs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        *,
        gpus: str,
        checkpoint: str,
        run_time: str,
        envs: tuple[str, ...],
        gpu_memory: str = "",
        **given: Any,
    ) -> Self:
        """The options, parsed and checked; raises BadAskError."""
        asked = cls(
            gpus=_milli(gpus),
            gpu_memory=_mib(gpu_memory),
            checkpoint=_seconds(checkpoint, "--checkpoint"),
            run_time=_seconds(run_time, "--run-time"),
            envs=dict(_env(each) for each in envs),
            **given,
        )
        if not DNS_LABEL.fullmatch(asked.name):
            raise BadAskError(f"{asked.name!r} is not a name: use letters a to z, digits and '-'")
        if not asked.image:
            raise BadAskError("--image is empty")
        for option, quantity in (("--cpu", asked.cpu), ("--memory", asked.memory)):
            _check_quantity(quantity, option)
        if asked.gpu_memory and asked.gpus != MILLI_PER_GPU:
            raise BadAskError("--gpu-memory is a part of one GPU, and takes no --gpus")
        if not 1 <= asked.pods <= 10_000 or not 0 <= asked.min_pods <= asked.pods:
            raise BadAskError("--pods is 1 to 10000, and --min-pods no more than that")
        return asked

    @property
    def is_group(self) -> bool:
        """Whether the pods need a group: to be placed together, or to state the run time."""
        return self.pods > 1 or bool(self.run_time)


def documents(asked: Ask, namespace: str) -> list[Answer]:
    """The Job, preceded by a GpuPodGroup if the run time is stated."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": asked.name, "namespace": namespace},
        "spec": {
            **({"parallelism": asked.pods, "completions": asked.pods} if asked.pods > 1 else {}),
            # An eviction does not count as a failure.
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
            },
            "template": {"metadata": _metadata(asked), "spec": _pod(asked)},
        },
    }
    if not asked.run_time:
        return [job]
    group = {
        "apiVersion": names.API_VERSION,
        "kind": "GpuPodGroup",
        "metadata": {"name": asked.name, "namespace": namespace},
        "spec": {
            "minMember": asked.min_pods or asked.pods,
            "expectedRunSeconds": asked.run_time,
        },
    }
    return [group, job]


def _metadata(asked: Ask) -> Answer:
    labels = {names.LABEL_WORKLOAD_KIND: asked.kind}
    notes = {}
    if asked.is_group:
        labels[names.LABEL_POD_GROUP] = asked.name
        notes[names.ANNOTATION_MIN_MEMBER] = str(asked.min_pods or asked.pods)
    if asked.user:
        labels[names.LABEL_USER] = asked.user
    if asked.gpu_memory:
        notes[names.ANNOTATION_MEMORY] = str(asked.gpu_memory)
    elif asked.gpus < MILLI_PER_GPU:
        notes[names.ANNOTATION_FRACTION] = format_gpus(asked.gpus)
    if asked.checkpoint:
        notes[names.ANNOTATION_CHECKPOINT] = str(asked.checkpoint)
    if asked.node_pools:
        notes[names.ANNOTATION_NODE_POOLS] = asked.node_pools
    return {"labels": labels, **({"annotations": notes} if notes else {})}


def _pod(asked: Ask) -> Answer:
    container: Answer = {"name": asked.name, "image": asked.image}
    if asked.command:
        container["command"] = list(asked.command)
    if asked.envs:
        container["env"] = [{"name": key, "value": value} for key, value in asked.envs.items()]
    requests = {"cpu": asked.cpu, "memory": asked.memory}
    resources: Answer = {"requests": {key: value for key, value in requests.items() if value}}
    if asked.gpus >= MILLI_PER_GPU and not asked.gpu_memory:
        resources["limits"] = {names.NVIDIA_GPU: str(asked.gpus // MILLI_PER_GPU)}
    container["resources"] = {key: value for key, value in resources.items() if value}
    if not container["resources"]:
        del container["resources"]
    priority = {"priorityClassName": asked.priority_class} if asked.priority_class else {}
    return {"restartPolicy": "Never", **priority, "containers": [container]}


# -- creation --------------------------------------------------------------------------------


async def home_of(client: Client, project: str) -> str:
    """The namespace of the project; raises KubeError unless it has exactly one."""
    found = json.loads(await client.send(Call("GET", f"{names.API_PATH}/gpuprojects/{project}")))
    spaces = found["spec"].get("namespaces") or []
    if len(spaces) == 1:
        return str(spaces[0])
    listed = ", ".join(spaces) or "none"
    raise KubeError(f"project {project} has these namespaces: {listed}; name one with -n")


async def submit(client: Client, objects: list[Answer], *, is_dry: bool) -> Answer:
    """Create the objects and return the Job. The Job owns the group, so they are deleted together.

    Raises a KubeError if the Job cannot be created, or if Ballast would refuse its pods; then no
    group is left either.
    """
    query = {"dryRun": "All"} if is_dry else {}
    *groups, job = objects
    await _try_pod(client, job)
    for group in groups:
        await client.send(Call("POST", _path(group), query=query, body=group))
    try:
        made: Answer = json.loads(
            await client.send(Call("POST", _path(job), query=query, body=job))
        )
    except KubeError:
        for group in () if is_dry else groups:
            await _withdraw(client, group)
        raise
    for group in () if is_dry else groups:
        await _set_owner(client, group, made)
    return made


async def _try_pod(client: Client, job: Answer) -> None:
    """Create a pod of the Job in a dry run: the API server then sends the warnings about it, which
    would otherwise reach the Job controller only. Raises a KubeError if Ballast refuses the pod."""
    meta, template = job["metadata"], job["spec"]["template"]
    # The webhook warns of pods without a controller. The Job does not exist yet, so the UID is new.
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": str(uuid4())}
    ours = {"generateName": f"{meta['name']}-", "ownerReferences": [{**owner, "controller": True}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], **ours},
        "spec": template["spec"],
    }
    path = f"/api/v1/namespaces/{meta['namespace']}/pods"
    try:
        await client.send(Call("POST", path, query={"dryRun": "All"}, body=pod))
    except KubeError as error:
        # Others may refuse it only for now (a ResourceQuota), or only to this user.
        if _OUR_REFUSAL.search(error.message):
            raise


async def _set_owner(client: Client, group: Answer, job: Answer) -> None:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    path = f"{_path(group)}/{group['metadata']['name']}"
    body = {"metadata": {"ownerReferences": [owner]}}
    await client.send(Call("PATCH", path, body=body, content_type=MERGE_PATCH))


async def _withdraw(client: Client, group: Answer) -> None:
    try:
        await client.send(Call("DELETE", f"{_path(group)}/{group['metadata']['name']}"))
    except NotFound:
        return


def _path(manifest: Answer) -> str:
    root, plural = (
        (_JOBS, "jobs") if manifest["kind"] == "Job" else (names.API_PATH, "gpupodgroups")
    )
    return f"{root}/namespaces/{manifest['metadata']['namespace']}/{plural}"


# -- parsing ---------------------------------------------------------------------------------


def _milli(text: str) -> int:
    try:
        milli = parse_gpus(text)
    except UnitError:
        milli = 0
    is_whole = milli % MILLI_PER_GPU == 0
    if not 0 < milli <= MAX_DEVICES * MILLI_PER_GPU or (milli > MILLI_PER_GPU and not is_whole):
        raise BadAskError(f"--gpus: {text!r} is neither a part of one GPU (0.5) nor 1 to 64 GPUs")
    return milli


def _mib(text: str) -> int:
    if not text:
        return 0
    try:
        return parse_positive(text, "--gpu-memory", "; the unit is MiB: for 8 GiB write 8192")
    except UnitError as error:
        raise BadAskError(str(error)) from None


def _seconds(text: str, option: str) -> int:
    if not text:
        return 0
    found = _TIME.fullmatch(text)
    if found is None:
        raise BadAskError(f"{option}: {text!r} is not a time such as 1800, 30m or 2h")
    return int(found[1]) * _SECONDS[found[2]]


def _check_quantity(text: str, option: str) -> None:
    try:
        parse_quantity(text or "0")
    except UnitError as error:
        raise BadAskError(f"{option}: {error}") from None


def _env(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadAskError(f"--env: {text!r} is not NAME=VALUE")
    return name, value
