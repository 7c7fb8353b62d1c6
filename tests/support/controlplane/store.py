"""etcd behind the API server: compaction, and going back to a remembered content.

Emptying a cluster through the API takes finalizers, grace periods and one request per object.
One range delete in etcd takes milliseconds, and the API server's watch cache sees it as what it
is: deletions, which every watcher is told about. Lists that ask for the latest state wait for
the cache to catch up, so there is no moment at which a fresh cluster still shows old objects.
"""

import base64
import datetime
import http.client
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.controlplane.ports import LOOPBACK

PREFIX = b"/registry/"
PREFIX_END = b"/registry0"
#: Operations in one etcd transaction (its --max-txn-ops).
TXN_LIMIT = 128
TIMEOUT_S = 10.0
#: Written all the time by running components: what is there now stays, whatever it is. The
#: controllers' own service accounts carry the tokens they are logged in with.
ALWAYS_KEPT = (
    b"/registry/apiregistration.k8s.io/",
    b"/registry/configmaps/kube-system/",
    b"/registry/flowschemas/",
    b"/registry/leases/kube-system/",
    b"/registry/masterleases/",
    b"/registry/prioritylevelconfigurations/",
    b"/registry/ranges/",
    b"/registry/serviceaccounts/kube-system/",
    b"/registry/servicecidrs/",
)


@dataclass(slots=True)
class _Entry:
    value: bytes
    mod_revision: int


class Store:
    """The etcd of one control plane, by its JSON gateway."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._baseline: dict[bytes, _Entry] = {}

    def is_ready(self) -> bool:
        """Whether etcd has a leader and answers."""
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            return answer.status == 200 and b'"true"' in answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def revision(self) -> int:
        """The newest revision."""
        answer = self._call("range", {"key": _encode(PREFIX), "count_only": True})
        return int(answer["header"]["revision"])

    def compact(self) -> int:
        """Forget every revision before the newest; returns that revision."""
        revision = self.revision()
        self._call("compaction", {"revision": str(revision), "physical": True})
        return revision

    def bump(self, revision: int) -> None:
        """Write a key of no API type until the newest revision is at least this."""
        newest = self.revision()
        while newest < revision:
            answer = self._call("put", {"key": _encode(b"/bump"), "value": ""})
            newest = int(answer["header"]["revision"])

    def remember(self) -> int:
        """Take the present content as what `reset` goes back to; returns the number of keys."""
        answer = self._range(keys_only=False)
        self._baseline = {
            _decode(each["key"]): _Entry(_decode(each.get("value", "")), int(each["mod_revision"]))
            for each in answer
        }
        return len(self._baseline)

    def reset(self) -> int:
        """Go back to the remembered content; returns how many objects were in the way.

        Costs one listing of the keys and a few transactions, whatever the number of objects.
        """
        present = {_decode(each["key"]): int(each["mod_revision"]) for each in self._range(True)}
        runs, n_deleted = self._leftover_runs(sorted(present))
        operations: list[dict[str, object]] = [
            {"request_delete_range": {"key": _encode(run[0]), "range_end": _encode(run[1])}}
            for run in runs
        ]
        changed = [
            key
            for key, entry in self._baseline.items()
            if not key.startswith(ALWAYS_KEPT) and present.get(key) != entry.mod_revision
        ]
        operations += [
            {"request_put": {"key": _encode(k), "value": _encode(self._baseline[k].value)}}
            for k in changed
        ]
        if operations:
            self._commit(operations)
        for key in changed:
            self._baseline[key].mod_revision = self._mod_revision(key)
        return n_deleted + len(changed)

    def put(self, folder: str, objects: Sequence[Mapping[str, Any]]) -> None:
        """Write API objects straight into etcd, below /registry/`folder`/ (`minions`, `pods`, ...).

        Thousands a second, for benchmarks that need a big cluster and not its making. No
        admission, no validation: the objects must be whole. Uid and creation time are filled in.
        The API server reads JSON as well as what it writes itself, and watchers see creations.
        """
        operations: list[dict[str, object]] = []
        for each in objects:
            metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": now()} | each["metadata"]
            place = (folder, metadata.get("namespace", ""), metadata["name"])
            key = PREFIX + "/".join(part for part in place if part).encode()
            value = json.dumps({**each, "metadata": metadata}).encode()
            operations.append({"request_put": {"key": _encode(key), "value": _encode(value)}})
        self._commit(operations)

    def _leftover_runs(self, keys: Sequence[bytes]) -> tuple[list[tuple[bytes, bytes]], int]:
        """Half-open key ranges that hold only what was added since, and how many keys those are."""
        runs: list[tuple[bytes, bytes]] = []
        n_keys = 0
        is_open = False
        for key in keys:
            if key in self._baseline or key.startswith(ALWAYS_KEPT):
                is_open = False
                continue
            n_keys += 1
            end = key + b"\0"
            if is_open:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((key, end))
            is_open = True
        return runs, n_keys

    def _commit(self, operations: Sequence[dict[str, object]]) -> None:
        for start in range(0, len(operations), TXN_LIMIT):
            self._call("txn", {"success": list(operations[start : start + TXN_LIMIT])})

    def _mod_revision(self, key: bytes) -> int:
        answer = self._call("range", {"key": _encode(key), "keys_only": True})
        kvs = answer.get("kvs", [])
        return int(kvs[0]["mod_revision"]) if kvs else 0

    def _range(self, keys_only: bool) -> Iterator[dict[str, str]]:
        answer = self._call(
            "range",
            {"key": _encode(PREFIX), "range_end": _encode(PREFIX_END), "keys_only": keys_only},
        )
        yield from answer.get("kvs", [])

    def _call(self, verb: str, body: dict[str, object]) -> Any:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", f"/v3/kv/{verb}", json.dumps(body).encode())
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(f"etcd {verb}: {answer.status} {content[:300].decode(errors='replace')}")
        return json.loads(content)


def now() -> str:
    """The present time as the API writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text)
