"""Which pod a process of the host belongs to, by its control group."""

import re
from pathlib import Path
from typing import Final

#: `pod<uid>` as kubelet names groups; the systemd driver writes the uid with underscores.
_POD: Final = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})", re.ASCII)


def pod_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The uid of the process's pod; empty where it has none or is gone."""
    try:
        text = (proc / str(pid) / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return ""
    found = _POD.search(text)
    return found[1].replace("_", "-") if found else ""
