"""Common parts of the comparisons with nginx: answers, processes, load and figures.

`hits_vs_nginx.py` and `revalidated_vs_nginx.py` hold the compared cases and their configs.
README.md explains the method.
"""

import argparse
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
URLS = 1_000
ANSWER_BYTES = 2_048
CONNECTIONS = 32
# Streams at once on each connection of HTTP/2.
STREAMS = 8
# The same certificate for all servers.
CERTIFICATE = HERE.parent / "tests/support/certificates/server.pem"
KEY = "weir_bench_" + "0" * 32
SERVER_CORE, LOAD_CORE = 0, 1
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def answer(kind, number, origin):
    """Returns an issue of exactly ANSWER_BYTES.

    The kind `issue` contains API URLs, which the gateway rewrites for each client.
    """
    body = {
        "id": number,
        "number": number,
        "title": f"Issue {number}",
        "state": "open",
        "locked": False,
        "comments": 3,
    }
    if kind == "issue":
        api = f"http://127.0.0.1:{origin}/repos/acme/widgets"
        issue = f"{api}/issues/{number}"
        body |= {
            "url": issue,
            "repository_url": api,
            "comments_url": f"{issue}/comments",
            "events_url": f"{issue}/events",
        }
        body["labels_url"] = f"{issue}/labels{{/name}}"
        body["user"] = {
            "login": "octo",
            "url": f"http://127.0.0.1:{origin}/users/octo",
            "repos_url": f"http://127.0.0.1:{origin}/users/octo/repos",
        }
        body["timeline_url"] = f"{issue}/timeline"
    body["body"] = ""
    body["body"] = "x" * (ANSWER_BYTES - len(json.dumps(body)))
    return json.dumps(body).encode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nginx_base(folder, log):
    """Returns the start of every nginx config: one worker, with all of its files in `folder`."""
    # Log lines are buffered, as in the gateway.
    access_log = {
        "on": "access_log /dev/null combined buffer=128k flush=20ms;",
        "off": "access_log off;",
    }.get(log, "")
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
"""


def cache_config(folder, origin, plain, open_files, log, *directives, protocol="http"):
    """Returns a config with two caching servers in one worker.

    They differ only in open_file_cache, which saves nginx an open() and a close() for each hit.
    """
    server = """
    server {{
        listen 127.0.0.1:{port} backlog=1024{tls};
        {extra}
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache {zone};
            proxy_cache_key $request_uri;
            proxy_cache_valid 200 1h;
            {directives}
        }}
    }}"""
    directives = "\n            ".join(f"{directive};" for directive in directives)
    tls = {"http": "", "https": " ssl", "h2": " ssl http2"}[protocol]
    # By default, a session of TLS is not resumed; the connections of the load stay open anyway.
    certificate = f"""
    ssl_certificate {CERTIFICATE};
    ssl_certificate_key {CERTIFICATE};""" if tls else ""
    file_cache = "open_file_cache max=2000 inactive=1h; open_file_cache_valid 1h;"
    # By default, nginx closes a connection to the origin after 1,000 requests.
    return f"""{nginx_base(folder, log)}
    proxy_cache_path {folder}/plain levels=1:2 keys_zone=plain:10m inactive=1h max_size=256m
        use_temp_path=off;
    proxy_cache_path {folder}/open levels=1:2 keys_zone=open:10m inactive=1h max_size=256m
        use_temp_path=off;
    upstream origin {{
        server 127.0.0.1:{origin};
        keepalive 64;
        keepalive_requests 1000000000;
        keepalive_timeout 1h;
    }}
    {certificate}
    {server.format(port=plain, tls=tls, zone="plain", directives=directives, extra="")}
    {server.format(port=open_files, tls=tls, zone="open", directives=directives, extra=file_cache)}
}}
"""


def weir_config(origin, port, freshness, more="", protocol="http"):
    """Returns the gateway's config; `more` holds further lines of [cache].

    The limits are too high to be reached, so that the figures contain no waiting time.
    """
    secured = f'{{ address = "127.0.0.1:{port}", cert = "{CERTIFICATE}", key = "{CERTIFICATE}" }}'
    listen = f'http = ["127.0.0.1:{port}"]' if protocol == "http" else f"http = []\nhttps = {secured}"
    return f"""
[listen]
{listen}
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
freshness = "{freshness}"
{more}
[limits]
concurrency = 1000
rest_points_per_minute = 1000000000
cpu_seconds_per_minute = 1000000
"""


def pinned(core):
    return lambda: os.sched_setaffinity(0, {core})


def start(command, log, core=SERVER_CORE, **environment):
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=None if core is None else pinned(core),
        env=os.environ | environment,
    )


def start_nginx(folder, config, core=SERVER_CORE):
    """Starts nginx with all of its files in `folder`; returns its master process."""
    folder.mkdir(exist_ok=True)
    (folder / "nginx.conf").write_text(config)
    return start(
        [
            shutil.which("nginx") or "/usr/sbin/nginx",
            "-e",
            f"{folder}/nginx-errors.log",
            "-c",
            f"{folder}/nginx.conf",
        ],
        None,
        core,
    )


def start_weir(program, folder, config, log, core=SERVER_CORE, **environment):
    """Checks the config, then starts the gateway with one worker."""
    folder.mkdir(exist_ok=True)
    file = folder / "weir.toml"
    file.write_text(config)
    checked = subprocess.run([program, "check", "--config", file], capture_output=True, text=True)
    if checked.returncode:
        sys.exit(f"the gateway refuses the benchmark's config:\n{checked.stderr}")
    # Only the log level turns off the gateway's request lines.
    environment |= {"WEIR_LOG": "info" if log == "on" else "warn"}
    command = [program, "serve", "--config", file, "--threads", "1"]
    return start(command, subprocess.DEVNULL, core, **environment)


def worker_of(master):
    """Returns nginx's only worker; the master and the cache manager do no work for a hit."""
    children = pathlib.Path(f"/proc/{master}/task/{master}/children").read_text().split()
    workers = [
        int(pid)
        for pid in children
        if b"worker process" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
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


def fill(name, port, protocol="http"):
    """Requests every URL once, over one connection; returns the headers of the last answer."""
    if protocol == "http":
        connection = http.client.HTTPConnection("127.0.0.1", port)
    else:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/vnd.github+json"}
    for number in range(1, URLS + 1):
        connection.request("GET", f"/repos/acme/widgets/issues/{number}", headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200 or json.loads(body)["number"] != number:
            sys.exit(f"{name} answered {response.status} for issue {number}: {body[:300]!r}")
    return response.getheaders()


def cpu_seconds(pid):
    # Fields 14 and 15 of proc(5) stat, counted after the name because it may contain spaces.
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def run_load(command, pid):
    """Runs a load on its core; returns its output, and the server's CPU seconds."""
    before = cpu_seconds(pid)
    output = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=pinned(LOAD_CORE),
    ).stdout
    spent = cpu_seconds(pid) - before
    return output, spent


def round_of_h2load(port, pid, seconds):
    """The same over HTTP/2."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        urls, log = pathlib.Path(folder) / "urls", pathlib.Path(folder) / "log"
        path = f"https://127.0.0.1:{port}/repos/acme/widgets/issues"
        urls.write_text("".join(f"{path}/{number}\n" for number in range(1, URLS + 1)))
        command = [
            "h2load",
            "-t1",
            f"-c{CONNECTIONS}",
            f"-m{STREAMS}",
            f"-D{seconds}",
            f"--log-file={log}",
            f"--header=authorization: Bearer {KEY}",
            "--header=accept: application/vnd.github+json",
            "-i",
            str(urls),
        ]
        output, spent = run_load(command, pid)
        lines = [line.split("\t") for line in log.read_text().splitlines()]
    # Start of the request, status, microseconds. A request that the end cut off has no status.
    times = sorted(int(line[2]) for line in lines if line[1] == "200")
    if not times or any(line[1] not in ("200", "-1", "0") for line in lines):
        sys.exit(f"port {port}: requests failed\n{output}")
    return {
        "requests": len(times),
        "per_second": len(times) / seconds,
        "p50_ms": times[len(times) // 2] / 1e3,
        "p99_ms": times[len(times) * 99 // 100] / 1e3,
        "cpu_us": spent / len(times) * 1e6,
    }


def round_of_load(port, pid, seconds, protocol="http", prefix=None):
    """One round; with a prefix, no URL comes twice."""
    if protocol == "h2":
        return round_of_h2load(port, pid, seconds)
    command = [
        "wrk",
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "-s",
        str(HERE / "urls.lua"),
        f"{protocol}://127.0.0.1:{port}",
        "--",
        KEY,
        *([prefix] if prefix else []),
    ]
    output, spent = run_load(command, pid)
    result = json.loads(
        next(line for line in output.splitlines() if line.startswith("RESULT ")).removeprefix(
            "RESULT "
        )
    )
    if result["failed"]:
        sys.exit(
            f"port {port}: {result['failed']} of {result['requests']} requests failed\n{output}"
        )
    return {
        "requests": result["requests"],
        "per_second": result["requests"] / result["microseconds"] * 1e6,
        "p50_ms": result["p50_us"] / 1e3,
        "p99_ms": result["p99_us"] / 1e3,
        "cpu_us": spent / result["requests"] * 1e6,
    }


def measure(
    servers, rounds, seconds, check=lambda name, result: None, protocol="http", unique=False
):
    """Runs alternating rounds and returns the median of each figure.

    Alternation spreads a disturbance of the machine over all servers. The first round only warms
    up. `check` gets the result of each round.
    """
    figures = {name: [] for name in servers}
    for index in range(rounds + 1):
        for name, (port, pid) in servers.items():
            prefix = f"{name[0]}{index}-" if unique else None
            result = round_of_load(port, pid, seconds if index else 2, protocol, prefix)
            check(name, result)
            if index:
                figures[name].append(result)
                print(
                    f"round {index}  {name:24} {result['per_second']:8.0f}/s"
                    f"  p99 {result['p99_ms']:6.2f} ms  {result['cpu_us']:5.1f} us/request",
                    flush=True,
                )
    return {
        name: {
            field: statistics.median(result[field] for result in results) for field in results[0]
        }
        for name, results in figures.items()
    }


def report(medians, what):
    print(f"\nmedians                     {what + '/s':>14}   p50 ms   p99 ms   CPU us/request")
    for name, median in medians.items():
        print(
            f"  {name:24} {median['per_second']:14.0f} {median['p50_ms']:8.2f}"
            f" {median['p99_ms']:8.2f} {median['cpu_us']:10.1f}"
        )
    if "weir" in medians:
        print()
        for name in [name for name in medians if name != "weir"]:
            rate, tail, cpu = (
                medians["weir"][field] / medians[name][field]
                for field in ("per_second", "p99_ms", "cpu_us")
            )
            print(
                f"weir / {name:24} {what} per second {rate:.2f}, p99 {tail:.2f},"
                f" CPU per request {cpu:.2f}"
            )


def arguments(description, protocols):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "weir",
        nargs="*",
        help="gateway program, built with --profile dist, and others to compare it with; without"
        " any, only nginx is measured",
    )
    parser.add_argument(
        "--answer",
        choices=["issue", "plain"],
        default="issue",
        help="kind of answer: with or without API URLs",
    )
    parser.add_argument(
        "--protocol",
        choices=protocols,
        default="http",
        help="of the load: plain HTTP/1.1, HTTP/1.1 over TLS, HTTP/2 over TLS",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="duration of each round")
    parser.add_argument(
        "--log",
        choices=["on", "off"],
        default="on",
        help="access log of all servers: one line per request to /dev/null",
    )
    return parser.parse_args()


def run(description, compare, protocols=("http",)):
    """Runs `compare(options, folder, processes)` and always ends the processes it started."""
    options = arguments(description, protocols)
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two cores are needed: one for the server, one for the load")
    for program in ["nginx", "h2load" if options.protocol == "h2" else "wrk"]:
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
