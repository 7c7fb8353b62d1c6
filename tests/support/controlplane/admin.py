"""Blocking requests as cluster administrator, for the set-up of the control plane.

Tests use `extender.kube` or kubectl; the set-up depends on neither.
"""

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.controlplane.ports import LOOPBACK

#: Deadline of a request: listing 5,000 nodes while they become ready takes 10 s on two busy cores.
TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 5.0
#: Parallel connections that create objects; more do not help on two cores.
N_WRITERS = 4
JSON = {"Content-Type": "application/json"}


class ApiRefusedError(Exception):
    """The API server answered with an error status."""

    def __init__(self, request: str, status: int, body: bytes) -> None:
        super().__init__(f"{request}: {status} {body[:500].decode(errors='replace')}")
        self.status = status


class AdminApi:
    """Requests as administrator; each has its own connection, so they survive restarts."""

    def __init__(self, port: int, authority: Path, certificate: Path, key: Path) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(str(certificate), str(key))

    def is_ready(self) -> bool:
        """Whether /readyz answers ok, that is, all start-up hooks have finished."""
        return not self.why_unready()

    def why_unready(self) -> str:
        """The failing checks of /readyz, or that it does not answer; empty if it is ok."""
        try:
            status, content = self._send("GET", "/readyz?verbose", timeout_s=PROBE_TIMEOUT_S)
        except (OSError, http.client.HTTPException) as error:
            return f"no answer: {error!r}"
        lines = content.decode(errors="replace").splitlines()
        failed = [line for line in lines if not line.startswith("[+]")]
        return "" if status == 200 else f"{status}: {'; '.join(failed)}"

    def get(self, path: str) -> Any:
        """The decoded object or list at `path`; raises ApiRefusedError for an error status."""
        return self._decoded("GET", path, None)

    def has(self, path: str) -> bool:
        """Whether there is an object at `path`."""
        return self._send("GET", path)[0] == 200

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Create an object; raises ApiRefusedError (409) if it exists."""
        return self._decoded("POST", path, body)

    def delete(self, path: str) -> None:
        """Delete the object at `path`, and then what it owns; it need not exist."""
        status, content = self._send("DELETE", path, {"propagationPolicy": "Background"})
        if status >= 300 and status != 404:
            raise ApiRefusedError(f"DELETE {path}", status, content)

    def ensure(self, path: str, body: Mapping[str, object]) -> None:
        """Create an object unless it exists."""
        try:
            self.post(path, body)
        except ApiRefusedError as refusal:
            if refusal.status != 409:
                raise

    def post_all(self, path: str, bodies: Sequence[Mapping[str, object]]) -> None:
        """Create many objects over a few connections; raises the first refusal."""
        with ThreadPoolExecutor(N_WRITERS) as writers:
            parts = [bodies[start::N_WRITERS] for start in range(N_WRITERS)]
            for done in [writers.submit(self._post_part, path, part) for part in parts]:
                done.result()

    def _post_part(self, path: str, bodies: Sequence[Mapping[str, object]]) -> None:
        connection = self._connect()
        try:
            for body in bodies:
                connection.request("POST", path, json.dumps(body).encode(), JSON)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status >= 300:
                    raise ApiRefusedError(f"POST {path}", answer.status, content)
        finally:
            connection.close()

    def _decoded(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        status, content = self._send(method, path, body)
        if status >= 300:
            raise ApiRefusedError(f"{method} {path}", status, content)
        return json.loads(content)

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> tuple[int, bytes]:
        connection = self._connect(timeout_s)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, path, content, JSON)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _connect(self, timeout_s: float = TIMEOUT_S) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            LOOPBACK, self._port, timeout=timeout_s, context=self._tls
        )
