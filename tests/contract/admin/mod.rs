//! The admin listener, its page, the commands that query it, the request log, and reloads.

mod advice;
mod budgets;
mod connections;
mod cross_site;
pub mod operator;
mod otlp;
mod page;
mod purge;
mod queue;
mod refresh;
mod reload;
mod request_log;
mod requests;
mod secret_files;
mod telemetry;
mod tls;

use std::time::Duration;

use crate::support::{Reply, World, eventually};
use operator::ISSUES;

/// Holds a request by `concurrency = 1` for five seconds of the test's clock. `meanwhile` observes
/// it.
async fn hold_for_five_seconds<R>(world: &World, meanwhile: impl AsyncFnOnce() -> R) -> (Reply, R) {
    world.get(ISSUES).await.assert_status(200);
    let gate = world.close_gate("GET", "/repos/acme/widgets");
    let holder = world.get("/repos/acme/widgets");
    let watcher = async {
        world.held(gate, 1).await;
        let waiting = world.get("/repos/acme/sprockets");
        let look = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
            let seen = meanwhile().await;
            world.clock.advance(Duration::from_secs(5));
            world.open_gate(gate);
            seen
        };
        tokio::join!(waiting, look)
    };
    let (held, seen) = tokio::join!(holder, watcher);
    held.assert_status(200);
    seen
}
