//! Fetches the keys of the issuers of tokens: at the start, again and again, and when a token names
//! a key that is not there. Each issuer has a task of its own, so that a slow one delays no other.

use std::sync::{Arc, Weak};

use crate::clock::Clock;
use crate::gateway::request::oidc::issuer::Issuer;

/// Begins a task for each issuer that has none yet. It ends with its issuer.
pub fn keep_fetching_all(issuers: &[Arc<Issuer>], clock: &Clock) {
    for issuer in issuers.iter().filter(|issuer| issuer.needs_task()) {
        tokio::spawn(keep_fetching(Arc::downgrade(issuer), clock.clone()));
    }
}

async fn keep_fetching(issuer: Weak<Issuer>, clock: Clock) {
    loop {
        let Some(strong) = issuer.upgrade() else { return };
        strong.fetch(clock.now()).await;
        let (wanted, pause) = (Arc::clone(&strong.wanted), strong.pause());
        drop(strong);
        tokio::select! {
            () = clock.reach(clock.now() + pause) => {}
            () = wanted.notified() => {}
        }
    }
}
