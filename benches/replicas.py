"""The cost of shared limits: three gateways with one Redis beside three without.

Requests at a steady rate go to all three in turn. Rounds with and without Redis alternate. The
program prints the median and the p99 of their latencies, and the operations of Redis for each
request (benches/README.md). The origin answers at once, so a latency is the gateway's own.
"""

import argparse
import hashlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from beside_nginx import KEY, free_port, nginx_base, start_nginx, until_listening

ACCOUNTS = 3
# What sharing may add to a request past the cache: p50 and p99 in ms, operations of Redis. The
# median wavers by some hundredths of a millisecond.
ADDED_MAX = (0.05, 1.0, 0.1)
WARM_UP = 1
# Ways of a request: past every stored answer, or as a bot sends it.
KINDS = {"uncached": ["-H", "Cache-Control: no-store"], "cached": []}

def origin_config(folder, port):
    """The upstream: it answers at once, with a budget that never ends."""
    return f"""{nginx_base(folder, "off")}
    default_type application/json;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            add_header X-RateLimit-Limit 100000000;
            add_header X-RateLimit-Remaining 90000000;
            add_header X-RateLimit-Used 10000000;
            add_header X-RateLimit-Resource core;
            add_header X-RateLimit-Reset {int(time.time()) + 3300};
            return 200 '{{"id":1,"title":"an issue"}}';
        }}
    }}
}}
"""


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


def one_round(ports, kind, first, folder, options):
    """Sends requests at a steady rate, each for another URL.

    Returns their latencies in ms without those of the first second, and the number of all.
    """
    each = options.rate / options.connections
    loads, logs = [], []
    for connection in range(options.connections):
        port, log = ports[connection % len(ports)], folder / f"load{connection}.log"
        count = int(each * options.seconds)
        number = first + connection * count
        urls = folder / f"urls{connection}"
        urls.write_text(
            "".join(
                f"http://127.0.0.1:{port}/repos/acme/widgets/issues/{number + n}\n"
                for n in range(count)
            )
        )
        log.unlink(missing_ok=True)
        command = ["h2load", "--h1", "-c1", "-t1", "-m1", f"--rps={each}", f"-n{count}"]
        command += ["-i", urls, f"--log-file={log}", "-H", f"Authorization: Bearer {KEY}"]
        loads.append(subprocess.Popen(command + KINDS[kind], stdout=subprocess.DEVNULL))
        logs.append(log)
    for load in loads:
        if load.wait() != 0:
            raise SystemExit("h2load failed")
    lines = [line.split("\t") for log in logs for line in log.read_text().splitlines()]
    if any(status != "200" for _, status, _ in lines):
        raise SystemExit("a request failed")
    # The programs that start take the cores of the first requests.
    steady = 1e6 * WARM_UP + min(int(begun) for begun, _, _ in lines)
    return [int(micros) / 1e3 for begun, _, micros in lines if int(begun) >= steady], len(lines)


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
    redis, upstream = free_port(), free_port()
    nginx = start_nginx(folder / "origin", origin_config(folder / "origin", upstream), core=None)
    processes.append(nginx)
    until_listening(nginx, upstream)
    command = ["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", ""]
    until_listening(begin(command, processes), redis)
    state = f'[state]\nredis = "redis://127.0.0.1:{redis}"\n'
    sets = {
        "alone": gateways(options.weir, folder, upstream, "", processes),
        "shared": gateways(options.weir, folder, upstream, state, processes),
    }
    # The replicas find each other, and their first parts.
    time.sleep(3)
    next_number = 1
    for kind in KINDS:
        results = {name: [] for name in sets}
        used, idle = [], []
        for round_number in range(options.rounds + 1):
            for name, ports in sets.items():
                before = operations(redis)
                latencies, count = one_round(ports, kind, next_number, folder, options)
                latencies.sort()
                next_number += count
                commands = operations(redis) - before
                # The first round warms up.
                if round_number == 0:
                    continue
                p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
                results[name].append((p50, p99))
                if name == "shared":
                    used.append(commands / count)
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
        added = (p50 - alone_p50, p99 - alone_p99, statistics.median(used))
        if kind == "uncached" and any(one > most for one, most in zip(added, ADDED_MAX)):
            sys.exit(f"FAILED: {kind}: more than {ADDED_MAX} (p50 and p99 in ms, operations)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="the program, built with --profile dist")
    parser.add_argument("--rate", type=int, default=2000, help="requests a second in all")
    parser.add_argument("--connections", type=int, default=30)
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
