"""The cost of shared limits: three gateways with one Redis beside three without.

Requests at a steady rate go to all three in turn. Rounds with and without Redis alternate. The
program prints the median and the p99 of their latencies, and the operations of Redis for each
request (benches/README.md). The origin answers at once, so a latency is the gateway's own.
"""

import argparse
import asyncio
import hashlib
import multiprocessing
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import time

from beside_nginx import KEY, free_port, until_listening

ACCOUNTS = 3
BODY = b'{"id":1,"title":"an issue"}'
# Ways of a request: past every stored answer, or as a bot sends it.
KINDS = {"uncached": "Cache-Control: no-store\r\n", "cached": ""}


class Origin(asyncio.Protocol):
    """The upstream: it answers at once, with a budget that never ends."""

    def connection_made(self, transport):
        self.transport, self.received = transport, b""

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            _, self.received = self.received.split(b"\r\n\r\n", 1)
            reset = int(time.time()) + 3000
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b"X-RateLimit-Limit: 100000000\r\nX-RateLimit-Remaining: 90000000\r\n"
                b"X-RateLimit-Used: 10000000\r\nX-RateLimit-Resource: core\r\n"
                b"X-RateLimit-Reset: %d\r\nContent-Length: %d\r\n\r\n%s" % (reset, len(BODY), BODY)
            )


def serve_origin(listener):
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def serve():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Origin, sock=listener)
        await server.serve_forever()

    asyncio.run(serve())


def config(origin, port, state):
    accounts = "".join(
        f'[[accounts]]\nname = "bench-{n}"\nkind = "user"\n'
        f'[[tokens]]\naccount = "bench-{n}"\nkind = "classic"\nsecret = {{ value = "secret-{n}" }}\n'
        for n in range(ACCOUNTS)
    )
    names = ", ".join(f'"bench-{n}"' for n in range(ACCOUNTS))
    return f"""
[listen]
http = ["127.0.0.1:{port}"]
[upstream]
url = "http://127.0.0.1:{origin}"
dialect = "github"
{accounts}
[[pools]]
name = "all"
accounts = [{names}]
[[clients]]
name = "bench"
key_sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
reads = "all"
[limits]
concurrency = 1000
rest_points_per_minute = 1000000000
cpu_seconds_per_minute = 1000000
{state}
"""


async def connection(port, kind, numbers, every, until, latencies):
    """Sends a request every so many seconds, and notes the time to its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    due = time.perf_counter()
    while due < until:
        await asyncio.sleep(max(0, due - time.perf_counter()))
        request = (
            f"GET /repos/acme/widgets/issues/{next(numbers)} HTTP/1.1\r\nHost: weir\r\n"
            f"Authorization: Bearer {KEY}\r\n{KINDS[kind]}\r\n"
        )
        begun = time.perf_counter()
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        latencies.append(time.perf_counter() - begun)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"a request got {head!r}")
        due += every
    writer.close()


async def one_round(ports, kind, numbers, options):
    latencies, count = [], options.connections
    until = time.perf_counter() + options.seconds
    every = count / options.rate
    await asyncio.gather(
        *(
            connection(ports[n % len(ports)], kind, numbers, every, until, latencies)
            for n in range(count)
        )
    )
    return latencies


def operations(port):
    """Returns the commands that clients have sent to Redis so far, not those inside scripts."""
    command = ["redis-cli", "-p", str(port), "INFO", "commandstats"]
    lines = subprocess.check_output(command, text=True).splitlines()
    sent = [line for line in lines if line.startswith(("cmdstat_eval:", "cmdstat_publish:"))]
    return sum(int(line.partition("calls=")[2].split(",")[0]) for line in sent)


def begin(command, processes):
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"WEIR_LOG": "warn"},
    )
    processes.append(process)
    return process


def gateways(program, folder, origin, state, processes):
    ports = []
    for _ in range(3):
        port = free_port()
        path = folder / f"{port}.toml"
        path.write_text(config(origin, port, state))
        process = begin([program, "serve", "--config", str(path)], processes)
        until_listening(process, port)
        ports.append(port)
    return ports


def run(options, folder, processes):
    redis, listener = free_port(), socket.create_server(("127.0.0.1", 0))
    origin = multiprocessing.Process(target=serve_origin, args=(listener,), daemon=True)
    origin.start()
    command = ["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", ""]
    until_listening(begin(command, processes), redis)
    state = f'[state]\nredis = "redis://127.0.0.1:{redis}"\n'
    upstream = listener.getsockname()[1]
    sets = {
        "alone": gateways(options.weir, folder, upstream, "", processes),
        "shared": gateways(options.weir, folder, upstream, state, processes),
    }
    # The replicas find each other, and their first parts.
    time.sleep(3)
    numbers = iter(range(1, 1 << 60))
    for kind in KINDS:
        results = {name: [] for name in sets}
        used, idle = [], []
        for round_number in range(options.rounds + 1):
            for name, ports in sets.items():
                before = operations(redis)
                latencies = sorted(asyncio.run(one_round(ports, kind, numbers, options)))
                commands = operations(redis) - before
                # The first round warms up.
                if round_number == 0:
                    continue
                p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
                results[name].append((1e3 * p50, 1e3 * p99))
                if name == "shared":
                    used.append(commands / len(latencies))
                else:
                    idle.append(commands / options.seconds)
        (alone_p50, alone_p99), (p50, p99) = (
            [statistics.median(column) for column in zip(*results[name])] for name in sets
        )
        print(f"{kind}: {options.rate} requests/s, medians of {options.rounds} rounds")
        print(f"  alone   p50 {alone_p50:.2f} ms  p99 {alone_p99:.2f} ms")
        print(f"  shared  p50 {p50:.2f} ms  p99 {p99:.2f} ms", end="  ")
        print(f"({p50 - alone_p50:+.2f} and {p99 - alone_p99:+.2f} ms)")
        print(f"  Redis: {statistics.median(used):.3f} operations for each request", end="")
        print(f", {statistics.median(idle):.0f} a second without requests")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="the program, built with --profile dist")
    parser.add_argument("--rate", type=int, default=2000, help="requests a second in all")
    parser.add_argument("--connections", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=5, help="of one round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(options, pathlib.Path(folder), processes)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


if __name__ == "__main__":
    main()
