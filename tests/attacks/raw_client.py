"""A client of the API server: requests of one user over one persistent connection.

It sends attempts unchanged, also those that kubectl or a client library would refuse.
"""

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

TIMEOUT_S: Final = 30.0
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
#: A list of objects without their specs.
NAMES: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(slots=True, frozen=True)
class Answer:
    """An answer; `body` is the decoded JSON, or the text if it is no JSON."""

    status: int
    body: Any

    @property
    def is_stored(self) -> bool:
        """Whether the API server carried out the request."""
        return self.status < 300

    @property
    def words(self) -> str:
        """The message of a refusal."""
        if isinstance(self.body, dict):
            return str(self.body.get("message", ""))
        return str(self.body)


class RawClient:
    """Requests with the credentials of a kubeconfig, or without any."""

    def __init__(self, kubeconfig: str, *, is_anonymous: bool = False) -> None:
        config = json.loads(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._headers: dict[str, str] = {}
        if "token" in user and not is_anonymous:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        elif not is_anonymous:
            self._show_certificate(Path(kubeconfig), user)
        address = urlsplit(cluster["server"])
        self._host, self._port = address.hostname or "", address.port or 443
        self._connection: http.client.HTTPSConnection | None = None

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        media: str = JSON,
        as_user: str = "",
        *,
        accept: str = JSON,
    ) -> Answer:
        """Send one request; bytes are sent unchanged. Opens a new connection if it was closed.

        `as_user` is the user to impersonate.
        """
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = self._headers | {"Content-Type": media, "Accept": accept}
        if as_user:
            headers["Impersonate-User"] = as_user
        try:
            return self._send(method, path, content, headers)
        except (OSError, http.client.HTTPException):
            self.close()
            return self._send(method, path, content, headers)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Answer:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=TIMEOUT_S, context=self._tls
            )
        self._connection.request(method, path, content, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        try:
            return Answer(answer.status, json.loads(text))
        except ValueError:
            return Answer(answer.status, text.decode(errors="replace"))

    def _show_certificate(self, kubeconfig: Path, user: dict[str, str]) -> None:
        files = []
        for key, suffix in (("client-certificate-data", "crt"), ("client-key-data", "key")):
            file = kubeconfig.with_suffix(f".{suffix}")
            file.write_bytes(base64.b64decode(user[key]))
            files.append(file)
        self._tls.load_cert_chain(files[0], files[1])
        for file in files:
            file.unlink()
