"""Connections to an API server shared by users: each with the user's token, not our credentials.

The lender must have no credentials of its own (`check_no_credentials`), so that every request has
the user's identity.
"""

from typing import Any, Final

import aiohttp

from extender.kube.connection import Connection
from extender.kube.errors import Misconfigured

#: Longer texts are no tokens; aiohttp also refuses headers of more than 8 KiB.
_MAX_TOKEN: Final = 16_384


async def check_no_credentials(connection: Connection) -> None:
    """Raise Misconfigured if the connections carry credentials themselves."""
    if await connection.headers() or connection.has_certificate:
        raise Misconfigured(
            "the kubeconfig has credentials, but every request must use the user's own: leave its"
            " user empty, `user: {}`"
        )


def is_token(text: str) -> bool:
    """Whether the text is a valid bearer token in an Authorization header (RFC 6750)."""
    return 0 < len(text) <= _MAX_TOKEN and text.isascii() and all("!" <= c <= "~" for c in text)


class BorrowedConnection(Connection):
    """The connections of `lender`, which keeps them: closing this object closes nothing."""

    def __init__(self, lender: Connection, token: str) -> None:
        self._lender = lender
        self._token = token
        self.generation = 0

    @property
    def session(self) -> aiohttp.ClientSession:
        """The lender's pool."""
        return self._lender.session

    @property
    def host(self) -> str:
        """The server's URL without a trailing slash."""
        return self._lender.host

    def options(self) -> dict[str, Any]:
        """Arguments for aiohttp that every request needs besides its own."""
        return self._lender.options()

    async def headers(self) -> dict[str, str]:
        """Only the user's token."""
        return {"Authorization": f"Bearer {self._token}"}

    async def renew(self, generation: int) -> None:
        """Does nothing: a refused token stays refused."""

    async def close(self) -> None:
        """Does nothing: the connections are the lender's."""
