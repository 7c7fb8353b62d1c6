"""Builders for objects as the API server sends them: `pod("a").needs(500).gang("g", 4)`.

`build()` returns the object. Default UIDs, versions and times depend on the name alone, so the same
description always builds equal objects.
"""

from tests.support.builders.ledger import GpuNodeBuilder as GpuNodeBuilder
from tests.support.builders.ledger import gpu_node as gpu_node
from tests.support.builders.ledger import kept_row as kept_row
from tests.support.builders.ledger import part as part
from tests.support.builders.ledger import row as row
from tests.support.builders.ledger import whole as whole
from tests.support.builders.metadata import at_s as at_s
from tests.support.builders.nodes import CARD_MIB as CARD_MIB
from tests.support.builders.nodes import node as node
from tests.support.builders.nodes import pool as pool
from tests.support.builders.nodes import topology as topology
from tests.support.builders.pods import PodBuilder as PodBuilder
from tests.support.builders.pods import pod as pod
from tests.support.builders.pods import pod_group as pod_group
from tests.support.builders.queues import department as department
from tests.support.builders.queues import project as project
