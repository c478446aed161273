#!/usr/bin/env python3
"""Hits per second of `weir serve` beside nginx's proxy_cache: the same answers, one worker each, alternating rounds.

hits_vs_nginx.py [WEIR] [--answer issue|plain] [--rounds N] [--seconds N] [--log on|off]

Without WEIR only nginx is measured. What is compared, and what is not, stands in README.md beside this file.
"""

import argparse
import hashlib
import http.client
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = pathlib.Path(__file__).resolve().parent
URLS = 1_000
ANSWER_BYTES = 2_048
CONNECTIONS = 32
KEY = "weir_bench_" + "0" * 32
SERVER_CORE, LOAD_CORE = 0, 1
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def answer(kind, number, origin):
    """An issue of exactly ANSWER_BYTES; `issue` has the API URLs that the gateway rewrites for each client, `plain` has none."""
    body = {"id": number, "number": number, "title": f"Issue {number}", "state": "open", "locked": False, "comments": 3}
    if kind == "issue":
        api = f"http://127.0.0.1:{origin}/repos/acme/widgets"
        issue = f"{api}/issues/{number}"
        body |= {"url": issue, "repository_url": api, "comments_url": f"{issue}/comments", "events_url": f"{issue}/events"}
        body["labels_url"] = f"{issue}/labels{{/name}}"
        body["user"] = {"login": "octo", "url": f"http://127.0.0.1:{origin}/users/octo", "repos_url": f"http://127.0.0.1:{origin}/users/octo/repos"}
        body["timeline_url"] = f"{issue}/timeline"
    body["body"] = ""
    body["body"] = "x" * (ANSWER_BYTES - len(json.dumps(body)))
    return json.dumps(body).encode()


def serve_origin(kind, listener, asked):
    """The upstream: few and slow answers are enough, because only the first request for each URL gets here."""
    origin = listener.getsockname()[1]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            with asked.get_lock():
                asked.value += 1
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
            # Head and body in one write: two would each wait for an acknowledgement.
            self.wfile.write(f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + body)

    # Ctrl-C is the parent's business; what it inherits from the parent's handlers is not this process's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    server = ThreadingHTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nginx_config(folder, origin, plain, open_files, log):
    """Two servers in one worker, alike but for open_file_cache, which spares nginx an open() and a close() for each hit."""
    # A log to /dev/null is one write for each request, as the gateway's log is.
    access_log = "access_log /dev/null;" if log == "on" else "access_log off;"
    server = """
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        {extra}
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache {zone};
            proxy_cache_key $request_uri;
            proxy_cache_valid 200 1h;
            proxy_ignore_headers Cache-Control Expires Vary Set-Cookie X-Accel-Expires;
        }}
    }}"""
    return f"""
{"user root;" if os.geteuid() == 0 else ""}
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-errors.log;
events {{ worker_connections 1024; }}
http {{
    {access_log}
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/temp;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    proxy_cache_path {folder}/plain levels=1:2 keys_zone=plain:10m inactive=1h max_size=256m use_temp_path=off;
    proxy_cache_path {folder}/open levels=1:2 keys_zone=open:10m inactive=1h max_size=256m use_temp_path=off;
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 32; }}
    {server.format(port=plain, zone="plain", extra="")}
    {server.format(port=open_files, zone="open", extra="open_file_cache max=2000 inactive=1h; open_file_cache_valid 1h;")}
}}
"""


def weir_config(origin, port):
    """Fresh answers without asking, as nginx does, and limits that filling the cache does not meet."""
    return f"""
[listen]
http = ["127.0.0.1:{port}"]
[upstream]
url = "http://127.0.0.1:{origin}"
dialect = "github"
[[accounts]]
name = "bench"
kind = "user"
[[tokens]]
account = "bench"
kind = "classic"
secret = {{ value = "not-a-secret" }}
[[clients]]
name = "bench"
key_sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
[cache]
freshness = "rfc9111"
[limits]
rest_points_per_minute = 1000000
cpu_seconds_per_minute = 100000
"""


def pinned(core):
    return lambda: os.sched_setaffinity(0, {core})


def start(command, log, **environment):
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=pinned(SERVER_CORE), env=os.environ | environment
    )


def worker_of(master):
    """nginx's one worker; its master and its cache manager do nothing for a hit."""
    children = pathlib.Path(f"/proc/{master}/task/{master}/children").read_text().split()
    workers = [int(pid) for pid in children if b"worker process" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
    if len(workers) != 1:
        sys.exit(f"nginx has {len(workers)} workers, not one")
    return workers[0]


def until_listening(process, port):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"{process.args[0]} ended with {process.returncode} instead of listening")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port} after 10 s")


def fill(name, port):
    """Asks for every URL once, over one connection; returns the last answer's headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/vnd.github+json"}
    for number in range(1, URLS + 1):
        connection.request("GET", f"/repos/acme/widgets/issues/{number}", headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200 or json.loads(body)["number"] != number:
            sys.exit(f"{name} answered {response.status} for issue {number}: {body[:300]!r}")
    return response.getheaders()


def cpu_seconds(pid):
    # Fields 14 and 15 of proc(5) stat, counted after the name, which may hold spaces.
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def round_of_load(port, pid, seconds):
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(HERE / "urls.lua"), f"http://127.0.0.1:{port}", "--", KEY]
    before = cpu_seconds(pid)
    output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, preexec_fn=pinned(LOAD_CORE)).stdout
    spent = cpu_seconds(pid) - before
    result = json.loads(next(line for line in output.splitlines() if line.startswith("RESULT ")).removeprefix("RESULT "))
    if result["failed"]:
        sys.exit(f"port {port}: {result['failed']} of {result['requests']} requests failed; only hits are compared\n{output}")
    return {
        "per_second": result["requests"] / result["microseconds"] * 1e6,
        "p50_ms": result["p50_us"] / 1e3,
        "p99_ms": result["p99_us"] / 1e3,
        "cpu_us": spent / result["requests"] * 1e6,
    }


def measure(servers, rounds, seconds):
    """Alternating rounds, so that whatever else slows the machine down slows all down alike; the first round only warms up."""
    figures = {name: [] for name in servers}
    for index in range(rounds + 1):
        for name, (port, pid) in servers.items():
            result = round_of_load(port, pid, seconds if index else 2)
            if index:
                figures[name].append(result)
                print(f"round {index}  {name:24} {result['per_second']:8.0f}/s  p99 {result['p99_ms']:6.2f} ms  {result['cpu_us']:5.1f} us/request", flush=True)
    return {name: {field: statistics.median(result[field] for result in results) for field in results[0]} for name, results in figures.items()}


def report(medians):
    print("\nmedians                           hits/s   p50 ms   p99 ms   CPU us/request")
    for name, median in medians.items():
        print(f"  {name:24} {median['per_second']:12.0f} {median['p50_ms']:8.2f} {median['p99_ms']:8.2f} {median['cpu_us']:10.1f}")
    if "weir" in medians:
        print()
        for name in [name for name in medians if name != "weir"]:
            rate, tail, cpu = (medians["weir"][field] / medians[name][field] for field in ("per_second", "p99_ms", "cpu_us"))
            print(f"weir / {name:24} hits per second {rate:.2f}, p99 {tail:.2f}, CPU per request {cpu:.2f}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", nargs="?", help="the program, built with --profile dist; without it only nginx is measured")
    parser.add_argument("--answer", choices=["issue", "plain"], default="issue", help="with API URLs in it, or without")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each round")
    parser.add_argument("--log", choices=["on", "off"], default="on", help="one line a request to /dev/null, by all or by none")
    return parser.parse_args()


def main():
    options = arguments()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two cores are needed: one for the server, one for the load")
    for program in ["nginx", "wrk"]:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin"):
            sys.exit(f"{program} is missing; `make bench` installs it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))

    processes = []
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        try:
            compare(options, pathlib.Path(folder), processes)
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait() if isinstance(process, subprocess.Popen) else process.join()


def compare(options, folder, processes):
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    origin = listener.getsockname()[1]
    asked = multiprocessing.Value("Q", 0)
    upstream = multiprocessing.Process(target=serve_origin, args=(options.answer, listener, asked))
    upstream.start()
    processes.append(upstream)

    plain, open_files = free_port(), free_port()
    (folder / "nginx.conf").write_text(nginx_config(folder, origin, plain, open_files, options.log))
    nginx = start([shutil.which("nginx") or "/usr/sbin/nginx", "-e", f"{folder}/nginx-errors.log", "-c", f"{folder}/nginx.conf"], None)
    processes.append(nginx)
    until_listening(nginx, plain)
    worker = worker_of(nginx.pid)
    servers = {"nginx": (plain, worker), "nginx, open_file_cache": (open_files, worker)}

    if options.weir:
        port = free_port()
        (folder / "weir.toml").write_text(weir_config(origin, port))
        checked = subprocess.run([options.weir, "check", "--config", f"{folder}/weir.toml"], capture_output=True, text=True)
        if checked.returncode:
            sys.exit(f"the gateway refuses the benchmark's config:\n{checked.stderr}")
        # The gateway has no switch for its request lines but its log level.
        environment = {"WEIR_LOG": "info" if options.log == "on" else "warn"}
        weir = start([options.weir, "serve", "--config", f"{folder}/weir.toml", "--threads", "1"], subprocess.DEVNULL, **environment)
        processes.append(weir)
        until_listening(weir, port)
        servers["weir"] = (port, weir.pid)

    print(f"{URLS} answers of {ANSWER_BYTES} bytes ({options.answer}), {CONNECTIONS} connections, log {options.log}, {options.rounds} rounds of {options.seconds} s")
    for name, (port, _) in servers.items():
        fill(name, port)
        stored = dict(fill(name, port))
        print(f"{name}: {stored.get('Cache-Status') or stored.get('cache-status') or 'filled'}")
    before = asked.value
    medians = measure(servers, options.rounds, options.seconds)
    if asked.value != before:
        sys.exit(f"{asked.value - before} requests went to the origin: these were not hits")
    report(medians)


if __name__ == "__main__":
    main()
