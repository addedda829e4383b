"""The API server's side of a port-forward: one port of one pod over a WebSocket, as `v4.channel.k8s.io` says it.

Each binary frame begins with its channel: 0 is the data, 1 tells errors; both begin with the port, two bytes.
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go
"""

import hashlib
import socket
import struct
import threading
from base64 import b64encode
from contextlib import suppress

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 2, 8


def serve(handler, port, target):
    """Upgrade the request of a handler, and carry bytes between it and a port of this machine until either closes."""
    key = handler.headers["Sec-WebSocket-Key"].encode()
    accept = b64encode(hashlib.sha1(key + _MAGIC).digest()).decode()
    handler.close_connection = True
    handler.wfile.write(
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
        ).encode()
    )
    for channel in (0, 1):
        handler.wfile.write(_frame(bytes([channel]) + struct.pack("<H", port)))
    with socket.create_connection(("127.0.0.1", target)) as pod:
        threading.Thread(target=_answers, args=(pod, handler.wfile), daemon=True).start()
        with suppress(OSError, EOFError):
            while (content := _received(handler.rfile)) is not None:
                pod.sendall(content[1:])


def _answers(pod, to):
    with suppress(OSError, ValueError):
        while content := pod.recv(65536):
            to.write(_frame(b"\x00" + content))


def _frame(content):
    return bytes([0x80 | _BINARY, 127]) + struct.pack(">Q", len(content)) + content


def _received(stream):
    """The content of the next frame, which is masked; None once the other side closes."""
    first, second = _exactly(stream, 2)
    if first & 0x0F == _CLOSE:
        return None
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(_exactly(stream, 2 if size == 126 else 8), "big")
    mask, content = _exactly(stream, 4), _exactly(stream, size)
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))


def _exactly(stream, size):
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
