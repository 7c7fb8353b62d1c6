"""A TCP proxy on loopback that breaks connections on command: cut, refuse, stall, delay, lose.

It forwards bytes, so TLS passes through unchanged: the API server's certificate is valid for
127.0.0.1, where the proxy listens too. Every fault is counted, so that a test can assert that it
injected some.

    async with FaultProxy(api.url) as proxy:
        client = await Client.connect(proxy.kubeconfig(api.kubeconfig, tmp_path))
        proxy.cut()
"""

import asyncio
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml

CHUNK_BYTES = 64 * 1024


class FaultProxy:
    """Forwards to `upstream` (a URL with host and port) until a fault is injected."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        assert parts.hostname
        assert parts.port
        self._scheme = parts.scheme
        self._upstream = (parts.hostname, parts.port)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_refusing = False
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        #: Delay of each chunk of an answer, in seconds.
        self.delay_s = 0.0
        #: Whether each answer resets its connection, so that the outcome of a request is unknown.
        self.is_losing = False
        #: Connections broken by `cut` or `refuse`; broken instead of an answer.
        self.n_cut = 0
        self.n_lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        tasks = list(self._open)
        self._abort_all()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The URL for clients, in place of upstream's."""
        assert self._server is not None
        return f"{self._scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def n_open(self) -> int:
        """Number of open connections."""
        return len(self._open)

    def kubeconfig(self, original: str, folder: Path) -> str:
        """Writes a copy of a kubeconfig that goes through this proxy; returns its path."""
        document = yaml.safe_load(Path(original).read_text())
        for cluster in document["clusters"]:
            cluster["cluster"]["server"] = self.url
        path = folder / f"through-{urlsplit(self.url).port}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        return str(path)

    # -- faults ----------------------------------------------------------------------------------

    def cut(self) -> int:
        """Resets all open connections and accepts new ones; returns how many were open."""
        n_open = len(self._open)
        self.n_cut += n_open
        self._abort_all()
        return n_open

    def refuse(self) -> None:
        """Resets all open connections and every new one."""
        self._is_refusing = True
        self.cut()

    def stall(self) -> None:
        """Forwards nothing and closes nothing, as if the network were lost."""
        self._flowing.clear()

    def restore(self) -> None:
        """Ends refusing and stalling; held bytes of stalled connections are forwarded."""
        self._is_refusing = False
        self._flowing.set()

    def _abort_all(self) -> None:
        for task, writer in list(self._open.items()):
            writer.transport.abort()
            task.cancel()

    # -- forwarding ------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            self.n_cut += 1
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            await self._flowing.wait()
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either side is gone, or a fault reset the connection
        finally:
            del self._open[task]
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, up_writer, is_answer=False))
                pumps.create_task(self._pump(up_reader, writer, is_answer=True))
        except* OSError:
            pass
        finally:
            up_writer.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await source.read(CHUNK_BYTES):
            if is_answer and self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._flowing.wait()
            if is_answer and self.is_losing:
                self.n_lost += 1
                raise ConnectionAbortedError("its answer is lost")
            sink.write(data)
            await sink.drain()
        sink.close()
