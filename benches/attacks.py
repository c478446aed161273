#!/usr/bin/env python3
"""Measures what hostile clients cost `weir serve`: resident memory, and another client's p99.

attacks.py WEIR [CASE ...] [--rounds N] [--requests N]

Each case runs beside another client that sends paced hits and writes from one process: once before
the attack and once during it. The figures are the growth of VmRSS in /proc, and the p99 during the
attack divided by the p99 before it. The exit code is 1 when the growth exceeds its bound, or the
median of a ratio does. README.md describes the method and its limits.
"""

import argparse
import asyncio
import functools
import hashlib
import multiprocessing
import os
import pathlib
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from beside_nginx import KEY, free_port, until_listening, weir_config
from memory import CACHE, MIB, head, issue, resident, text_of

# The memory that an attack adds, and the p99 of another client by its usual one.
GROWN_MIB_MAX, RATIO_MAX = 64, 2
# The number of the large stored issue, and the size of its body.
LARGE, LARGE_BYTES = 77_777_777, 15 * MIB // 2
READERS, STREAMS, HEADS, BODIES, BODY_STREAMS = 150, 100, 1000, 42, 45
# Bytes of each body that is announced with 10 MiB: in one piece, the head included.
ANNOUNCED, SENT = 10 * MIB, 306
# The time between two requests of the other client.
PACE_SECONDS = 0.002
OTHER_KEY = "weir_other_" + "1" * 32
ISSUES = "/repos/acme/widgets/issues"
WRITES = "/repos/acme/sprockets/issues/1"
CONFIG = f"""
[[clients]]
name = "other"
writes = "bench"
key_sha256 = "{hashlib.sha256(OTHER_KEY.encode()).hexdigest()}"
[writes]
spacing = "0s"
notify_spacing = "0s"
"""


class Origin(asyncio.Protocol):
    """The upstream: a stored issue, the large one, and an answer to every write."""

    def __init__(self, small, large):
        self.received, self.small, self.large = b"", small, large

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            request, rest = self.received.split(b"\r\n\r\n", 1)
            declared = request.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            length = int(declared or 0)
            if len(rest) < length:
                return
            self.received = rest[length:]
            is_large = str(LARGE).encode() in request.split(b"\r\n")[0]
            self.transport.write(self.large if is_large else self.small)


def answers(api):
    """Returns the answers with the stored issue and with the large one."""
    some = b",".join(issue(number, 1023, api) for number in range(1024))
    large = b",".join([some] * 8)[: LARGE_BYTES - 2].ljust(LARGE_BYTES - 2)
    bodies = ((1, issue(1, 2048, api)), (LARGE, b"[" + large + b"]"))
    return [text_of(head(number, body)) + body for number, body in bodies]


def serve_origin(listener):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    small, large = answers(f"http://127.0.0.1:{listener.getsockname()[1]}")

    async def serve():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Origin(small, large), sock=listener)
        await server.serve_forever()

    asyncio.run(serve())


def request_head(method, path, key, *more):
    lines = [f"{method} {path} HTTP/1.1", "Host: weir", f"Authorization: Bearer {key}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def exchange(connection, request, received):
    """Sends a request, and reads its whole answer into `received`."""
    connection.sendall(request)
    total = connection.recv_into(received)
    while b"\r\n\r\n" not in received[:total]:
        total += connection.recv_into(memoryview(received)[total:])
    text, _, _ = bytes(received[:total]).partition(b"\r\n\r\n")
    if not text.startswith(b"HTTP/1.1 20"):
        raise SystemExit(f"the other client got {bytes(received[:total])!r}")
    length = int(text.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while total < len(text) + 4 + length:
        total += connection.recv_into(memoryview(received)[total:])


def measure(port, count):
    """Returns the p99 in ms of the other client's hits and of its writes, `count` of each."""
    hit = request_head("GET", f"{ISSUES}/1", OTHER_KEY, "Accept: application/vnd.github+json")
    body = b'{"title":"other"}'
    write = request_head("PATCH", WRITES, OTHER_KEY, f"Content-Length: {len(body)}") + body
    received, times, due = bytearray(64 * 1024), ([], []), time.perf_counter()
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in times]
    for _ in range(count):
        for connection, request, took in zip(connections, (hit, write), times):
            due = max(due + PACE_SECONDS, time.perf_counter() - PACE_SECONDS)
            time.sleep(max(0, due - time.perf_counter()))
            begun = time.perf_counter()
            exchange(connection, request, received)
            took.append(time.perf_counter() - begun)
    return [sorted(took)[len(took) * 99 // 100] * 1000 for took in times]


def connect(port):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    connection.connect(("127.0.0.1", port))
    return connection


def slow_readers(port, kind):
    """Asks for the large answer on many connections, and reads the begin of its head alone."""
    more = {"range": ["Range: bytes=1000-"], "session": ["TE: trailers"]}
    more |= {"gzip": ["Accept-Encoding: gzip"]}
    readers = [connect(port) for _ in range(READERS)]
    for index, reader in enumerate(readers):
        asked = request_head("GET", f"{ISSUES}/{LARGE}", KEY, *more.get(kind, []))
        # A form of its own for each: the gateway's address in it is the client's.
        host = f"Host: weir-{index}".encode() if kind == "gzip" else b"Host: weir"
        reader.sendall(asked.replace(b"Host: weir", host))
    begins = {reader.recv(12)[:11] for reader in readers}
    if begins != {b"HTTP/1.1 20"}:
        raise SystemExit(f"not every reader has an answer: {begins}")
    return readers


def frame(kind, flags, stream, payload):
    length = len(payload).to_bytes(3, "big")
    return length + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """A header field as a literal that is not indexed (RFC 7541 §6.2.2); both are short."""
    texts = (name.encode(), value.encode())
    return b"\0" + b"".join(bytes([len(text)]) + text for text in texts)


def http2(port, settings, streams, flags, method, path, *more):
    """Begins an HTTP/2 connection with requests on `streams` streams."""
    connection = connect(port)
    fields = [(":method", method), (":scheme", "http"), (":authority", "weir"), (":path", path)]
    fields += [("authorization", f"Bearer {KEY}"), *more]
    headers = b"".join(literal(name, value) for name, value in fields)
    frames = (frame(1, flags, 1 + 2 * index, headers) for index in range(streams))
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, settings)
    connection.sendall(begin + b"".join(frames))
    return connection


def zero_windows(port):
    """Opens streams whose window is zero on one HTTP/2 connection, and reads their heads."""
    no_window = (4).to_bytes(2, "big") + bytes(4)
    connection = http2(port, no_window, STREAMS, 5, "GET", f"{ISSUES}/{LARGE}")
    heads, received = 0, b""
    while heads < STREAMS:
        received += (read := connection.recv(65536))
        if not read:
            raise SystemExit("the connection was closed")
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
            heads += received[3] == 1
            received = received[9 + int.from_bytes(received[:3], "big") :]
    return [connection]


def unfinished_heads(port, length):
    """Holds connections that each send a head of `length` bytes without an end."""
    begin = b"GET /repos/acme/widgets HTTP/1.1\r\nHost: weir\r\nX-Fill: "
    rest = {}
    with selectors.DefaultSelector() as selector:
        for _ in range(HEADS):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setblocking(False)
            rest[connection] = memoryview(begin + b"x" * (length - len(begin)))
            selector.register(connection, selectors.EVENT_WRITE)
        while selector.get_map():
            for key, _ in selector.select():
                try:
                    sent = key.fileobj.send(rest[key.fileobj][: 64 * 1024])
                except OSError:
                    sent = length
                rest[key.fileobj] = rest[key.fileobj][sent:]
                if not rest[key.fileobj]:
                    selector.unregister(key.fileobj)
    return list(rest)


def announced_bodies(port, method):
    """Announces bodies on as many connections, and sends a few bytes of each."""
    asked = request_head(method, ISSUES, KEY, f"Content-Length: {ANNOUNCED}")
    connections = [connect(port) for _ in range(BODIES)]
    for connection in connections:
        connection.sendall(asked.ljust(SENT, b"x"))
    return connections


def announced_streams(port):
    """Announces bodies on one HTTP/2 connection, and sends nothing of them."""
    length = ("content-length", str(ANNOUNCED))
    return [http2(port, b"", BODY_STREAMS, 4, "POST", ISSUES, length)]


# The attacks by name: a function that returns the connections to keep, and its description.
CASES = {
    kind: (functools.partial(slow_readers, kind=kind), f"{READERS} slow readers of 7.5 MiB, {kind}")
    for kind in ("hits", "session", "range", "gzip")
} | {
    "windows": (zero_windows, f"{STREAMS} HTTP/2 streams without a window"),
    "heads": (functools.partial(unfinished_heads, length=1_000_000), f"{HEADS} heads of 1 MB"),
    "waiting-heads": (
        functools.partial(unfinished_heads, length=32 * 1024 - 1),
        f"{HEADS} heads a byte below the limit",
    ),
    "bodies": (
        functools.partial(announced_bodies, method="POST"),
        f"{BODIES} announced bodies of 10 MiB",
    ),
    "get-bodies": (
        functools.partial(announced_bodies, method="GET"),
        f"{BODIES} GETs that announce 10 MiB",
    ),
    "stream-bodies": (announced_streams, f"{BODY_STREAMS} announced bodies on HTTP/2 streams"),
}


def attack(case, port, under_way, may_end):
    # An attacker has a machine of its own; here it must not take the time of gateway and client.
    os.nice(19)
    connections = CASES[case][0](port)
    under_way.set()
    may_end.wait()
    for connection in connections:
        connection.close()


def watched(weir, port, count):
    """Returns the p99s of the other client, and the peak of the gateway's memory meanwhile."""
    results, peak = multiprocessing.Queue(), 0
    client = multiprocessing.Process(target=lambda: results.put(measure(port, count)))
    client.start()
    while client.is_alive():
        peak = max(peak, resident(weir.pid))
        time.sleep(0.02)
    client.join()
    if client.exitcode != 0:
        sys.exit("the other client was not served")
    return results.get(), peak


def one_round(weir, port, case, count):
    """Returns the p99s before and during an attack, and the peak of memory."""
    before, _ = watched(weir, port, count)
    under_way, may_end = multiprocessing.Event(), multiprocessing.Event()
    attacker = multiprocessing.Process(target=attack, args=(case, port, under_way, may_end))
    attacker.start()
    during, peak = watched(weir, port, count)
    if not under_way.wait(60):
        sys.exit(f"{case}: the attack did not get under way")
    peak = max(peak, resident(weir.pid))
    may_end.set()
    attacker.join()
    return before, during, peak


def run_case(weir, port, case, start, options):
    rounds = [one_round(weir, port, case, options.requests) for _ in range(options.rounds)]
    grown = (max(peak for _, _, peak in rounds) - start) / MIB
    print(f"{CASES[case][1]}: +{grown:.1f} MiB at most", flush=True)
    is_slow = False
    for index, name in enumerate(("hits", "writes")):
        pairs = [(before[index], during[index]) for before, during, _ in rounds]
        ratios = sorted(during / before for before, during in pairs)
        middle = statistics.median(ratios)
        is_slow |= middle > RATIO_MAX
        shown = ", ".join(f"{before:.2f} → {during:.2f}" for before, during in pairs)
        print(
            f"  p99 of {name}: {middle:.2f} times the usual one, {ratios[0]:.2f} to"
            f" {ratios[-1]:.2f} ({shown} ms)",
            flush=True,
        )
    return case if is_slow or grown > GROWN_MIB_MAX else None


def run(options, folder):
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    upstream = multiprocessing.Process(target=serve_origin, args=(listener,), daemon=True)
    upstream.start()
    port = free_port()
    # The default size: a larger cache may keep more compressed forms.
    cache = CACHE.replace("4GiB", "256MiB")
    config = weir_config(listener.getsockname()[1], port, "rfc9111", cache)
    config = config.replace('name = "bench"\nkey', 'name = "bench"\nwrites = "bench"\nkey')
    (folder / "weir.toml").write_text(config + CONFIG)
    command = [options.weir, "serve", "--config", f"{folder}/weir.toml"]
    weir = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until_listening(weir, port)
        # Warm-up: both answers are stored, and what the process allocates once is there.
        received = bytearray(LARGE_BYTES + MIB)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for number in (LARGE, LARGE, 1):
                exchange(connection, request_head("GET", f"{ISSUES}/{number}", KEY), received)
        watched(weir, port, 500)
        # Memory that a case leaves behind must not hide the growth of the next.
        start = resident(weir.pid)
        faults = [run_case(weir, port, case, start, options) for case in options.cases or CASES]
        return [fault for fault in faults if fault]
    finally:
        weir.terminate()
        weir.wait()
        upstream.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="gateway program, built with --profile dist")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each case")
    parser.add_argument("--requests", type=int, default=2000, help="hits and writes of each one")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"unknown cases: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        faults = run(options, pathlib.Path(folder))
    for fault in faults:
        print(f"FAILED: {fault}: above {GROWN_MIB_MAX} MiB, or slower than {RATIO_MAX} times")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
