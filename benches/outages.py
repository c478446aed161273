#!/usr/bin/env python3
"""Measures what a hundred clients see while the upstream hangs, is down, and returns.

outages.py WEIR [--clients N] [--seconds S]

A quarter of the clients asks for a stored answer, the others for answers of their own. The exit
code is 1 when a figure exceeds its bound. README.md describes the method.
"""

import argparse
import asyncio
import collections
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from beside_nginx import KEY, free_port, start_weir, until_listening, weir_config

# Upper bounds in seconds: beyond the deadline, with an open circuit breaker, and after the return.
LATE_MAX, OPEN_MAX, RETURN_MAX = 1, 0.05, 2
STORED = "/repos/acme/stored"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nETag: \"1\"\r\n"
    b"X-RateLimit-Limit: 5000\r\nX-RateLimit-Remaining: 4000\r\nX-RateLimit-Used: 1000\r\n"
    b"X-RateLimit-Reset: %d\r\nX-RateLimit-Resource: core\r\n\r\n{}"
)


class Upstream:
    """Answers every request, or none while it hangs."""

    def __init__(self):
        self.is_hanging, self.requests = False, 0

    async def serve(self, reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                if self.is_hanging:
                    await reader.read()
                    return
                writer.write(ANSWER % (time.time() + 3_600))
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def get(port, path):
    """Returns the status, the seconds and the head of an answer on a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    request = f"GET {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    writer.write(request.encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    took = time.monotonic() - began
    writer.close()
    return int(head.split()[1]), took, head.lower()


async def round_of(name, port, clients):
    """Lets all clients ask at once. Returns the seconds of the slowest answer."""
    paths = [STORED if n % 4 == 0 else f"/repos/{name}/{n}" for n in range(clients)]
    answers = await asyncio.gather(*(get(port, path) for path in paths))
    statuses = collections.Counter(status for status, _, _ in answers)
    for path, (status, _, head) in zip(paths, answers, strict=True):
        if status != (200 if path == STORED else 504) or status == 504 and "retry-after" not in head:
            sys.exit(f"{name}: {path} was answered {head}")
    slowest = max(took for _, took, _ in answers)
    print(f"{name:12} {dict(statuses)}, slowest {slowest:.3f} s")
    return slowest


async def measure(options, folder):
    upstream, (origin, port) = Upstream(), (free_port(), free_port())
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", origin)
    config = weir_config(origin, port, "revalidate", 'stale_if_error = "1h"')
    config = config.replace("[upstream]\n", f'[upstream]\ntotal_timeout = "{options.seconds}s"\n')
    weir = start_weir(options.weir, folder, config, "off")
    try:
        await asyncio.to_thread(until_listening, weir, port)
        status, _, head = await get(port, STORED)
        if status != 200:
            sys.exit(f"the stored answer was answered {head}")
        upstream.is_hanging = True
        late = await round_of("hanging", port, options.clients) - options.seconds
        is_open = []
        for number in range(5):
            before = upstream.requests
            is_open.append(await round_of(f"open-{number}", port, options.clients))
            # The probes are a second apart.
            if upstream.requests > before + 1:
                sys.exit("requests of clients went to an upstream that is down")
        upstream.is_hanging = False
        began = time.monotonic()
        while (await get(port, f"/repos/back/{time.monotonic()}"))[0] != 200:
            await asyncio.sleep(0.02)
        back = time.monotonic() - began
        print(f"{'returned':12} first answer after {back:.3f} s")
    finally:
        weir.send_signal(signal.SIGTERM)
        try:
            weir.wait(20)
        except subprocess.TimeoutExpired:
            weir.kill()
        server.close()
    # The first round may meet a busy machine.
    return late <= LATE_MAX and sorted(is_open)[len(is_open) // 2] <= OPEN_MAX and back <= RETURN_MAX


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", type=pathlib.Path, help="the gateway's program")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=12, help="upstream.total_timeout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if asyncio.run(measure(options, pathlib.Path(folder))) else 1)


if __name__ == "__main__":
    main()
