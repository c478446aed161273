# The commands of this repository. Each target installs what it needs and does not find
# (deploy/setup.sh).

# Further options of `weir demo`, such as ARGS="--bots 0" to serve only, or ARGS="--replicas 3" for
# three gateways.
ARGS ?=
LISTEN ?= 127.0.0.1:8080
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# rustup and `cargo install` put their programs here; a new shell may not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# A default toolchain of the version that rust-toolchain.toml names serves under any name, so that
# rustup fetches nothing.
VERSION := $(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
ifneq (,$(findstring rustc $(VERSION) ,$(shell cd / && rustc --version 2>/dev/null)))
export RUSTUP_TOOLCHAIN ?= $(firstword $(shell cd / && rustup show active-toolchain 2>/dev/null))
endif

# All tests together save more time than this adds to their build. After a change, a plain `cargo
# test` of one of them is faster without it.
OPTIMIZED = --config profile.dev.package.weir.opt-level=1

# Seeds and virtual hours of `make soak`.
SEEDS ?= 1000
HOURS ?= 24

.PHONY: run test test-fast soak fuzz check bench setup

# The gateway in front of an emulated upstream, driven by sample bots. Ctrl-C ends it with a
# summary.
run: NEEDS = $(if $(findstring --replicas,$(ARGS)),replicas,build)
run: setup
	cargo run --locked --profile demo -- demo --listen $(LISTEN) $(ARGS)

# Everything, real client libraries included. Property tests draw the same cases each time, so that
# a failure follows from the change under test; `make soak` and a plain `cargo test` draw new ones.
# Another seed: `make test PROPTEST_RNG_SEED=2`. Most tests of the contract wait more than they
# compute, so there are more of them at once than a small machine has processors.
test: NEEDS = test
test: export PROPTEST_RNG_SEED ?= 1
test: export RUST_TEST_THREADS ?= 4
test: setup
	cargo test $(OPTIMIZED) --locked --no-fail-fast

# Unit tests, the contract and the repository's rules: no other languages, no network. Random tests
# draw a tenth of their cases.
test-fast: NEEDS = build
test-fast: export PROPTEST_RNG_SEED ?= 1
test-fast: export PROPTEST_CASES ?= 25
test-fast: setup
	cargo test --locked --no-fail-fast --lib --test contract --test tidy

# Property tests with many new cases; a million answers compared with the truth; hundreds of worlds
# of clients and pools, in which nobody may see what is not for it; then the promises about limits
# over whole days, for every seed, with reordering, lost answers and resets that wobble. A day of a
# thousand seeds takes about 45 minutes on two cores; `make soak SEEDS=50 HOURS=3` takes minutes. A
# failure prints its seed and the command that shows it again.
SOAK = $(TARGET_DIR)/release/weir simulate --seeds $(SEEDS) --reorder --wobble 1000
soak: NEEDS = build
soak: setup
	PROPTEST_CASES=5000 cargo test --locked --lib
	REQUESTS=1000000 cargo test --locked --release --test contract freshness -- --nocapture
	PROPTEST_CASES=500 cargo test --locked --release --test contract visibility -- --nocapture
	cargo build --locked --release
	$(SOAK) --strict --lost 1 --workload saturating --hours $(HOURS)
	$(SOAK) --lost 1 --workload saturating --hours $(HOURS) --outside 1/s
	$(SOAK) --strict --lost 1 --workload mixed --hours 2
	for workload in content oauth; do $(SOAK) --strict --workload $$workload --hours 3 || exit; done
	for workload in points graphql-points graphql-cpu cpu concurrency shares; do \
	    $(SOAK) --strict --workload $$workload --hours 0.1 --bots 300 || exit; \
	done
	$(SOAK) --lost 1 --workload secondary --hours 0.1
	for load in even skewed moving; do for replicas in 3 10; do \
	    $(SOAK) --strict --lost 1 --workload saturating --hours $(HOURS) --replicas $$replicas \
	        --balance $$load --skew 60s || exit; \
	done; done
	for fault in --kill --pause --partition --redis-away --flush; do \
	    for load in even skewed moving; do \
	        $(SOAK) --strict --workload saturating --hours 3 --replicas 3 --balance $$load \
	            --skew 60s $$fault 20m || exit; \
	    done; \
	    $(SOAK) --strict --workload points --hours 0.7 --replicas 3 $$fault 20m || exit; \
	done

# Every fuzz target on mutated seeds, two at once, for so many seconds each (tests/README.md,
# "Fuzzing"). A finding prints its input.
fuzz: NEEDS = build
fuzz: export FUZZ_SECONDS ?= 600
fuzz: setup
	cargo test --locked --release --lib -- fuzz:: --nocapture --test-threads 2

# Format, lints, dependencies, and the repository's own rules.
check: NEEDS = check
check: setup
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --bin weir --no-default-features -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --lib --document-private-items
	@if cargo deny fetch db; then \
	    cargo deny check --hide-inclusion-graph; \
	else \
	    cargo deny check --hide-inclusion-graph bans licenses sources && \
	    echo 'NOT CHECKED: advisories. The advisory database could not be fetched.'; \
	fi
	cargo test $(if $(CI),$(OPTIMIZED)) --locked --test tidy

# Hits and revalidated answers per second beside nginx's cache (benches/README.md). Five to eight
# minutes, most of them building.
bench: NEEDS = bench
bench: setup
	cargo build --locked --profile dist
	python3 benches/hits_vs_nginx.py $(TARGET_DIR)/dist/weir $(ARGS)
	python3 benches/revalidated_vs_nginx.py $(TARGET_DIR)/dist/weir $(ARGS)

setup:
	@sh deploy/setup.sh $(NEEDS)
