#!/usr/bin/env python3
"""Compares cache hits per second of `weir serve` with all telemetry on with those with all off.

telemetry.py WEIR [--rounds N] [--seconds N] [--sample RATIO] [--signals NAME,...] [--one-core]

The same program serves the same answers by two configs, one worker each, in alternating rounds.
`off` logs warnings alone and exports nothing. `on` writes its lines, exports traces, metrics and
logs to a collector that takes everything, and is scraped each second. `--one-core` keeps all threads
of the gateway on the core of its worker. README.md describes the method and its limits.
"""

import argparse
import http.client
import http.server
import multiprocessing
import os
import pathlib
import signal
import socket
import sys
import tempfile
import time

from beside_nginx import (
    SERVER_CORE,
    fill,
    free_port,
    measure,
    start_weir,
    until_listening,
    weir_config,
)
from hits_vs_nginx import serve_origin

# The share of the hits without telemetry that must be left.
RATIO_MIN = 0.95
SCRAPE_SECONDS = 1
# The lines of the log, and what is exported.
EXPORTED = ("traces", "metrics", "logs")
SIGNALS = ("lines", *EXPORTED)


def as_idle():
    """Leaves the cores to the gateway and its clients, as if on another machine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def serve_collector(listener):
    """Takes every export by HTTP."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"
            )

        def log_message(self, *_):
            pass

    as_idle()
    server = http.server.ThreadingHTTPServer(
        listener.getsockname(), Handler, bind_and_activate=False
    )
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def scrape(admin):
    as_idle()
    while True:
        time.sleep(SCRAPE_SECONDS)
        connection = http.client.HTTPConnection("127.0.0.1", admin)
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        connection.close()


def run(options, folder, processes):
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(2)]
    origin, collector = (listener.getsockname()[1] for listener in listeners)
    requests, admin = multiprocessing.Value("Q", 0), free_port()
    helpers = [
        (serve_origin, ("issue", listeners[0], requests)),
        (serve_collector, (listeners[1],)),
        (scrape, (admin,)),
    ]
    servers = {}
    for name in ("off", "on"):
        port = free_port()
        config = weir_config(origin, port, "rfc9111")
        if name == "on":
            config = config.replace("[upstream]", f'admin = "127.0.0.1:{admin}"\n[upstream]', 1)
            config += (
                f'[telemetry]\notlp_endpoint = "http://127.0.0.1:{collector}"\n'
                f'otlp_protocol = "http/protobuf"\nsample_ratio = {options.sample}\n'
            )
        if not servers:
            start_helper(processes, *helpers[0])
            start_helper(processes, *helpers[1])
        signals = options.signals if name == "on" else ()
        exporters = {
            f"OTEL_{signal.upper()}_EXPORTER": "otlp" if signal in signals else "none"
            for signal in EXPORTED
        }
        log = "on" if "lines" in signals or "logs" in signals else "off"
        core = SERVER_CORE if options.one_core else None
        weir = start_weir(options.weir, folder / name, config, log, core, **exporters)
        processes.append(weir)
        until_listening(weir, port)
        pin_worker(weir.pid)
        fill(name, port)
        servers[name] = (port, weir.pid)
    start_helper(processes, *helpers[2])
    return measure(servers, options.rounds, options.seconds)


def pin_worker(pid):
    """Keeps the thread that serves requests on its core."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid and (task / "comm").read_text().strip() == "weir":
            os.sched_setaffinity(int(task.name), {SERVER_CORE})


def start_helper(processes, target, arguments):
    process = multiprocessing.Process(target=target, args=arguments, daemon=True)
    process.start()
    processes.append(process)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="gateway program, built with --profile dist")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each config")
    parser.add_argument("--seconds", type=int, default=3, help="length of a measurement")
    parser.add_argument("--sample", type=float, default=0.01, help="part of the requests traced")
    parser.add_argument(
        "--signals",
        type=lambda names: names.split(","),
        default=list(SIGNALS),
        help="some of lines, traces, metrics and logs; exported logs come with the lines",
    )
    parser.add_argument(
        "--one-core", action="store_true", help="no other core for the threads of telemetry"
    )
    options = parser.parse_args()
    processes = []
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        try:
            medians = run(options, pathlib.Path(folder), processes)
        finally:
            for process in reversed(processes):
                process.terminate()
    on, off = medians["on"], medians["off"]
    rate, cpu = on["per_second"] / off["per_second"], on["cpu_us"] / off["cpu_us"]
    print(f"\non / off: hits per second {rate:.2f}, CPU per request {cpu:.2f}")
    if rate < RATIO_MIN:
        sys.exit(f"FAILED: below {RATIO_MIN}")


if __name__ == "__main__":
    main()
