"""etcd behind the API server: compaction, and restoring a remembered content.

Emptying a cluster through the API waits for finalizers and grace periods. Deleting a key in etcd
takes a third of a millisecond, and watchers of the API server see an ordinary deletion. Lists of
the latest state wait until the watch cache has caught up, so a fresh cluster never shows old
objects.

Every key is written in its own revision, as by the API server. A broken watch continues after the
last revision that it saw. If several objects shared a revision, it could miss some, and a
controller would act on deleted pods and Jobs until its restart.
"""

import base64
import contextlib
import datetime
import http.client
import itertools
import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.support.controlplane.ports import LOOPBACK
from tests.support.controlplane.process import ControlPlaneError

PREFIX = b"/registry/"
PREFIX_END = b"/registry0"
#: Parallel requests to etcd.
AT_ONCE = 4
TIMEOUT_S = 60.0
#: Longest time of a reset. Running controllers may add objects meanwhile, such as an event for each
#: of 500 nodes, so it is repeated until nothing has changed, from the third time on after a pause
#: that doubles.
RESET_S = 60.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.6
#: Namespaces are deleted first, so that controllers cannot add to them, and pods last, when
#: controllers know that their owners are deleted.
FIRST_TO_GO = b"/registry/namespaces/"
LAST_TO_GO = b"/registry/pods/"
#: Keys that running components write all the time; they are kept as they are. The tokens of running
#: controllers belong to their service accounts.
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
    key: bytes
    value: bytes
    mod_revision: int


class Store:
    """The etcd of one control plane, through its JSON gateway."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._baseline: dict[bytes, _Entry] = {}

    def is_ready(self) -> bool:
        """Whether etcd has a leader and answers."""
        connection = self._connect()
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
        """Compact all revisions before the newest; returns that revision."""
        revision = self.revision()
        self._call("compaction", {"revision": str(revision), "physical": True})
        return revision

    def bump(self, revision: int) -> None:
        """Write a key that belongs to no API type until the newest revision is at least this."""
        newest = self.revision()
        while newest < revision:
            answer = self._call("put", {"key": _encode(b"/bump"), "value": ""})
            newest = int(answer["header"]["revision"])

    def remember(self) -> int:
        """Take the present content as the baseline for `reset`; returns the number of keys."""
        answer = self._range(keys_only=False)
        entries = [
            _Entry(_decode(each["key"]), _decode(each.get("value", "")), int(each["mod_revision"]))
            for each in answer
        ]
        self._baseline = {entry.key: entry for entry in entries}
        return len(self._baseline)

    def reset(self) -> int:
        """Restore the baseline; returns how many objects differed.

        Costs one listing of the keys and one small request per differing object.
        """
        n_changes = 0
        deadline = time.monotonic() + RESET_S
        for number in itertools.count():
            if number > 1:
                time.sleep(min(FIRST_PAUSE_S * 2 ** (number - 2), LONGEST_PAUSE_S))
            present = {
                _decode(each["key"]): int(each["mod_revision"]) for each in self._range(True)
            }
            n_changed = self._delete_leftovers(present) + self._restore(present)
            if not n_changed:
                return n_changes
            n_changes += n_changed
            if time.monotonic() > deadline:
                break
        raise ControlPlaneError(
            f"the store is not as remembered after {RESET_S:.0f} s: something still writes"
            f" {self._differing(present)}"
        )

    def put(self, folder: str, objects: Sequence[Mapping[str, Any]]) -> None:
        """Write API objects directly to etcd, below /registry/`folder`/ (`minions`, `pods`, ...).

        Writes thousands a second, for benchmarks that need a large cluster. It bypasses admission
        and validation, so the objects must be complete, except for UID and creation time. The API
        server reads the JSON, and watchers see creations.
        """
        bodies: list[dict[str, object]] = []
        for each in objects:
            metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": now()} | each["metadata"]
            place = (folder, metadata.get("namespace", ""), metadata["name"])
            key = PREFIX + "/".join(part for part in place if part).encode()
            value = json.dumps({**each, "metadata": metadata}).encode()
            bodies.append({"key": _encode(key), "value": _encode(value)})
        self._each("put", bodies)

    def _differing(self, present: Mapping[bytes, int]) -> list[str]:
        """The first few keys that differ from the baseline."""
        kept = {key: entry.mod_revision for key, entry in self._baseline.items()}
        keys = sorted({key for key, _ in present.items() ^ kept.items()})
        found = [key for key in keys if not key.startswith(ALWAYS_KEPT)]
        return [key.decode(errors="replace") for key in found[:5]]

    def _delete_leftovers(self, present: Mapping[bytes, int]) -> int:
        """Delete objects added since `remember`; returns how many."""
        leftovers = [
            key for key in present if key not in self._baseline and not key.startswith(ALWAYS_KEPT)
        ]
        for _, turn in itertools.groupby(sorted(leftovers, key=_turn_of), key=_turn_of):
            self._each("deleterange", [{"key": _encode(key)} for key in turn])
        return len(leftovers)

    def _restore(self, present: Mapping[bytes, int]) -> int:
        """Restore objects changed or deleted since `remember`; returns how many."""
        changed = [
            entry
            for key, entry in self._baseline.items()
            if not key.startswith(ALWAYS_KEPT) and present.get(key) != entry.mod_revision
        ]
        written = self._each(
            "put",
            [{"key": _encode(entry.key), "value": _encode(entry.value)} for entry in changed],
        )
        for entry, answer in zip(changed, written, strict=True):
            entry.mod_revision = int(answer["header"]["revision"])
        return len(changed)

    def _each(self, verb: str, bodies: Sequence[dict[str, object]]) -> list[Any]:
        """The answers to requests with a revision each; they are sent in any order."""

        def send(part: Sequence[dict[str, object]]) -> list[Any]:
            with contextlib.closing(self._connect()) as connection:
                return [_post(connection, verb, body) for body in part]

        size = max(1, math.ceil(len(bodies) / AT_ONCE))
        parts = [bodies[start : start + size] for start in range(0, len(bodies), size)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [answer for part in pool.map(send, parts) for answer in part]

    def _range(self, keys_only: bool) -> Iterator[dict[str, str]]:
        answer = self._call(
            "range",
            {"key": _encode(PREFIX), "range_end": _encode(PREFIX_END), "keys_only": keys_only},
        )
        yield from answer.get("kvs", [])

    def _call(self, verb: str, body: dict[str, object]) -> Any:
        with contextlib.closing(self._connect()) as connection:
            return _post(connection, verb, body)

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(LOOPBACK, self._port, timeout=TIMEOUT_S)


def now() -> str:
    """The present time in the API's format."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _post(connection: http.client.HTTPConnection, verb: str, body: dict[str, object]) -> Any:
    connection.request("POST", f"/v3/kv/{verb}", json.dumps(body).encode())
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise OSError(f"etcd {verb}: {answer.status} {content[:300].decode(errors='replace')}")
    return json.loads(content)


def _turn_of(key: bytes) -> int:
    """The position of a key in the order of deletion, from 0."""
    return 0 if key.startswith(FIRST_TO_GO) else 2 if key.startswith(LAST_TO_GO) else 1


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text)
