#!/usr/bin/env python3
"""Measures one large answer with many readers: upstream requests, memory, bytes, and hits beside.

large_bodies.py WEIR [--mib N] [--readers N] [--slow N] [--join-seconds S] [--slow-seconds S]
                     [--upstream-seconds S]

By default fifty readers of one answer of 200 MiB join over 30 seconds. Ten of them read 100 kB/s
for a minute and a half and then at full speed. The upstream sends as fast as it can, or spreads the
answer over the given time. Another client asks for a stored answer all the while. The exit code is
1 if the upstream is asked more than once, a reader gets other bytes, or the resident memory of the
gateway grows by more than 32 MiB. The page cache is not part of that. README.md describes the
method.
"""

import argparse
import asyncio
import hashlib
import http.client
import multiprocessing
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from beside_nginx import KEY, free_port, until_listening, weir_config
from memory import MIB, resident

GROWN_MIB_MAX = 32
# The rate of a slow reader.
SLOW_BYTES_PER_SECOND = 100_000
LARGE, SMALL = "/repos/acme/widgets/tarball/v1", "/repos/acme/widgets"
CACHE = """[[cache.rules]]
route = "/repos/{owner}/{repo}"
ttl = "10h"
"""


def pieces(mib):
    """The body, MiB by MiB, without repetition."""
    block = hashlib.shake_256(b"weir").digest(MIB - 8)
    for number in range(mib):
        yield number.to_bytes(8, "big") + block


def serve_origin(listener, mib, seconds, asked):
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def answer(reader, writer):
        try:
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode()
                if request.split(" ")[1] != LARGE:
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                        b'ETag: "small"\r\nContent-Length: 2\r\n\r\n{}'
                    )
                    continue
                with asked.get_lock():
                    asked.value += 1
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                    b'ETag: "large"\r\nContent-Length: %d\r\n\r\n' % (mib * MIB)
                )
                for piece in pieces(mib):
                    writer.write(piece)
                    await writer.drain()
                    if seconds:
                        await asyncio.sleep(seconds / mib)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve():
        server = await asyncio.start_server(answer, sock=listener)
        await server.serve_forever()

    asyncio.run(serve())


def download(port, starts_at, slow_seconds, results):
    """Reads the answer and reports the length and the hash of its body."""
    time.sleep(max(0, starts_at - time.monotonic()))
    connection = socket.create_connection(("127.0.0.1", port))
    if slow_seconds:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    request = f"GET {LARGE} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
    connection.sendall(f"{request}Connection: close\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    digest, total, buffer = hashlib.sha256(), 0, memoryview(bytearray(MIB))
    began = time.monotonic()
    while True:
        taken = time.monotonic() - began
        if taken < slow_seconds:
            time.sleep(max(0, total / SLOW_BYTES_PER_SECOND - taken))
            count = connection.recv_into(buffer[:16384])
        else:
            count = connection.recv_into(buffer)
        if not count:
            break
        digest.update(buffer[:count])
        total += count
    results.put((total, digest.hexdigest(), time.monotonic() - began))


def hits(port, ended, latencies):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not ended.is_set():
        began = time.perf_counter()
        connection.request("GET", SMALL, headers={"Authorization": f"Bearer {KEY}"})
        connection.getresponse().read()
        latencies.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)


def show_hits(name, latencies):
    latencies = sorted(latencies)
    print(
        f"hits of another client {name}: p50 {statistics.median(latencies):.2f} ms,"
        f" p99 {latencies[len(latencies) * 99 // 100]:.2f} ms, {len(latencies)} of them"
    )


def measured_hits(port, during):
    ended, latencies = threading.Event(), []
    prober = threading.Thread(target=hits, args=(port, ended, latencies))
    prober.start()
    result = during()
    ended.set()
    prober.join()
    return result, latencies


def measure(weir, port, options):
    _, latencies = measured_hits(port, lambda: time.sleep(3))
    show_hits("before", latencies)
    results, before = multiprocessing.Queue(), resident(weir.pid)
    began = time.monotonic() + 2
    every = options.readers // max(1, options.slow)
    readers = [
        multiprocessing.Process(
            target=download,
            args=(
                port,
                began + options.join_seconds * index / options.readers,
                options.slow_seconds if options.slow and index % every == 0 else 0,
                results,
            ),
        )
        for index in range(options.readers)
    ]
    for reader in readers:
        reader.start()

    def watch():
        peak, answers = before, []
        while len(answers) < len(readers) and any(reader.is_alive() for reader in readers):
            peak = max(peak, resident(weir.pid))
            time.sleep(0.05)
            while not results.empty():
                answers.append(results.get())
        while len(answers) < len(readers) and not results.empty():
            answers.append(results.get())
        return peak, answers

    (peak, answers), latencies = measured_hits(port, watch)
    for reader in readers:
        reader.join()
    show_hits("meanwhile", latencies)
    expected = hashlib.sha256()
    for piece in pieces(options.mib):
        expected.update(piece)
    wrong = sum(digest != expected.hexdigest() for _, digest, _ in answers)
    wrong += len(readers) - len(answers)
    seconds = sorted(seconds for _, _, seconds in answers)
    if seconds:
        print(f"downloads took {seconds[0]:.1f} to {seconds[-1]:.1f} s")
    return (peak - before) / MIB, wrong


def run(options, folder):
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    asked = multiprocessing.Value("i", 0)
    upstream = multiprocessing.Process(
        target=serve_origin,
        args=(listener, options.mib, options.upstream_seconds, asked),
        daemon=True,
    )
    upstream.start()
    port = free_port()
    config = weir_config(listener.getsockname()[1], port, "revalidate", CACHE)
    (folder / "weir.toml").write_text(config)
    weir = subprocess.Popen(
        [options.weir, "serve", "--config", f"{folder}/weir.toml"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if options.quiet else None,
    )
    try:
        until_listening(weir, port)
        grown, wrong = measure(weir, port, options)
    finally:
        weir.terminate()
        weir.wait()
        upstream.terminate()
    print(
        f"{options.readers} readers of {options.mib} MiB: {asked.value} upstream requests,"
        f" +{grown:.1f} MiB resident at most, {wrong} SHA-256 mismatches"
    )
    return asked.value == 1 and wrong == 0 and grown <= GROWN_MIB_MAX


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="gateway program, built with --profile dist")
    parser.add_argument("--mib", type=int, default=200, help="size of the answer")
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--slow", type=int, default=10, help="readers at 100 kB/s")
    parser.add_argument("--join-seconds", type=float, default=30)
    parser.add_argument("--slow-seconds", type=float, default=90, help="then at full speed")
    parser.add_argument("--upstream-seconds", type=float, default=0, help="time of the answer")
    parser.add_argument("--quiet", action="store_true", help="discards the log of the gateway")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        is_good = run(options, pathlib.Path(folder))
    sys.exit(0 if is_good else "FAILED")


if __name__ == "__main__":
    main()
