#!/usr/bin/env python3
"""Measures what hostile clients cost `weir serve`: memory, CPU, and another client's p99.

attacks.py WEIR [CASE ...] [--rounds N] [--requests N] [--neighbour] [--settled]

Each case runs beside another client that sends paced hits and writes from one process: once before
the attack and once from its begin on, or from some seconds later. The figures are the growth of
VmRSS in /proc, and the p99 during the attack divided by the p99 before it. The exit code is 1 when
the growth exceeds its bound, or the median of a ratio does. README.md describes the method and its
limits.
"""

import argparse
import asyncio
import contextlib
import functools
import hashlib
import itertools
import multiprocessing
import os
import pathlib
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from beside_nginx import KEY, free_port, until_listening, weir_config
from memory import CACHE, MIB, head, issue, resident, text_of

# The memory that an attack adds, and the p99 of another client by its usual one.
GROWN_MIB_MAX, RATIO_MAX = 64, 2
# The number of the large stored issue, and the size of its body.
LARGE, LARGE_BYTES = 77_777_777, 15 * MIB // 2
READERS, STREAMS, HEADS, BODIES, BODY_STREAMS = 150, 100, 1000, 42, 45
# Silent connections, and the processes that hold them: each has its own limit of descriptors.
SILENT, HOLDERS = 20_000, 4
# The time after which a holder opens the next connection again, of those that the gateway has
# ended: each comes back by itself.
REOPENED_SECONDS = 0.0025
# Connections that flood at the same time, and the longest life of each in seconds.
FLOODERS, FLOOD_SECONDS_MAX = 4, 1
# Bytes of each body that is announced with 10 MiB: in one piece, the head included.
ANNOUNCED, SENT = 10 * MIB, 306
# The time between two requests of the other client.
PACE_SECONDS = 0.002
# The time of an attack before `--settled` measures: connections have come and gone once.
SETTLED_SECONDS = 3
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


def new_connection(port):
    """Connects, in a way that leaves no port waiting at the end."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return connection


def measure(port, count):
    """Returns the p99 in ms of the other client's hits, of its writes, and of its hits through new
    connections, `count` of each."""
    hit = request_head("GET", f"{ISSUES}/1", OTHER_KEY, "Accept: application/vnd.github+json")
    body = b'{"title":"other"}'
    write = request_head("PATCH", WRITES, OTHER_KEY, f"Content-Length: {len(body)}") + body
    received, times, due = bytearray(64 * 1024), ([], [], []), time.perf_counter()
    kept = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    for _ in range(count):
        for connection, request, took in zip([*kept, None], (hit, write, hit), times):
            due = max(due + PACE_SECONDS, time.perf_counter() - PACE_SECONDS)
            time.sleep(max(0, due - time.perf_counter()))
            begun = time.perf_counter()
            with contextlib.ExitStack() as ends:
                used = connection or ends.enter_context(new_connection(port))
                exchange(used, request, received)
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


def silent_connections(port, holder, under_way, may_end):
    """Holds a part of the silent connections, and opens those again that the gateway ends."""
    own, ended = set(), selectors.DefaultSelector()
    while not may_end.is_set():
        for key, _ in ended.select(0):
            ended.unregister(key.fileobj)
            own.discard(key.fileobj)
            key.fileobj.close()
        more = SILENT // HOLDERS - len(own)
        for _ in range(min(more, 1) if under_way.is_set() else more):
            connection = socket.socket()
            connection.setblocking(False)
            # One address has fewer ports than there are connections.
            connection.bind((f"127.0.1.{holder + 1}", 0))
            connection.connect_ex(("127.0.0.1", port))
            own.add(connection)
            ended.register(connection, selectors.EVENT_READ)
        under_way.set()
        time.sleep(REOPENED_SECONDS)


def many_connections(port, under_way, may_end):
    """Opens far more connections than `listen.connections_max`, from several processes."""
    begun = [multiprocessing.Event() for _ in range(HOLDERS)]
    holders = [
        multiprocessing.Process(target=silent_connections, args=(port, index, begin, may_end))
        for index, begin in enumerate(begun)
    ]
    for holder in holders:
        holder.start()
    for begin in begun:
        begin.wait()
    under_way.set()
    for holder in holders:
        holder.join()


def rapid_resets():
    """The frames of requests that are cancelled at once, without an end."""
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", "weir")]
    fields += [(":path", f"{ISSUES}/1"), ("authorization", f"Bearer {KEY}")]
    headers = b"".join(literal(name, value) for name, value in fields)
    for first in itertools.count(1, 400):
        streams = range(first, first + 400, 2)
        yield b"".join(
            frame(1, 5, stream, headers) + frame(3, 0, stream, (8).to_bytes(4, "big"))
            for stream in streams
        )


def repeated_headers():
    """The frames of a stream that the gateway resets for a second head, and further ones on it."""
    for stream in range(1, 2**30, 2):
        fields = [(":method", "POST"), (":scheme", "http"), (":authority", "weir"), (":path", ISSUES)]
        yield frame(1, 4, stream, b"".join(literal(name, value) for name, value in fields))
        for _ in range(100):
            yield frame(1, 4, stream, b"") * 1000


def flood(port, frames, under_way, may_end):
    """Floods over some connections, each of which begins again when the gateway ends it."""
    lives = []

    def one(seconds):
        began = time.perf_counter()
        with new_connection(port) as connection:
            connection.settimeout(seconds)
            try:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
                for some in frames():
                    connection.sendall(some)
            except OSError:
                pass
        return time.perf_counter() - began

    def again():
        while not may_end.is_set():
            lives.append(one(10))

    threads = [threading.Thread(target=again) for _ in range(FLOODERS)]
    for thread in threads:
        thread.start()
    under_way.set()
    for thread in threads:
        thread.join()
    longest = max(lives)
    print(f"  {len(lives)} floods, the longest of {longest * 1000:.0f} ms", flush=True)
    if longest > FLOOD_SECONDS_MAX:
        sys.exit("a flood went on for too long")


def same_frames(*of):
    return lambda: itertools.repeat(frame(*of) * 1000)


# Attacks that go on until they may end, by name.
GOING_ON = {
    "connections": (many_connections, f"{SILENT:,} silent connections that come again"),
    "pings": (
        functools.partial(flood, frames=same_frames(6, 0, 0, bytes(8))),
        f"{FLOODERS} floods of PING",
    ),
    "settings": (
        functools.partial(flood, frames=same_frames(4, 0, 0, b"")),
        f"{FLOODERS} floods of SETTINGS",
    ),
    "updates": (
        functools.partial(flood, frames=same_frames(8, 0, 0, (1).to_bytes(4, "big"))),
        f"{FLOODERS} floods of WINDOW_UPDATE",
    ),
    "headers": (functools.partial(flood, frames=repeated_headers), f"{FLOODERS} floods of HEADERS"),
    "resets": (functools.partial(flood, frames=rapid_resets), f"{FLOODERS} rapid resets"),
}

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
    # An attacker has a machine of its own; here it must not take the time of gateway and client. A
    # process that is only nice keeps a core for milliseconds that another one needs.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if case in GOING_ON:
        GOING_ON[case][0](port, under_way=under_way, may_end=may_end)
        return
    connections = CASES[case][0](port)
    under_way.set()
    may_end.wait()
    for connection in connections:
        connection.close()


def cpu_seconds(process):
    """CPU time of a process since its start."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched(weir, port, count):
    """Returns the p99s of the other client, and the gateway's peak of memory and share of a core
    meanwhile."""
    results, peak = multiprocessing.Queue(), 0
    begun, before = time.perf_counter(), cpu_seconds(weir.pid)
    client = multiprocessing.Process(target=lambda: results.put(measure(port, count)))
    client.start()
    while client.is_alive():
        peak = max(peak, resident(weir.pid))
        time.sleep(0.02)
    client.join()
    if client.exitcode != 0:
        sys.exit("the other client was not served")
    share = (cpu_seconds(weir.pid) - before) / (time.perf_counter() - begun)
    return results.get(), peak, share


def under_attack(weir, port, case, attacked, options):
    """Returns the same as `watched`, while an attack goes to the port `attacked`."""
    under_way, may_end = multiprocessing.Event(), multiprocessing.Event()
    attacker = multiprocessing.Process(target=attack, args=(case, attacked, under_way, may_end))
    attacker.start()
    if options.settled and under_way.wait(60):
        time.sleep(SETTLED_SECONDS)
    during, peak, share = watched(weir, port, options.requests)
    if not under_way.wait(60):
        sys.exit(f"{case}: the attack did not get under way")
    peak = max(peak, resident(weir.pid))
    may_end.set()
    attacker.join()
    if attacker.exitcode != 0:
        sys.exit(f"{case}: the attack failed, or went on")
    return during, peak, share


def one_round(weir, port, case, options):
    """Returns the p99s before and during an attack, the peak of memory, and the shares of a core."""
    before, _, usual = watched(weir, port, options.requests)
    during, peak, share = under_attack(weir, port, case, port, options)
    return before, during, peak, (usual, share)


def machine_share(weir, port, case, neighbour, options):
    """Returns how many times slower each kind gets by the same attack on another gateway."""
    before, _, _ = watched(weir, port, options.requests)
    during, _, _ = under_attack(weir, port, case, neighbour, options)
    shown = ", ".join(f"{usual:.2f} → {now:.2f}" for usual, now in zip(before, during))
    print(f"  attack on a neighbour: hits, writes, new connections {shown} ms", flush=True)
    return [now / usual for usual, now in zip(before, during)]


def run_case(weir, port, case, start, options, neighbour):
    rounds, shares = [], []
    for _ in range(options.rounds):
        rounds.append(one_round(weir, port, case, options))
        if neighbour:
            shares.append(machine_share(weir, port, case, neighbour, options))
    grown = (max(peak for _, _, peak, _ in rounds) - start) / MIB
    cores = ", ".join(f"{before:.0%} → {during:.0%}" for _, _, _, (before, during) in rounds)
    print(f"{(CASES | GOING_ON)[case][1]}: +{grown:.1f} MiB at most", flush=True)
    print(f"  of a core: {cores}", flush=True)
    is_slow = False
    for index, name in enumerate(("hits", "writes", "hits through new connections")):
        pairs = [(before[index], during[index]) for before, during, _, _ in rounds]
        ratios = sorted(during / before for before, during in pairs)
        middle = statistics.median(ratios)
        # Shown beside the ratio, which it does not excuse.
        machine = statistics.median(share[index] for share in shares) if shares else 0
        is_slow |= middle > RATIO_MAX
        shown = ", ".join(f"{before:.2f} → {during:.2f}" for before, during in pairs)
        print(
            f"  p99 of {name}: {middle:.2f} times the usual one, {ratios[0]:.2f} to"
            f" {ratios[-1]:.2f} ({shown} ms)"
            + (f"; by the machine alone {machine:.2f} times" if shares else ""),
            flush=True,
        )
    return case if is_slow or grown > GROWN_MIB_MAX else None


def start_weir(program, folder, origin):
    """Returns the gateway and its port."""
    folder.mkdir()
    port = free_port()
    # The default size: a larger cache may keep more compressed forms.
    cache = CACHE.replace("4GiB", "256MiB")
    config = weir_config(origin, port, "rfc9111", cache)
    config = config.replace('name = "bench"\nkey', 'name = "bench"\nwrites = "bench"\nkey')
    (folder / "weir.toml").write_text(config + CONFIG)
    command = [program, "serve", "--config", f"{folder}/weir.toml"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet), port


def run(options, folder):
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    upstream = multiprocessing.Process(target=serve_origin, args=(listener,), daemon=True)
    upstream.start()
    origin = listener.getsockname()[1]
    weir, port = start_weir(options.weir, folder / "attacked", origin)
    neighbour = None
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
        cases = options.cases or [*CASES, *GOING_ON]
        other = None
        if options.neighbour:
            neighbour, other = start_weir(options.weir, folder / "neighbour", origin)
            until_listening(neighbour, other)
        faults = [run_case(weir, port, case, start, options, other) for case in cases]
        return [fault for fault in faults if fault]
    finally:
        for process in filter(None, (weir, neighbour)):
            process.terminate()
            process.wait()
        upstream.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="gateway program, built with --profile dist")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES | GOING_ON)}")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each case")
    parser.add_argument("--requests", type=int, default=2000, help="hits and writes of each one")
    parser.add_argument(
        "--neighbour", action="store_true", help="show the machine's share of the p99s, too"
    )
    parser.add_argument(
        "--settled", action="store_true", help="leave out the first seconds of an attack"
    )
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES | GOING_ON):
        parser.error(f"unknown cases: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        faults = run(options, pathlib.Path(folder))
    for fault in faults:
        print(f"FAILED: {fault}: above {GROWN_MIB_MAX} MiB, or slower than {RATIO_MAX} times")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
