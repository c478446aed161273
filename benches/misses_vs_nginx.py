#!/usr/bin/env python3
"""Compares answers that need a whole answer of the upstream, per second, with those of nginx.

misses_vs_nginx.py [WEIR [OTHER]...] [--answer issue|plain] [--rounds N] [--seconds N]
    [--log on|off]

`misses` are stored, each URL once, beside proxy_cache. `unstored` answers have `no-store`, beside
proxy_pass alone. One worker each, in alternating rounds. README.md describes the comparison and its
limits.
"""

from beside_nginx import (
    ANSWER_BYTES,
    CONNECTIONS,
    LOAD_CORE,
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
from revalidated_vs_nginx import Origin

# What the origin says of its answers in each case.
CONTROLS = {"misses": "private, max-age=60, s-maxage=60", "unstored": "no-store"}


class CaseOrigin(Origin):
    """The upstream, whose log nobody reads."""

    def __init__(self, kind, folder, control):
        self.control = control
        super().__init__(kind, folder)

    def config(self, folder):
        config = super().config(folder)
        config = config.replace(CONTROLS["misses"], self.control)
        config = config.replace('        add_header X-Accel-Expires "@1";\n', "")
        return config.replace(f"access_log {self.log} requests buffer=64k flush=100ms;", "")


def nginx_config(folder, origin, port, case, log):
    cached = f"""
            proxy_cache all;
            proxy_cache_key $request_uri;
            proxy_cache_valid 200 1h;
            proxy_ignore_headers Cache-Control Expires Vary;"""
    path = f"proxy_cache_path {folder}/all levels=1:2 keys_zone=all:64m max_size=4g use_temp_path=off;"
    return f"""{nginx_base(folder, log)}
    {path if case == "misses" else ""}
    upstream origin {{
        server 127.0.0.1:{origin};
        keepalive 64;
        keepalive_requests 1000000000;
        keepalive_timeout 1h;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";{cached if case == "misses" else ""}
        }}
    }}
}}
"""


def compare_case(case, options, folder, processes):
    (folder / "origin").mkdir(parents=True)
    origin = CaseOrigin(options.answer, folder / "origin", CONTROLS[case])
    processes.append(origin.process)
    until_listening(origin.process, origin.port)
    port = free_port()
    config = nginx_config(folder / "nginx", origin.port, port, case, options.log)
    nginx = start_nginx(folder / "nginx", config)
    processes.append(nginx)
    until_listening(nginx, port)
    servers = {"nginx": (port, worker_of(nginx.pid))}
    for number, program in enumerate(options.weir):
        port = free_port()
        config = weir_config(origin.port, port, "revalidate")
        weir = start_weir(program, folder / f"weir{number}", config, options.log)
        processes.append(weir)
        until_listening(weir, port)
        servers[f"other {number}" if number else "weir"] = (port, weir.pid)
    print(
        f"{case}: answers of {ANSWER_BYTES} bytes ({options.answer}), {CONNECTIONS} connections,"
        f" log {options.log}, {options.rounds} rounds of {options.seconds} s"
    )
    medians = measure(servers, options.rounds, options.seconds, unique=case == "misses")
    report(medians, case)


def compare(options, folder, processes):
    for case in CONTROLS:
        compare_case(case, options, folder / case, processes)


if __name__ == "__main__":
    run(__doc__.splitlines()[0], compare)
