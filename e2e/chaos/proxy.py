"""A TCP proxy that makes connections worse: `python -m chaos.proxy MODE SEED ADDRESS PORT=PROXY_PORT...`.

It runs on the host of ADDRESS and takes what is redirected to its ports. `late`: each connection is given a delay of
its own, so that what was sent on two of them arrives in another order. `half-open`: connections are taken, and nothing
ever comes through. It says "ready" when it listens, and ends with its standard input.
"""

import asyncio
import contextlib
import random
import sys

DELAY_S = (0.005, 0.400)
CHUNK_BYTES = 64 * 1024
WAITING_MAX = 256  # chunks on their way, of each direction


async def main(mode: str, seed: str, address: str, *ports: str) -> None:
    """Serves until standard input ends."""
    draw = random.Random(seed)
    for pair in ports:
        port, own = map(int, pair.split("="))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port) -> None:
            if mode == "half-open":
                await asyncio.Event().wait()
            await _pass_late(reader, writer, address, port, draw.uniform(*DELAY_S))

        await asyncio.start_server(serve, address, own, limit=CHUNK_BYTES)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


async def _pass_late(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int, delay_s: float
) -> None:
    try:
        there, back = await asyncio.open_connection(address, port, limit=CHUNK_BYTES)
    except OSError:
        writer.close()
        return
    ways = [asyncio.create_task(_pump(reader, back, delay_s)), asyncio.create_task(_pump(there, writer, delay_s))]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    for end in (writer, back):
        end.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay_s: float) -> None:
    """Until the source ends: everything comes *delay_s* later than it was sent, in its order."""
    now = asyncio.get_running_loop().time
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING_MAX)

    async def deliver() -> None:
        while True:
            due, chunk = await waiting.get()
            await asyncio.sleep(due - now())
            if not chunk:
                return
            sink.write(chunk)
            await sink.drain()

    async def take() -> None:
        while chunk := await source.read(CHUNK_BYTES):
            await waiting.put((now() + delay_s, chunk))
        await waiting.put((now() + delay_s, b""))

    with contextlib.suppress(OSError):
        await asyncio.gather(take(), deliver())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
