#!/usr/bin/env python3
"""Measures the resident memory of `weir serve`: stored answers, and downloads under way.

memory.py WEIR [stored|streams] [--answers N] [--bytes N] [--mib N] [--clients N]

By default it stores 100,000 answers of 2 KiB, and runs eight downloads of 200 MiB at once. Real
answers pass through the real gateway; the figures are differences of VmRSS in /proc. The exit code
is 1 when a figure exceeds its bound. README.md describes the method and its limits. `attacks.py`
has hostile clients.
"""

import argparse
import asyncio
import hashlib
import http.client
import json
import multiprocessing
import os
import pathlib
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
STORED_RATIO_MAX, STREAMS_MIB_MAX = 1.40, 32
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
            if last == "rate_limit":
                # The gateway asks once whether its token is alive.
                self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
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


def run(options, what, folder):
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    upstream = multiprocessing.Process(
        target=serve_origin, args=(listener, options.bytes), daemon=True
    )
    upstream.start()
    port, admin = free_port(), free_port()
    config = weir_config(listener.getsockname()[1], port, "rfc9111", CACHE).replace(
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
        if what == "stored":
            faults.append(measure_stored(weir, port, admin, options))
        if what == "streams":
            faults.append(measure_streams(weir, port, options))
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
        choices=["stored", "streams"],
        help="one of the two; default: both",
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
    parser.add_argument("--quiet", action="store_true", help="discards the log of the gateway")
    options = parser.parse_args()
    faults = []
    for what in [options.what] if options.what else ["stored", "streams"]:
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
            faults += run(options, what, pathlib.Path(folder))
    for fault in faults:
        print(f"FAILED: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
