"""Forwards TCP connections: `forwarder.py <address> <port> <to address> <to port>`.

Run as a script. The API server listens on loopback only. The forwarder makes it available at an
address that the node's namespace can reach and that is not one of the machine's own.
"""

import asyncio
import contextlib
import socket
import sys

CHUNK = 1 << 16
#: <linux/in.h>: allows binding to an address that no interface has yet.
IP_FREEBIND = 15


async def serve(address: str, port: int, to: tuple[str, int]) -> None:
    """Forward until killed."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await asyncio.open_connection(*to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, back_writer), _pump(back_reader, writer))

    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    door.bind((address, port))
    server = await asyncio.start_server(forward, sock=door)
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), (sys.argv[3], int(sys.argv[4]))))
