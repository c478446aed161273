#!/usr/bin/env python3
"""Measures a restart of `weir serve` with stored answers: what it costs, and how long it takes.

restart.py WEIR [--answers N] [--bytes N]

It stores 10,000 issues of 2 KiB, stops the gateway by SIGTERM, starts it and reads them all, and
does the same with SIGKILL. The exit code is 1 when a figure exceeds its bound. README.md describes
the method.
"""

import argparse
import asyncio
import hashlib
import http.client
import json
import multiprocessing
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from beside_nginx import CONNECTIONS, KEY, free_port, start, until_listening, weir_config

# Upper bounds: seconds until the gateway is ready, and the file divided by the bodies.
READY_MAX, FILE_RATIO_MAX = 1.0, 0.6
INTERVAL = 2
WORDS = (
    "the a of build fails when cache token review branch merge request with after before config "
    "release worker timeout retry error panic stack trace expected actual fix docs test flaky"
).split()


def body_of(number, length):
    """Returns an issue of exactly `length` bytes, whose text no other issue has."""
    at = f"http://127.0.0.1/repos/acme/widgets/issues/{number}"
    chance = random.Random(number)
    issue = {"url": at, "id": number, "node_id": hashlib.sha1(str(number).encode()).hexdigest()}
    issue |= {"number": number, "title": " ".join(chance.choices(WORDS, k=6)), "body": ""}
    room = length - len(json.dumps(issue))
    text = ""
    while len(text) < room:
        # Every fourth word is a number that nothing compresses.
        text += f"{' '.join(chance.choices(WORDS, k=3))} {chance.getrandbits(48):012x} "
    issue["body"] = text[:room]
    return json.dumps(issue).encode()


class Origin(asyncio.Protocol):
    """The upstream. It counts the units that it charges: a 304 is free."""

    def __init__(self, length, units, free):
        self.length, self.units, self.free, self.received = length, units, free, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, self.received = self.received.split(b"\r\n\r\n", 1)
            self.transport.write(self.answer(head.decode().lower()))

    def answer(self, head):
        path = head.split()[1]
        if not path.startswith("/repos/acme/widgets/issues/"):
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
        number = int(path.rsplit("/", 1)[1])
        etag = f'W/"{hashlib.sha256(path.encode()).hexdigest()}"'
        is_same = f"if-none-match: {etag.lower()}" in head
        counter = self.free if is_same else self.units
        with counter.get_lock():
            counter.value += 1
        body = b"" if is_same else body_of(number, self.length)
        lines = [
            "HTTP/1.1 304 Not Modified" if is_same else "HTTP/1.1 200 OK",
            f"ETag: {etag}",
            "Cache-Control: private, max-age=60, s-maxage=60",
            "Vary: Accept, Authorization, Cookie",
            "X-GitHub-Media-Type: github.v3; format=json",
            "X-RateLimit-Limit: 5000000",
            "X-RateLimit-Remaining: 4000000",
            "X-RateLimit-Used: 1000000",
            f"X-RateLimit-Reset: {int(time.time()) + 3600}",
            "X-RateLimit-Resource: core",
            f"X-GitHub-Request-Id: {random.getrandbits(64):016X}",
        ]
        if not is_same:
            lines += ["Content-Type: application/json; charset=utf-8"]
            lines += [f"Content-Length: {len(body)}"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def serve_origin(port, length, units, free):
    async def serve():
        loop = asyncio.get_running_loop()
        origin = lambda: Origin(length, units, free)  # noqa: E731
        server = await loop.create_server(origin, "127.0.0.1", port, backlog=512)
        await server.serve_forever()

    asyncio.run(serve())


def read_all(port, options):
    """Reads every answer once; ends the program if one is wrong."""
    wrong = []

    def some(numbers):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for number in numbers:
            path = f"/repos/acme/widgets/issues/{number}"
            connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200 or json.loads(text)["number"] != number:
                wrong.append((number, answer.status, text[:200]))
        connection.close()

    numbers = range(1, options.answers + 1)
    parts = [numbers[index::CONNECTIONS] for index in range(CONNECTIONS)]
    threads = [threading.Thread(target=some, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        sys.exit(f"wrong answers, the first: {wrong[0]}")


def started(options, file, admin):
    """Starts the gateway. Returns it and the seconds until it answers that it is ready."""
    began = time.monotonic()
    command = [options.weir, "serve", "--config", file]
    weir = start(command, subprocess.DEVNULL, WEIR_LOG="warn")
    while True:
        if weir.poll() is not None:
            sys.exit(f"the gateway ended with {weir.returncode}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return weir, time.monotonic() - began
        except (ConnectionError, socket.timeout):
            pass
        time.sleep(0.005)


def until_written(path, bodies):
    """Waits for a snapshot that began after now."""
    before, deadline = path.stat().st_ino if path.exists() else None, time.monotonic() + 60
    for _ in range(2):
        while time.monotonic() < deadline and (not path.exists() or path.stat().st_ino == before):
            time.sleep(0.05)
        before = path.stat().st_ino
    return path.stat().st_size / bodies


def measure(options, folder):
    origin, port, admin = free_port(), free_port(), free_port()
    units, free = multiprocessing.Value("Q", 0), multiprocessing.Value("Q", 0)
    upstream = multiprocessing.Process(
        target=serve_origin, args=(origin, options.bytes, units, free), daemon=True
    )
    upstream.start()
    path = folder / "weir.cache"
    more = f'max_size = "4GiB"\nsnapshot = "{path}"\nsnapshot_interval = "{INTERVAL}s"'
    config = weir_config(origin, port, "revalidate", more)
    config = config.replace("[listen]\n", f'[listen]\nadmin = "127.0.0.1:{admin}"\n')
    bodies = options.answers * options.bytes
    file = folder / "weir.toml"
    file.write_text(config)
    until_listening(upstream_probe(upstream), origin)
    weir, _ = started(options, file, admin)
    problems = []
    try:
        read_all(port, options)
        print(f"stored      {units.value} units for {options.answers} answers")
        for name, end in [("SIGTERM", signal.SIGTERM), ("SIGKILL", signal.SIGKILL)]:
            ratio = until_written(path, bodies) if end == signal.SIGKILL else None
            weir.send_signal(end)
            began = time.monotonic()
            weir.wait(60)
            took = time.monotonic() - began
            ratio = ratio or path.stat().st_size / bodies
            before, free_before = units.value, free.value
            weir, ready = started(options, file, admin)
            read_all(port, options)
            spent, confirmed = units.value - before, free.value - free_before
            print(
                f"{name:11} {spent} units, {confirmed} free 304s, ready after {ready:.3f} s,"
                f" stopped after {took:.3f} s, file {ratio:.3f} of the bodies"
            )
            if spent or confirmed != options.answers or ready > READY_MAX:
                problems.append(name)
            if ratio > FILE_RATIO_MAX:
                problems.append(f"the file of {name}")
    finally:
        weir.kill()
        weir.wait()
        upstream.kill()
    if problems:
        print(f"beyond its bound: {', '.join(problems)}")
    return not problems


def upstream_probe(process):
    """Shows a process of `multiprocessing` as one of `subprocess`."""

    class Probe:
        args, returncode = ["the upstream"], None

        def poll(self):
            return process.exitcode

    return Probe()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", type=pathlib.Path, help="the gateway's program")
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if measure(options, pathlib.Path(folder)) else 1)


if __name__ == "__main__":
    main()
