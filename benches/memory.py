#!/usr/bin/env python3
"""Measures the resident memory of `weir serve`: answers, downloads, slow readers, unfinished heads.

memory.py WEIR [stored|streams|readers|heads] [--answers N] [--bytes N] [--mib N] [--clients N]

By default it lets clients read a stored answer of 7.5 MiB slowly, stores 100,000 answers of 2 KiB,
runs eight downloads of 200 MiB at once, and opens 1,000 connections that never end the head of
their request. Real answers pass through the real gateway; the figures are differences of VmRSS in
/proc. The exit code is 1 when a figure exceeds its bound. README.md describes the method and its
limits.
"""

import argparse
import asyncio
import hashlib
import http.client
import json
import multiprocessing
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from beside_nginx import CONNECTIONS, KEY, free_port, until_listening, weir_config

MIB = 1024 * 1024
# Upper bounds: memory of the stored answers divided by the bytes of their bodies, and the memory
# that all downloads together add.
STORED_RATIO_MAX, STREAMS_MIB_MAX = 1.35, 32
# The memory that all slow readers add, and the p99 of another client's hits by its usual one.
READERS_MIB_MAX, READERS_P99_MAX = 64, 2
# The number of the large stored issue, and the size of its body.
LARGE, LARGE_BYTES = 77_777_777, 15 * MIB // 2
READERS, STREAMS, HITS = 150, 100, 10_000
CASES = ["hits", "session", "range", "gzip", "zero-window"]
# The answers stay fresh for longer than any run, and all of them fit.
CACHE = """max_size = "4GiB"
[[cache.rules]]
route = "/repos/{owner}/{repo}/issues/{issue_number}"
ttl = "10h"
"""
EXPOSED = (
    "ETag, Link, Location, Retry-After, X-GitHub-OTP, X-RateLimit-Limit, X-RateLimit-Remaining, "
    "X-RateLimit-Used, X-RateLimit-Resource, X-RateLimit-Reset, X-OAuth-Scopes, "
    "X-Accepted-OAuth-Scopes, X-Poll-Interval, X-GitHub-Media-Type, X-GitHub-SSO, "
    "X-GitHub-Request-Id, Deprecation, Sunset"
)


def issue(number, length, api):
    """Returns an issue of exactly `length` bytes, with the URLs of a real one."""
    at = f"{api}/repos/acme/widgets/issues/{number}"
    body = {
        "url": at,
        "repository_url": f"{api}/repos/acme/widgets",
        "labels_url": f"{at}/labels{{/name}}",
        "comments_url": f"{at}/comments",
    }
    body |= {
        "events_url": f"{at}/events",
        "html_url": f"https://example.com/acme/widgets/issues/{number}",
        "id": number,
        "number": number,
    }
    body |= {
        "title": f"Issue {number}",
        "user": {
            "login": "octo",
            "url": f"{api}/users/octo",
            "repos_url": f"{api}/users/octo/repos",
        },
        "body": "",
    }
    body["body"] = (
        hashlib.sha256(str(number).encode()).hexdigest().ljust(length - len(json.dumps(body)), "x")
    )
    return json.dumps(body).encode()


def head(number, body):
    """Returns the response headers that the service sends."""
    digest = hashlib.sha256(body).hexdigest()
    lines = {
        "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        "Content-Type": "application/json; charset=utf-8",
        "Content-Length": len(body),
        "Cache-Control": "private, max-age=60, s-maxage=60",
        "Vary": "Accept, Authorization, Cookie, X-GitHub-OTP, Accept-Encoding, Accept, "
        "X-Requested-With",
        "ETag": f'W/"{digest}"',
        "Last-Modified": time.strftime(
            "%a, %d %b %Y %H:%M:%S GMT", time.gmtime(1_700_000_000 + number)
        ),
        "X-GitHub-Media-Type": "github.v3; format=json",
        "x-github-api-version-selected": "2022-11-28",
        "X-Accepted-GitHub-Permissions": "issues=read; pull_requests=read",
        "X-RateLimit-Limit": 5_000_000,
        "X-RateLimit-Remaining": 4_999_999,
        "X-RateLimit-Used": 1,
        "X-RateLimit-Reset": int(time.time()) + 3600,
        "X-RateLimit-Resource": "core",
        "Access-Control-Expose-Headers": EXPOSED,
        "Access-Control-Allow-Origin": "*",
        "Strict-Transport-Security": "max-age=31536000; includeSubdomains; preload",
        "X-Frame-Options": "deny",
        "X-Content-Type-Options": "nosniff",
        "X-XSS-Protection": "0",
        "Referrer-Policy": "origin-when-cross-origin, strict-origin-when-cross-origin",
        "Content-Security-Policy": "default-src 'none'",
        "X-GitHub-Request-Id": ":".join(
            [digest[:4], digest[4:9], digest[9:16], digest[16:23], digest[23:31]]
        ).upper(),
    }
    if number % 5 == 0:
        page = "http://127.0.0.1/repositories/1/issues?page"
        lines["Link"] = f'<{page}={number + 1}>; rel="next", <{page}=90000>; rel="last"'
    return lines


def text_of(lines):
    return (
        "HTTP/1.1 200 OK\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        + "\r\n"
    ).encode()


class Origin(asyncio.Protocol):
    """The upstream.

    `/repos/acme/widgets/issues/N` is a small answer. `/repos/acme/widgets/contents/KIND-MIB-N` is a
    large one of the kind `plain`, `chunked` or `json`.
    """

    def __init__(self, length, api):
        self.length, self.api, self.received, self.may_write = length, api, b"", asyncio.Event()
        self.may_write.set()

    def connection_made(self, transport):
        self.transport = transport
        transport.set_write_buffer_limits(high=MIB)

    def pause_writing(self):
        self.may_write.clear()

    def resume_writing(self):
        self.may_write.set()

    def connection_lost(self, error):
        self.transport = None
        self.may_write.set()

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            request, self.received = self.received.split(b"\r\n\r\n", 1)
            last = request.split(b" ", 2)[1].decode().split("?")[0].rsplit("/", 1)[1]
            if last == str(LARGE):
                some = b",".join(issue(number, 1023, self.api) for number in range(1024))
                body = b"[" + b",".join([some] * 8)[: LARGE_BYTES - 2].ljust(LARGE_BYTES - 2) + b"]"
                self.transport.write(text_of(head(LARGE, body)) + body)
            elif last.isdigit():
                body = issue(int(last), self.length, self.api)
                self.transport.write(text_of(head(int(last), body)) + body)
            else:
                kind, mib, _ = last.split("-")
                asyncio.get_running_loop().create_task(self.stream(kind, int(mib)))

    async def stream(self, kind, mib):
        item = b'{"url":"%s/repos/acme/widgets/issues/1","title":"' % self.api.encode()
        piece = (
            (item + b"x" * 974).ljust(1021, b"x")[:1021] + b'"},' if kind == "json" else bytes(1024)
        )
        piece *= 64
        lines = head(1, b"")
        lines["Content-Type"] = "application/json" if kind == "json" else "application/octet-stream"
        chunk = (b"%x\r\n" % len(piece) + piece + b"\r\n") if kind == "chunked" else piece
        if kind == "chunked":
            del lines["Content-Length"]
            lines["Transfer-Encoding"] = "chunked"
        else:
            lines["Content-Length"] = mib * MIB
        self.transport.write(text_of(lines))
        for _ in range(mib * MIB // len(piece)):
            await self.may_write.wait()
            if self.transport is None:
                return
            self.transport.write(chunk)
        if kind == "chunked":
            self.transport.write(b"0\r\n\r\n")


def serve_origin(listener, length):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    api = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def serve():
        server = await asyncio.get_running_loop().create_server(
            lambda: Origin(length, api), sock=listener
        )
        await server.serve_forever()

    asyncio.run(serve())


def resident(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
        * 1024
    )


def get(connection, path):
    connection.request(
        "GET",
        path,
        headers={"Authorization": f"Bearer {KEY}", "Accept": "application/vnd.github+json"},
    )
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"{path}: {response.status} {response.read()[:300]!r}")
    return response


def fill(port, numbers):
    """Requests each number once; returns the number of cache hits."""
    lengths, hits, lock = [0], [0], threading.Lock()

    def some(mine):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        hit = 0
        for number in mine:
            response = get(connection, f"/repos/acme/widgets/issues/{number}")
            response.read()
            hit += "hit" in response.headers["cache-status"]
        with lock:
            hits[0] += hit
            lengths[0] += len(mine)

    threads = [
        threading.Thread(target=some, args=(numbers[index::CONNECTIONS],))
        for index in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return hits[0]


def cache_figures(admin):
    connection = http.client.HTTPConnection("127.0.0.1", admin)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return tuple(
        int(
            float(
                next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1]
            )
        )
        for name in ("weir_cache_entries", "weir_cache_bytes")
    )


def measure_stored(weir, port, admin, options):
    # A warm-up: memory that the process allocates only once does not count.
    fill(port, list(range(10_000_000, 10_000_000 + 10 * CONNECTIONS)))
    before, (entries_before, weight_before) = resident(weir.pid), cache_figures(admin)
    fill(port, list(range(1, options.answers + 1)))
    after, (entries, weight) = resident(weir.pid), cache_figures(admin)
    hits = fill(port, list(range(1, options.answers + 1, 101)))
    entries, weight, grown = entries - entries_before, weight - weight_before, after - before
    bodies = options.answers * options.bytes
    print(
        f"{entries} stored answers of {options.bytes} bytes,"
        f" {hits} of {len(range(1, options.answers + 1, 101))} repeated requests were hits"
    )
    print(
        f"resident memory grew by {grown / MIB:.1f} MiB:"
        f" {grown / bodies:.3f} times the bodies' {bodies / MIB:.1f} MiB,"
        f" {(grown - bodies) / options.answers:.0f} bytes of overhead for each answer"
    )
    print(f"the store accounts for {weight / MIB:.1f} MiB: {weight / grown:.3f} of that growth")
    if (
        entries != options.answers
        or grown > STORED_RATIO_MAX * bodies
        or not 0.85 < weight / grown < 1.15
    ):
        return f"above {STORED_RATIO_MAX} times the bodies, wrongly accounted, or not all stored"
    return None


def download(port, path, expected, pause):
    """Reads one large answer to its end; a `pause` in seconds between reads makes it slow."""
    # One buffer takes every read, so that this process keeps nothing of the answer.
    connection = socket.create_connection(("127.0.0.1", port))
    if pause:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {KEY}\r\nConnection: close\r\n\r\n".encode()
    )
    buffer, total = bytearray(MIB), 0
    view = memoryview(buffer)
    while count := connection.recv_into(view):
        total += count
        if pause:
            time.sleep(pause)
    connection.close()
    if total < expected:
        print(f"{path}: {total} bytes instead of {expected}", flush=True)
        raise SystemExit(1)


def measure_streams(weir, port, options):
    # Every case is compared with the process before the first one: memory that a case leaves behind
    # must not hide the growth of the next.
    worst, before = 0, resident(weir.pid)
    for kind, same, slow in [
        ("plain", False, 0),
        ("chunked", False, 0),
        ("json", False, 0),
        ("plain", True, 0),
        ("plain", False, options.clients),
        ("plain", True, options.clients // 2),
    ]:
        if options.kinds and kind not in options.kinds:
            continue
        mib = options.mib if not slow else max(1, options.mib // 8)
        peak, ended = 0, threading.Event()
        paths = [
            f"/repos/acme/widgets/contents/{kind}-{mib}-{0 if same else index}"
            for index in range(options.clients)
        ]
        pauses = [0.005 if index < slow else 0 for index in range(options.clients)]
        clients = [
            multiprocessing.Process(target=download, args=(port, path, mib * MIB, pause))
            for path, pause in zip(paths, pauses)
        ]
        started = time.monotonic()
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            peak = max(peak, resident(weir.pid))
            time.sleep(0.02)
        ended.set()
        failed = sum(client.exitcode != 0 for client in clients)
        grown = (peak - before) / MIB
        worst = max(worst, grown)
        print(
            f"{options.clients} x {mib} MiB {kind}{', all the same' if same else ''}"
            f"{f', {slow} slow readers' if slow else ''}:"
            f" +{grown:.1f} MiB at most, {time.monotonic() - started:.1f} s"
            + (f", {failed} FAILED" if failed else ""),
            flush=True,
        )
        if failed:
            return f"{failed} downloads were incomplete"
    return f"{worst:.1f} MiB is above {STREAMS_MIB_MAX}" if worst > STREAMS_MIB_MAX else None


# The memory that a thousand unfinished heads together add, and the slowest hundredth of another
# client's requests meanwhile, compared with its usual one.
HEADS, HEADS_MIB_MAX, SLOWER_MAX = 1000, 64, 2


def unfinished_heads(port, length, under_way, may_end):
    """Holds connections that each send a head of `length` bytes without an end."""
    # An attacker has a machine of its own; here it must not take the time of gateway and client.
    os.nice(19)
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
    under_way.set()
    may_end.wait()


def time_requests(port, count, results):
    """Times hits of one client, one every two milliseconds."""
    connection, times = http.client.HTTPConnection("127.0.0.1", port), []
    for _ in range(count):
        begun = time.monotonic()
        get(connection, "/repos/acme/widgets/issues/1").read()
        times.append(time.monotonic() - begun)
        time.sleep(0.002)
    results.put(sorted(times)[len(times) * 99 // 100] * 1000)


def watched(weir, port, count):
    """Returns the 99th percentile of a client's times in ms, and the peak of memory meanwhile."""
    results, peak = multiprocessing.Queue(), 0
    client = multiprocessing.Process(target=time_requests, args=(port, count, results))
    client.start()
    while client.is_alive():
        peak = max(peak, resident(weir.pid))
        time.sleep(0.01)
    return results.get(), peak


def measure_heads(weir, port):
    """Measures heads of 1 MB, which are refused, and heads that wait just below the limit."""
    watched(weir, port, 500)
    before, faults = resident(weir.pid), []
    for length in (1_000_000, 32 * 1024 - 1):
        usual = max(watched(weir, port, 1000)[0] for _ in range(3))
        under_way, may_end = multiprocessing.Event(), multiprocessing.Event()
        attacker = multiprocessing.Process(
            target=unfinished_heads, args=(port, length, under_way, may_end)
        )
        attacker.start()
        p99, peak = watched(weir, port, 1000)
        was_sent = under_way.wait(60)
        peak = max(peak, resident(weir.pid))
        may_end.set()
        attacker.join()
        grown = (peak - before) / MIB
        print(
            f"{HEADS} unfinished heads of {length} bytes: +{grown:.1f} MiB at most,"
            f" another client's p99 {p99:.2f} ms, usually {usual:.2f} ms",
            flush=True,
        )
        if not was_sent or grown > HEADS_MIB_MAX or p99 > SLOWER_MAX * usual:
            faults.append(f"unfinished heads of {length} bytes cost too much")
    return "; ".join(faults) or None
def timed_hits(port, times):
    """Requests a stored answer again and again; puts the p99 in milliseconds into `times`."""
    connection, took = http.client.HTTPConnection("127.0.0.1", port), []
    for _ in range(HITS):
        started = time.perf_counter()
        get(connection, "/repos/acme/widgets/issues/1").read()
        took.append(time.perf_counter() - started)
    times.put(sorted(took)[HITS * 99 // 100] * 1000)


def p99(port):
    """The p99 of hits, while the caller's connections stay as they are."""
    times = multiprocessing.Queue()
    client = multiprocessing.Process(target=timed_hits, args=(port, times))
    client.start()
    return client, times


def slow_reader(port, index, kind):
    """Asks for the large answer and reads its head alone."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    connection.connect(("127.0.0.1", port))
    more = {"range": "Range: bytes=1000-\r\n", "session": "TE: trailers\r\n"}.get(kind, "")
    host = f"weir-{index}" if kind == "gzip" else "weir"
    if kind == "gzip":
        more = "Accept-Encoding: gzip\r\n"
    connection.sendall(
        f"GET /repos/acme/widgets/issues/{LARGE} HTTP/1.1\r\nHost: {host}\r\n{more}"
        f"Authorization: Bearer {KEY}\r\nAccept: application/vnd.github+json\r\n\r\n".encode()
    )
    return connection


def frame(kind, flags, stream, payload):
    length = len(payload).to_bytes(3, "big")
    return length + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """A header field as a literal that is not indexed (RFC 7541 §6.2.2); both are short."""
    texts = (name.encode(), value.encode())
    return b"\0" + b"".join(bytes([len(text)]) + text for text in texts)


def zero_window_streams(port):
    """Opens streams whose window is zero on one HTTP/2 connection, and reads their heads."""
    connection = socket.create_connection(("127.0.0.1", port))
    no_window = (4).to_bytes(2, "big") + bytes(4)
    headers = b"".join(
        literal(name, value)
        for name, value in [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "weir"),
            (":path", f"/repos/acme/widgets/issues/{LARGE}"),
            ("authorization", f"Bearer {KEY}"),
            ("accept", "application/vnd.github+json"),
        ]
    )
    requests = (frame(1, 5, 1 + 2 * index, headers) for index in range(STREAMS))
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, no_window) + b"".join(requests)
    )
    heads, received = 0, b""
    while heads < STREAMS:
        received += (read := connection.recv(65536))
        if not read:
            sys.exit("the connection was closed")
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
            heads += received[3] == 1
            received = received[9 + int.from_bytes(received[:3], "big") :]
    return [connection]


def measure_readers(weir, port, options):
    # Warm-up: both answers are stored, and what the process allocates once is there.
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in (LARGE, LARGE, 1):
        get(connection, f"/repos/acme/widgets/issues/{number}").read()
    # As with the streams, memory that a case leaves behind must not hide the growth of the next.
    faults, before = [], resident(weir.pid)
    usual = p99(port)[1].get()
    for kind in options.cases:
        client, times = p99(port)
        if kind == "zero-window":
            readers, name = zero_window_streams(port), f"{STREAMS} streams without a window"
        else:
            readers = [slow_reader(port, index, kind) for index in range(READERS)]
            heads = [reader.recv(12) for reader in readers]
            if any(not head.startswith(b"HTTP/1.1 20") for head in heads):
                sys.exit(f"not every reader has an answer: {set(heads)}")
            name = f"{READERS} slow readers ({kind})"
        peak = resident(weir.pid)
        while client.is_alive():
            peak = max(peak, resident(weir.pid))
            time.sleep(0.02)
        beside = times.get()
        for reader in readers:
            reader.close()
        # The machine may have become slower meanwhile.
        usual = max(usual, p99(port)[1].get())
        grown = (peak - before) / MIB
        print(
            f"{name} of {LARGE_BYTES / MIB} MiB: +{grown:.1f} MiB at most;"
            f" another client's p99 is {beside:.2f} ms, usually {usual:.2f} ms",
            flush=True,
        )
        if grown > READERS_MIB_MAX or beside > READERS_P99_MAX * usual:
            faults.append(name)
    return f"above {READERS_MIB_MAX} MiB or too slow: {', '.join(faults)}" if faults else None


def run(options, what, folder):
    # Slow readers meet the default size: a larger cache may keep more compressed forms.
    cache = CACHE.replace("4GiB", "256MiB") if what == "readers" else CACHE
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    upstream = multiprocessing.Process(
        target=serve_origin, args=(listener, options.bytes), daemon=True
    )
    upstream.start()
    port, admin = free_port(), free_port()
    config = weir_config(listener.getsockname()[1], port, "rfc9111", cache).replace(
        "[upstream]", f'admin = "127.0.0.1:{admin}"\n[upstream]', 1
    )
    (folder / "weir.toml").write_text(config)
    weir = subprocess.Popen(
        [options.weir, "serve", "--config", f"{folder}/weir.toml"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if options.quiet else None,
    )
    try:
        until_listening(weir, port)
        faults = []
        if what == "readers":
            faults.append(measure_readers(weir, port, options))
        if what == "stored":
            faults.append(measure_stored(weir, port, admin, options))
        if what == "streams":
            faults.append(measure_streams(weir, port, options))
        if options.what in (None, "heads"):
            faults.append(measure_heads(weir, port))
        return [fault for fault in faults if fault]
    finally:
        weir.terminate()
        weir.wait()
        upstream.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="gateway program, built with --profile dist")
    parser.add_argument(
        "what",
        nargs="?",
        choices=["stored", "streams", "readers", "heads"],
        help="one of the four; default: all",
    )
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=2048, help="body size of each stored answer")
    parser.add_argument("--mib", type=int, default=200, help="size of each download")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=["plain", "chunked", "json"],
        help="kinds of downloads; default: all",
    )
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, default=CASES, help="cases of slow readers"
    )
    parser.add_argument("--quiet", action="store_true", help="discards the log of the gateway")
    options = parser.parse_args()
    faults = []
    for what in [options.what] if options.what else ["stored", "streams", "readers"]:
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
            faults += run(options, what, pathlib.Path(folder))
    for fault in faults:
        print(f"FAILED: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
