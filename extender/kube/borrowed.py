"""The connections to an API server, used for one user: with a token in place of our credentials.

The lender must have no credentials of its own (`check_no_credentials`), so that nothing is ever
asked under another identity than the user's.
"""

from typing import Any, Final

import aiohttp

from extender.kube.connection import Connection
from extender.kube.errors import Misconfigured

#: Longer ones are no tokens; aiohttp refuses heads of more than 8 KiB, too.
_MAX_TOKEN: Final = 16_384


async def check_no_credentials(connection: Connection) -> None:
    """Raises Misconfigured where the connections prove an identity by themselves."""
    if await connection.headers() or connection.has_certificate:
        raise Misconfigured(
            "the kubeconfig has credentials, and every question is to be asked under the user's"
            " own: let its user be empty, `user: {}`"
        )


def is_token(text: str) -> bool:
    """Whether the text may stand in an Authorization header, as RFC 6750 has it."""
    return 0 < len(text) <= _MAX_TOKEN and text.isascii() and all("!" <= c <= "~" for c in text)


class BorrowedConnection(Connection):
    """The connections of `lender`, which stay its own: closing this one closes nothing."""

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
        """The server's URL without a slash at its end."""
        return self._lender.host

    def options(self) -> dict[str, Any]:
        """What every request must pass on to aiohttp besides its own arguments."""
        return self._lender.options()

    async def headers(self) -> dict[str, str]:
        """The user's token, and nothing else."""
        return {"Authorization": f"Bearer {self._token}"}

    async def renew(self, generation: int) -> None:
        """There is nothing to read again: a token that is refused stays refused."""

    async def close(self) -> None:
        """Nothing: the connections are the lender's."""
