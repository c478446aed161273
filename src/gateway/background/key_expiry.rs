//! Warnings of clients' keys that end soon or have ended (SPECIFICATION, "Keys"): one line for each
//! such key and day.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::config::Config;
use crate::gateway::environment::Environment;

/// Pause between two looks at the keys. Chosen here: a key may end at any hour.
const PAUSE: Duration = Duration::from_hours(1);
/// The distance of two lines about one key.
const AGAIN: Duration = Duration::from_hours(24);

/// Looks at the keys of the config in force again and again, until there is none.
pub async fn keep_warning(env: impl Fn() -> Option<Arc<Environment>>) {
    let mut warned = Warned::default();
    while let Some(env) = env() {
        let (clock, now) = (env.clock.clone(), env.clock.now());
        warned.look_at(&env.config, now);
        drop(env);
        clock.reach(now + PAUSE).await;
    }
}

/// The keys that were warned of, with the time of their last line.
#[derive(Default)]
struct Warned(HashMap<[u8; 32], Timestamp>);

impl Warned {
    fn look_at(&mut self, config: &Config, now: Timestamp) {
        let mut due = HashMap::new();
        for (client, index, key, expires) in config.ending_keys(now) {
            let last = self.0.get(&key.sha256).copied();
            let is_due = last.is_none_or(|last| now.since(last) >= AGAIN);
            due.insert(key.sha256, last.filter(|_| !is_due).unwrap_or(now));
            if !is_due {
                continue;
            }
            let expires = expires.rfc3339_past();
            if key.expires.is_some_and(|end| end <= now) {
                tracing::warn!(client, key = index, expires, "a client's key has expired");
            } else {
                tracing::warn!(client, key = index, expires, "a client's key expires soon");
            }
        }
        self.0 = due;
    }
}
