#!/bin/sh
# Installs what the Makefile's targets need and do not find:
# setup.sh [build|replicas|test|check|bench], `build` by default.
# As root with apt it installs packages; otherwise it prints the one command to run and stops with 1.
# Rust needs no root and is always installed.
set -eu
export PATH="$PATH:$HOME/.cargo/bin"

purpose=${1:-build}
missing=

# need COMMAND PACKAGE…: a command and the packages, by their Debian names, that bring it.
need() {
    command -v "$1" >/dev/null 2>&1 && return
    shift
    missing="$missing $*"
}

# pingora's zlib is compiled by cmake, ring and mimalloc by the C compiler.
need cc gcc libc6-dev
need cmake cmake
command -v cargo >/dev/null 2>&1 || need curl curl ca-certificates
case $purpose in
build | check) ;;
replicas)
    # `weir demo --replicas` starts it.
    need redis-server redis-server
    ;;
test)
    # The real clients of tests/clients/ are npm and Python packages; the tests fetch those themselves.
    need node nodejs
    need npm npm
    need python3 python3
    # On Debian the part that puts pip into a virtual environment is a package of its own.
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
    # The commands of the papers (tests/clients/papers/).
    need bash bash
    need curl curl ca-certificates
    need jq jq
    # A real client (tests/clients/gh.rs).
    need gh gh
    # A browser for the admin page (tests/clients/page.rs).
    command -v google-chrome >/dev/null 2>&1 || need chromium chromium
    # What replicas share (src/state/redis/).
    need redis-server redis-server
    # The alerts, the dashboard and the units (tests/deploy/).
    need prometheus prometheus
    if [ "$(uname)" = Linux ]; then need systemd-analyze systemd; fi
    ;;
bench)
    need nginx nginx-light
    need wrk wrk
    need h2load nghttp2-client
    need python3 python3
    ;;
*)
    echo "setup.sh: unknown purpose '$purpose'; there are build, replicas, test, check and bench" >&2
    exit 2
    ;;
esac

if [ -n "$missing" ]; then
    install="apt-get update && apt-get install -y --no-install-recommends$missing"
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        echo "installing:$missing"
        DEBIAN_FRONTEND=noninteractive sh -c "$install" </dev/null
    else
        if command -v apt-get >/dev/null 2>&1; then
            command="sudo sh -c '$install'"
        elif command -v dnf >/dev/null 2>&1; then
            command="sudo dnf install -y$(echo "$missing" | sed 's/libc6-dev/glibc-devel/; s/python3-venv/python3/; s/nginx-light/nginx/; s/redis-server/redis/; s/ prometheus/ golang-github-prometheus/')"
        elif command -v brew >/dev/null 2>&1; then
            command="brew install$(echo "$missing" | sed 's/ libc6-dev//; s/nodejs/node/; s/ npm//; s/ python3-venv//; s/nginx-light/nginx/; s/redis-server/redis/')"
        else
            command="(your package manager) install$missing"
        fi
        printf 'something is missing. Run this, then the same make target again:\n\n    %s\n\n' "$command" >&2
        exit 1
    fi
fi

# The toolchain itself follows from rust-toolchain.toml.
if ! command -v cargo >/dev/null 2>&1; then
    echo 'Rust is missing: installing rustup from https://rustup.rs into ~/.cargo, minimal profile.'
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --profile minimal --default-toolchain none
    (cd "$(dirname "$0")/.." && rustup toolchain install)
fi
if [ "$purpose" = check ] && ! command -v cargo-deny >/dev/null 2>&1; then
    cargo install cargo-deny --locked
fi
