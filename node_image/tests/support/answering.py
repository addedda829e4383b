"""A node that answers requests to join as a test says, over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from walrus_node.metadata.proof import Acceptor
from walrus_node.metadata.wire import GREETING_BYTES_MAX, BadFrameError, FrameReader, encode_frame, encode_greeting
from walrus_node.secret import Secrets


@asynccontextmanager
async def answering(
    answer: dict[str, Any] | Callable[[], dict[str, Any]], secrets: Secrets | None = None
) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Answers each request so, with the proof; yields its address and the requests."""
    asked: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames, proof = FrameReader(GREETING_BYTES_MAX), Acceptor(secrets or Secrets(None))
        try:
            while data := await reader.read(65_536):
                for payload in frames.feed(data):
                    step = proof.hear(payload)
                    if isinstance(step, bytes):
                        writer.write(encode_frame(step))
                        continue
                    asked.append(step)
                    said = answer() if callable(answer) else answer
                    writer.writelines(map(encode_frame, proof.answer(said)))
                    writer.close()
                    return
        except BadFrameError as error:
            writer.write(encode_greeting({"refused": str(error)}))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
