#!/usr/bin/env python3
"""Compares revalidated answers per second of `weir serve` with proxy_cache_revalidate of nginx.

revalidated_vs_nginx.py [WEIR [OTHER]...] [--answer issue|plain] [--rounds N] [--seconds N]
    [--log on|off]

Both serve the same answers with one worker each, in alternating rounds. Each answer is revalidated
by one conditional request, which must appear in the origin's log. Without WEIR, only nginx is
measured. OTHER is another build. README.md describes the comparison and its limits.
"""

import collections
import sys
import time

from beside_nginx import (
    ANSWER_BYTES,
    CONNECTIONS,
    LOAD_CORE,
    URLS,
    answer,
    cache_config,
    fill,
    free_port,
    measure,
    nginx_base,
    report,
    run,
    start_nginx,
    start_weir,
    until_listening,
    weir_config,
    worker_of,
)

# Longer than any run.
ONE_HOUR = 3600


class Origin:
    """The upstream: nginx with a file for each answer, on the same core as the load.

    Its answers are the same for every server, and its log shows the requests.
    """

    def __init__(self, kind, folder):
        self.port = free_port()
        issues = folder / "files" / "repos" / "acme" / "widgets" / "issues"
        issues.mkdir(parents=True)
        for number in range(1, URLS + 1):
            (issues / str(number)).write_bytes(answer(kind, number, self.port))
        self.log = folder / "requests.log"
        self.process = start_nginx(folder, self.config(folder), LOAD_CORE)
        self.read = 0

    def config(self, folder):
        # X-Accel-Expires makes answers stale in nginx at once; the other headers are the service's.
        return f"""{nginx_base(folder, log=None)}
    log_format requests "$status $http_if_modified_since";
    access_log {self.log} requests buffer=64k flush=100ms;
    open_file_cache max=2000 inactive=1h;
    open_file_cache_valid 1h;
    types {{ }}
    default_type application/json;
    charset utf-8;
    charset_types application/json;
    server {{
        listen 127.0.0.1:{self.port} backlog=1024;
        root {folder}/files;
        add_header Cache-Control "private, max-age=60, s-maxage=60";
        add_header X-Accel-Expires "@1";
        add_header X-RateLimit-Limit 5000000;
        add_header X-RateLimit-Remaining 4999999;
        add_header X-RateLimit-Reset {int(time.time()) + ONE_HOUR};
        add_header X-RateLimit-Resource core;
        # The gateway asks once whether its token is alive.
        location = /rate_limit {{
            access_log off;
        }}
    }}
}}
"""

    def count_requests(self, at_least):
        """Counts the requests since the last call by (status, conditional).

        It waits up to 5 s until the log has `at_least` as many and stops growing.
        """
        counts = collections.Counter()
        deadline = time.monotonic() + 5
        # nginx flushes its log after 0.1 s, so a log that has not grown for 0.3 s is complete.
        settled = False
        while not settled and time.monotonic() < deadline:
            time.sleep(0.3)
            before = counts.total()
            with self.log.open() as log:
                log.seek(self.read)
                for line in log:
                    status, condition = line.rstrip("\n").split(" ", 1)
                    counts[(int(status), condition != "-")] += 1
                self.read = log.tell()
            settled = counts.total() == before and before >= at_least
        return counts


def check_revalidations(name, counts, answers, in_flight):
    """Checks that each answer caused one conditional request with status 304.

    Up to `in_flight` further ones may come from requests that the end of the load cut off.
    """
    revalidations = counts[(304, True)]
    if counts.total() != revalidations or not answers <= revalidations <= answers + in_flight:
        sys.exit(
            f"{name}: {answers} answers,"
            f" but the origin counted (status, conditional): {dict(counts)}"
        )


def compare(options, folder, processes):
    (folder / "origin").mkdir()
    origin = Origin(options.answer, folder / "origin")
    processes.append(origin.process)
    until_listening(origin.process, origin.port)

    plain, open_files = free_port(), free_port()
    directives = [
        "proxy_cache_revalidate on",
        "proxy_ignore_headers Cache-Control Expires Vary Set-Cookie",
    ]
    nginx = start_nginx(
        folder / "nginx",
        cache_config(folder / "nginx", origin.port, plain, open_files, options.log, *directives),
    )
    processes.append(nginx)
    until_listening(nginx, plain)
    worker = worker_of(nginx.pid)
    servers = {"nginx": (plain, worker), "nginx, open_file_cache": (open_files, worker)}

    for number, program in enumerate(options.weir):
        port = free_port()
        config = weir_config(origin.port, port, "revalidate")
        weir = start_weir(program, folder / f"weir{number}", config, options.log)
        processes.append(weir)
        until_listening(weir, port)
        servers[f"other {number}" if number else "weir"] = (port, weir.pid)

    print(
        f"{URLS} answers of {ANSWER_BYTES} bytes ({options.answer}), {CONNECTIONS} connections,"
        f" log {options.log}, {options.rounds} rounds of {options.seconds} s"
    )
    for name, (port, _) in servers.items():
        fill(name, port)
        filled = origin.count_requests(URLS)
        if filled != {(200, False): URLS}:
            sys.exit(
                f"{name}: while the cache was filled,"
                f" the origin counted (status, conditional): {dict(filled)}"
            )
        stored = dict(fill(name, port))
        check_revalidations(name, origin.count_requests(URLS), URLS, in_flight=0)
        print(f"{name}: {stored.get('Cache-Status') or stored.get('cache-status') or 'filled'}")
    medians = measure(
        servers,
        options.rounds,
        options.seconds,
        lambda name, result: check_revalidations(
            name, origin.count_requests(result["requests"]), result["requests"], CONNECTIONS
        ),
    )
    report(medians, "revalidated")


if __name__ == "__main__":
    run(__doc__.splitlines()[0], compare)
