#!/usr/bin/env python3
"""Compares cache hits per second of `weir serve` with those of nginx's proxy_cache.

hits_vs_nginx.py [WEIR [OTHER]...] [--protocol http|https|h2] [--answer issue|plain] [--rounds N]
    [--seconds N] [--log on|off]

Both serve the same answers with one worker each, in alternating rounds. Without WEIR, only nginx is
measured. OTHER is another build. README.md describes the comparison and its limits.
"""

import hashlib
import multiprocessing
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from beside_nginx import (
    ANSWER_BYTES,
    CONNECTIONS,
    URLS,
    answer,
    cache_config,
    fill,
    free_port,
    measure,
    report,
    run,
    start_nginx,
    start_weir,
    until_listening,
    weir_config,
    worker_of,
)


def serve_origin(kind, listener, requests):
    """Runs the upstream, which may be slow: only the first request for each URL reaches it."""
    origin = listener.getsockname()[1]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if self.path == "/rate_limit":
                # The gateway asks once whether its token is alive.
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                return
            with requests.get_lock():
                requests.value += 1
            body = answer(kind, int(self.path.rsplit("/", 1)[1]), origin)
            head = {
                "Content-Type": "application/json; charset=utf-8",
                "Content-Length": len(body),
                "Date": self.date_time_string(),
                "ETag": f'"{hashlib.sha256(body).hexdigest()}"',
                "Last-Modified": "Thu, 01 Oct 2026 00:00:00 GMT",
                "Cache-Control": "public, max-age=3600",
                "X-RateLimit-Limit": 5_000_000,
                "X-RateLimit-Remaining": 4_999_999,
                "X-RateLimit-Reset": int(time.time()) + 3600,
                "X-RateLimit-Resource": "core",
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            # One write for head and body, because the second of two would wait for an ACK.
            self.wfile.write(f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + body)

    # Only the parent reacts to Ctrl-C; the SIGTERM handler inherited from it must not run here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    server = ThreadingHTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def compare(options, folder, processes):
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    origin = listener.getsockname()[1]
    requests = multiprocessing.Value("Q", 0)
    upstream = multiprocessing.Process(
        target=serve_origin, args=(options.answer, listener, requests)
    )
    upstream.start()
    processes.append(upstream)

    plain, open_files = free_port(), free_port()
    ignored = "proxy_ignore_headers Cache-Control Expires Vary Set-Cookie X-Accel-Expires"
    nginx = start_nginx(
        folder / "nginx",
        cache_config(
            folder / "nginx",
            origin,
            plain,
            open_files,
            options.log,
            ignored,
            protocol=options.protocol,
        ),
    )
    processes.append(nginx)
    until_listening(nginx, plain)
    worker = worker_of(nginx.pid)
    servers = {"nginx": (plain, worker), "nginx, open_file_cache": (open_files, worker)}

    for number, program in enumerate(options.weir):
        port = free_port()
        # Weir serves fresh answers without revalidation, as nginx does.
        config = weir_config(origin, port, "rfc9111", protocol=options.protocol)
        weir = start_weir(program, folder / f"weir{number}", config, options.log)
        processes.append(weir)
        until_listening(weir, port)
        servers[f"other {number}" if number else "weir"] = (port, weir.pid)

    print(
        f"{URLS} answers of {ANSWER_BYTES} bytes ({options.answer}), {options.protocol},"
        f" {CONNECTIONS} connections, log {options.log}, {options.rounds} rounds of {options.seconds} s"
    )
    for name, (port, _) in servers.items():
        fill(name, port, options.protocol)
        stored = dict(fill(name, port, options.protocol))
        print(f"{name}: {stored.get('Cache-Status') or stored.get('cache-status') or 'filled'}")
    before = requests.value
    medians = measure(servers, options.rounds, options.seconds, protocol=options.protocol)
    if requests.value != before:
        sys.exit(f"{requests.value - before} requests reached the origin, so they were not hits")
    report(medians, "hits")


if __name__ == "__main__":
    run(__doc__.splitlines()[0], compare, ["http", "https", "h2"])
