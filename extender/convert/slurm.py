"""Slurm: accounts, from `sacctmgr dump` or `sacctmgr -P show assoc`, and batch scripts.

An account becomes a project and the account above it the department; a script with `#SBATCH` lines
becomes a Job that runs the script.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from extender.api.names import (
    ANNOTATION_MIN_MEMBER,
    ANNOTATION_NODE_POOLS,
    LABEL_POD_GROUP,
    LABEL_PROJECT,
    LABEL_WORKLOAD_KIND,
    NVIDIA_GPU,
)
from extender.convert.fields import Converted, Lost, Manifest, new_object
from extender.convert.queues import Draft, build, dns_name

_LINE: Final = re.compile(r"^(Cluster|Parent|Account|User)\s*-\s*'?([^':]*)'?(?::(.*))?$", re.I)
#: Separates the options of a line; not the colon before a model, as in gres/gpu:a100=8.
_COLON: Final = re.compile(r"(?<!gpu):(?=[A-Za-z ]+=)", re.I)
_TRES: Final = re.compile(r"(cpu|mem|gres/gpu(?::[^=]+)?)=([0-9]+)([KMGTP]?)", re.I)
#: One resource of --gres: gpu, gpu:2, gpu:a100, gpu:a100:2, each with or without sockets.
_GRES: Final = re.compile(
    r"(?:gres/)?gpu(?::(?![0-9]+(?:\(|$))([a-z0-9_.-]+))?(?::([0-9]+))?(?:\([^)]*\))?", re.I
)
_NUMBER: Final = re.compile(r"(?:([a-z0-9_.-]+):)?([0-9]+)", re.I)
_COMMA: Final = re.compile(r",(?![^(]*\))")
_SBATCH: Final = re.compile(r"^#SBATCH\s+(\S.*?)\s*$")
_ROOT: Final = "root"
#: The image in a Job if the script names none: Slurm uses the node's own files.
IMAGE: Final = "IMAGE"

#: Options of associations that are not converted, and why.
_WHY: Final = {
    "grpjobs": "Ballast counts GPUs, not jobs",
    "grpsubmitjobs": "Ballast counts GPUs, not jobs",
    "maxjobs": "Ballast counts GPUs, not jobs",
    "maxsubmitjobs": "Ballast counts GPUs, not jobs",
    "maxwall": "Ballast ends no work for its age",
    "grpwall": "Ballast ends no work for its age",
    "maxtresperjob": "one workload may use all that its project may",
    "maxtresminsperjob": "one workload may use all that its project may",
    "grptresmins": "set gpuHoursPerMonth of the GpuProject, a budget for a calendar month",
    "qos": "priority classes and preemptibility say what a QOS says",
    "defaultqos": "priority classes and preemptibility say what a QOS says",
    "priority": "priority classes order work",
}
_CARRIED: Final = frozenset(
    {"description", "organization", "fairshare", "share", "grptres", "cluster", "account", "user",
     "parentname", "par name", "partition", "defaultaccount", "adminlevel", "wckeys", "lft", "rgt",
     "coordinator", "def qos", "parentid"}
)  # fmt: skip


def convert(texts: Mapping[str, str]) -> Converted:
    """Convert the texts of files, by their names."""
    done = Converted()
    drafts: dict[str, Draft] = {}
    for name, text in texts.items():
        if "#SBATCH" in text:
            done.objects += _script(name, text, done)
        elif "|" in text.partition("\n")[0]:
            _associations(_table(name, text, done), drafts, done)
        else:
            _associations(_dump(name, text, done), drafts, done)
    build(drafts.values(), done, has_namespaces=False)
    return done


# -- accounts --------------------------------------------------------------------------------


def _table(file: str, text: str, done: Converted) -> Iterator[dict[str, str]]:
    """Lines of `sacctmgr -P show assoc`; the first line names the columns."""
    head, *lines = [line for line in text.splitlines() if line.strip()]
    keys = [key.strip().lower().replace(" ", "") for key in head.split("|")]
    if "account" not in keys:
        done.lost.append(Lost(file, head[:60], "the first line names no column Account"))
    for line in lines:
        yield dict(zip(keys, (cell.strip() for cell in line.split("|")), strict=False))


def _dump(file: str, text: str, done: Converted) -> Iterator[dict[str, str]]:
    """Lines of `sacctmgr dump`: `Parent - 'x'` names the parent of the following lines."""
    parent = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        found = _LINE.match(line)
        if found is None:
            if not line.startswith("#"):
                why = "a line names a cluster, a parent, an account or a user, or is a comment"
                done.lost.append(Lost(file, line[:60], why))
            continue
        kind, name, rest = found[1].lower(), found[2].strip(), found[3] or ""
        parts = (part.partition("=") for part in _COLON.split(rest))
        options = {key.lower(): value.strip("'") for key, equals, value in parts if equals}
        if kind == "parent":
            parent = name
        elif kind == "account":
            yield {**options, "account": name, "parentname": parent}
        elif kind == "user":
            yield {**options, "account": parent, "user": name}


def _associations(
    lines: Iterator[dict[str, str]], drafts: dict[str, Draft], done: Converted
) -> None:
    for line in lines:
        account, user = line.get("account", ""), line.get("user", "")
        if not account or account == _ROOT:
            continue
        named = f"user {user} of account {account}" if user else f"account {account}"
        if user:
            _user(line, named, done)
            continue
        draft = drafts.setdefault(account, Draft(account, named))
        parent = line.get("parentname") or line.get("parname") or ""
        draft.parent = "" if parent == _ROOT else parent
        share = line.get("fairshare") or line.get("share") or ""
        if share.isdecimal() and int(share) != 1:
            draft.set("", "gpu", overQuotaWeight=int(share))
        _limits(draft, line.get("grptres", ""), done)
        _report(line, named, done)


def _limits(draft: Draft, text: str, done: Converted) -> None:
    """Slurm has no guarantees: an account's maximum is a limit, its share follows from its
    weight."""
    draft.set("", "gpu", quota=0)
    of_models: dict[str, int] = {}
    limit: int | None = None
    for part in filter(None, text.split(",")):
        found = _TRES.fullmatch(part)
        if found is None:
            why = "Ballast limits GPUs, CPU and memory"
            done.lost.append(Lost(draft.named, f"grptres={part}", why))
            continue
        name, number = found[1].lower(), int(found[2])
        if name == "cpu":
            draft.set("", "cpu", limit=str(number))
        elif name == "mem":
            draft.set("", "memory", limit=f"{number}{found[3].upper() or 'M'}i")
        elif name == "gres/gpu":
            limit = number
        else:
            of_models[name] = number
            why = "a limit of one model: make a node pool of it; here it counts for all models"
            done.lost.append(Lost(draft.named, f"grptres={part}", why))
    if limit is None and of_models:
        limit = sum(of_models.values())
    draft.set("", "gpu", limit=limit)


def _user(line: dict[str, str], named: str, done: Converted) -> None:
    """Users of a project have equal shares; Slurm's settings for single users are reported."""
    share = line.get("fairshare") or line.get("share") or ""
    if share not in ("", "1", "parent"):
        done.lost.append(Lost(named, f"fairshare={share}", "users of a project share it equally"))
    if line.get("grptres"):
        done.lost.append(Lost(named, f"grptres={line['grptres']}", "users have no limits"))
    _report(line, named, done)


def _report(line: dict[str, str], named: str, done: Converted) -> None:
    for key, value in line.items():
        if value in ("", "-1") or key in _CARRIED:
            continue
        why = next((text for start, text in _WHY.items() if key.startswith(start)), "")
        done.lost.append(Lost(named, f"{key}={value}", why or "there is no counterpart"))


# -- batch scripts ---------------------------------------------------------------------------

#: Short options of sbatch -> long ones.
_LONG: Final = {
    "J": "job-name", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time",
    "p": "partition", "A": "account", "o": "output", "e": "error", "q": "qos", "G": "gpus",
    "a": "array", "d": "dependency", "D": "chdir", "w": "nodelist", "x": "exclude",
    "C": "constraint",
}  # fmt: skip
_SILENT: Final = frozenset({"output", "error", "open-mode", "parsable"})
_WHY_NOT: Final = {
    "qos": "use a priority class",
    "array": "use an Indexed Job",
    "dependency": "a Job waits for no other: use a workflow engine",
    "nodelist": "use a node pool",
    "exclude": "use a node pool",
    "constraint": "use a node pool or a node selector",
    "exclusive": "ask for all the GPUs of a node",
    "mail-user": "there is no mail",
    "mail-type": "there is no mail",
    "chdir": "set workingDir in the container",
    "requeue": "an evicted Job's pods are created again",
    "signal": "an evicted pod has its termination grace period",
}


def _script(name: str, text: str, done: Converted) -> list[Manifest]:
    options = _options(text)
    job = dns_name(options.pop("job-name", name.rpartition("/")[2].partition(".")[0]))
    named = f"script {name}"
    pods, gpus = _size(options, named, done)
    time = options.pop("time", "")
    seconds = time_limit_s(time)
    if time and not seconds and time.lower() not in ("0", "infinite", "unlimited"):
        why = "it is not a time of Slurm: set activeDeadlineSeconds of the pod"
        done.lost.append(Lost(named, f"--time={time}", why))
    labels = {LABEL_WORKLOAD_KIND: "training"}
    notes: dict[str, str] = {}
    if account := options.pop("account", ""):
        labels[LABEL_PROJECT] = dns_name(account)
    if partition := options.pop("partition", ""):
        notes[ANNOTATION_NODE_POOLS] = ",".join(dns_name(each) for each in partition.split(","))
    if pods > 1 or seconds:
        labels[LABEL_POD_GROUP], notes[ANNOTATION_MIN_MEMBER] = job, str(pods)
    container = {
        "name": job[:63],
        "image": IMAGE,
        "command": ["/bin/bash", "-c", text],
        "resources": _resources(options, gpus),
    }
    why = "Slurm runs on the node's files, a pod in an image: put its name here"
    done.lost.append(Lost(named, "image", why))
    for key, value in options.items():
        if key not in _SILENT:
            why_not = _WHY_NOT.get(key, "there is no counterpart")
            done.lost.append(Lost(named, f"--{key}={value}" if value else f"--{key}", why_not))
    # The pod's deadline: a Job's own would also count the time that it is pending.
    pod: Manifest = {"restartPolicy": "Never", "containers": [container]}
    pod |= {"activeDeadlineSeconds": seconds} if seconds else {}
    meta = {"labels": labels, **({"annotations": notes} if notes else {})}
    spec: Manifest = {"template": {"metadata": meta, "spec": pod}}
    spec |= {"parallelism": pods, "completions": pods} if pods > 1 else {}
    workload = new_object("Job", job, spec, version="batch/v1")
    if not seconds:
        return [workload]
    group = {"minMember": pods, "expectedRunSeconds": seconds}
    return [new_object("GpuPodGroup", job, group), workload]


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _SBATCH.match(line)
        if match is None:
            continue
        try:
            words = shlex.split(match[1], comments=True)
        except ValueError:  # A quote without its end.
            words = match[1].split()
        while words:
            word = words.pop(0)
            if word.startswith("--"):
                key, _, value = word[2:].partition("=")
            elif word.startswith("-"):
                key, value = _LONG.get(word[1:2], word[1:2]), word[2:].removeprefix("=")
            else:
                continue
            if not value and "=" not in word and words and not words[0].startswith("-"):
                value = words.pop(0)
            found[key] = value
    return found


def _size(options: dict[str, str], named: str, done: Converted) -> tuple[int, int]:
    """(pods, GPUs of each): one pod for each node."""
    nodes = options.pop("nodes", "1")
    least, _, most = nodes.partition("-")
    pods = max(1, int(least)) if least.isdecimal() else 1
    if least.isdecimal() and most and most != least:
        why = f"a gang has one size: {pods} pods, the least; raise parallelism and completions"
        done.lost.append(Lost(named, f"--nodes={nodes}", why))
    if not least.isdecimal():
        why = "the number of nodes is not a number: one pod, set parallelism and completions"
        done.lost.append(Lost(named, f"--nodes={nodes}", why))
    total, of_node = options.pop("ntasks", ""), options.pop("ntasks-per-node", "")
    tasks = of_node or total
    if tasks and tasks != "1" and tasks != str(pods):
        why = "one pod for each node: start its processes there with torchrun or mpirun"
        done.lost.append(Lost(named, f"tasks={tasks}", why))
    if of_node.isdecimal():
        tasks_of_node = int(of_node)
    else:
        tasks_of_node = -(-int(total) // pods) if total.isdecimal() else 1
    gpus = 0
    for key in ("gpus-per-node", "gres", "gpus-per-task", "gpus"):
        number = _gpus(key, options.pop(key, ""), named, done)
        if key == "gpus-per-task":
            number *= tasks_of_node
        # A number per node is exact; the total is divided only if nothing else is stated.
        gpus = gpus or (-(-number // pods) if key == "gpus" else number)
    return pods, gpus


def _gpus(key: str, text: str, named: str, done: Converted) -> int:
    """The GPUs that an option requests, of all models together."""
    number = 0
    for part in filter(None, _COMMA.split(text)):
        found = _GRES.fullmatch(part) or (_NUMBER.fullmatch(part) if key != "gres" else None)
        if found is None:
            why = "it is not a number of GPUs: set the resources of the container"
            done.lost.append(Lost(named, f"--{key}={part}", why))
            continue
        number += int(found[2] or 1)
        if found[1]:
            why = "annotation nvidia.com/use-gputype or a node pool names a model"
            done.lost.append(Lost(named, f"--{key}={part}", why))
    return number


def _resources(options: dict[str, str], gpus: int) -> dict[str, Any]:
    requests = {}
    if cpus := options.pop("cpus-per-task", ""):
        requests["cpu"] = cpus
    if memory := options.pop("mem", ""):
        number, unit = memory.rstrip("KMGTkmgt"), memory[-1:].upper()
        requests["memory"] = f"{number}{unit}i" if unit in "KMGT" and unit else f"{number}Mi"
    resources: dict[str, Any] = {"requests": requests} if requests else {}
    if gpus:
        resources["limits"] = {NVIDIA_GPU: str(gpus)}
    return resources


def time_limit_s(text: str) -> int:
    """Seconds of Slurm's times: minutes, minutes:seconds, [days-]hours[:minutes[:seconds]]."""
    if not re.fullmatch(r"([0-9]+-)?[0-9]+(:[0-9]+){0,2}", text):
        return 0
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, minutes, seconds = 0, parts[0], parts[1] if len(parts) > 1 else 0
    return int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds
