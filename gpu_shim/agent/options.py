"""The options of the agent. Nothing here needs a compiled module, so neither does the help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gpu_shim.agent.nri.adjust import Way
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Mode

#: Charged for each context until the driver's figures correct it: a process of PyTorch 2.11 takes
#: 612 MiB of an H200 with driver 580, and a bare context 518 MiB (docs/gpu-results.md).
CONTEXT_MIB: Final = 640


@dataclass(slots=True, frozen=True)
class AgentOptions:
    """Paths on the node, and what the agent does. An empty path: absent."""

    node: str
    inventory: Path | None
    nvml: str
    state: Path
    libraries: Path
    kubeconfig: str
    host: str
    port: int
    is_audited: bool
    is_evicting: bool
    evict_after_s: float
    is_restarting: bool
    spared_namespaces: str
    context_mib: int
    mode: Mode | Literal["off", "pool"]
    settings: LeaseSettings
    nri: str
    way: Way
    driver: Path | None
    cdi_kind: str
    owner: Literal["ours", "plugin"]
    kubelet: Path
    namespace: str
    holder_image: str
