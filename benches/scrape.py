#!/usr/bin/env python3
"""Measures what an operator's look costs a client, with 10,000 accounts.

scrape.py WEIR [--accounts N] [--rounds N] [--requests N]

A client sends paced hits and misses from one process: once alone, and once while another process
asks the admin listener for `/metrics` and `/api/budgets` again and again. The figures are the p50,
the p99 and the longest of its requests. The exit code is 1 when the medians of the p99s differ by
more than the bound. README.md describes the method and its limits.
"""

import argparse
import http.client
import itertools
import multiprocessing
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from attacks import ISSUES, PACE_SECONDS, exchange, request_head, serve_origin
from beside_nginx import KEY, free_port, until_listening, weir_config
from memory import CACHE

# The p99 that looks may add, in ms.
ADDED_MS_MAX = 1
PAGES = ("/metrics", "/api/budgets")
# The time between two looks. A Prometheus takes fifteen seconds.
LOOK_SECONDS = 0.5


def write_config(folder, origin, port, admin, accounts):
    """Writes a config whose one client reads through all accounts, and returns its path."""
    text = weir_config(origin, port, "rfc9111", CACHE.replace("4GiB", "256MiB"))
    listen = f'admin = "127.0.0.1:{admin}"\n[upstream]'
    text = text.replace("[upstream]", listen, 1)
    text = text.replace('[[clients]]\nname = "bench"\n', '[[clients]]\nname = "bench"\nreads = "all"\n')
    names = [f"bench-{number}" for number in range(accounts)]
    # A file has a largest size.
    for number in range(0, accounts, 1000):
        more = "".join(
            f'[[accounts]]\nname = "{name}"\nkind = "user"\n'
            f'[[tokens]]\naccount = "{name}"\nkind = "classic"\nsecret = {{ value = "{name}" }}\n'
            for name in names[number : number + 1000]
        )
        (folder / f"accounts-{number}.toml").write_text(more)
    pool = ", ".join(f'"{name}"' for name in names)
    text = f'include = ["accounts-*.toml"]\n{text}[[pools]]\nname = "all"\naccounts = [{pool}]\n'
    (folder / "weir.toml").write_text(text)
    return folder / "weir.toml"


def measure(port, count, first):
    """Returns the times in ms of hits and of misses, `count` of each. A miss is asked once."""
    received, times, due = bytearray(64 * 1024), ([], []), time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for number in range(first, first + count):
            for path, took in zip((f"{ISSUES}/1", f"{ISSUES}/{number}"), times):
                due = max(due + PACE_SECONDS, time.perf_counter() - PACE_SECONDS)
                time.sleep(max(0, due - time.perf_counter()))
                begun = time.perf_counter()
                exchange(connection, request_head("GET", path, KEY), received)
                took.append((time.perf_counter() - begun) * 1000)
    return times


def look(admin, looks, may_end):
    # The machine of a Prometheus is another one.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for path in itertools.cycle(PAGES):
        if may_end.wait(LOOK_SECONDS):
            return
        connection = http.client.HTTPConnection("127.0.0.1", admin)
        begun = time.perf_counter()
        connection.request("GET", path)
        length = len(connection.getresponse().read())
        connection.close()
        looks.put((path, length, time.perf_counter() - begun))


def measured(port, count, first):
    """Returns the p50s, the p99s and the longest in ms, of hits and of misses."""
    results = multiprocessing.Queue()
    client = multiprocessing.Process(target=lambda: results.put(measure(port, count, first)))
    client.start()
    times = results.get()
    client.join()
    figures = []
    for took in map(sorted, times):
        figures.append((took[len(took) // 2], took[len(took) * 99 // 100], took[-1]))
    return figures


def one_round(port, admin, count, first):
    alone = measured(port, count, first)
    looks, may_end = multiprocessing.Queue(), multiprocessing.Event()
    looking = multiprocessing.Process(target=look, args=(admin, looks, may_end))
    looking.start()
    beside = measured(port, count, first + count)
    may_end.set()
    seen = []
    while looking.is_alive() or not looks.empty():
        try:
            seen.append(looks.get(timeout=0.1))
        except Exception:  # The queue is empty.
            continue
    looking.join()
    if not seen:
        sys.exit("nobody looked meanwhile")
    return alone, beside, seen


def run(options, folder):
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    upstream = multiprocessing.Process(target=serve_origin, args=(listener,), daemon=True)
    upstream.start()
    port, admin = free_port(), free_port()
    at = write_config(folder, listener.getsockname()[1], port, admin, options.accounts)
    command = [options.weir, "serve", "--config", at]
    weir = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until_listening(weir, port)
        # Each account is asked once, so that it has budgets to show.
        received, first = bytearray(64 * 1024), 1
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for first in range(2, options.accounts + 2):
                exchange(connection, request_head("GET", f"{ISSUES}/{first}", KEY), received)
        rounds = []
        for number in range(options.rounds):
            begin = first + 1 + 2 * number * options.requests
            rounds.append(one_round(port, admin, options.requests, begin))
        return report(rounds)
    finally:
        weir.terminate()
        weir.wait()
        upstream.terminate()


def report(rounds):
    seen = [one for _, _, looks in rounds for one in looks]
    for path in PAGES:
        sizes = [(length, took) for page, length, took in seen if page == path]
        if sizes:
            mib = max(length for length, _ in sizes) / (1024 * 1024)
            took = statistics.median(took for _, took in sizes)
            print(f"{path}: {len(sizes)} looks, {mib:.1f} MiB, {took * 1000:.0f} ms")
    is_slow = False
    for index, name in enumerate(("hits", "misses")):
        for place, figure in enumerate(("p50", "p99", "longest")):
            alone = statistics.median(alone[index][place] for alone, _, _ in rounds)
            beside = statistics.median(beside[index][place] for _, beside, _ in rounds)
            print(f"{name}, {figure}: {alone:.2f} ms alone, {beside:.2f} ms beside the looks")
            is_slow |= figure == "p99" and beside - alone > ADDED_MS_MAX
    return is_slow


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="gateway program, built with --profile dist")
    parser.add_argument("--accounts", type=int, default=10_000, help="accounts of the config")
    parser.add_argument("--rounds", type=int, default=5, help="measurements, alone and beside")
    parser.add_argument("--requests", type=int, default=2000, help="hits and misses of each one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        is_slow = run(options, pathlib.Path(folder))
    if is_slow:
        print(f"FAILED: looks add more than {ADDED_MS_MAX} ms")
    sys.exit(1 if is_slow else 0)


if __name__ == "__main__":
    main()
