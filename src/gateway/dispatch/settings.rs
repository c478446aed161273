//! The settings of admission, made from the config.

use crate::config::{self, Config};
use crate::decision::{AccountSettings, ClientSettings, Settings};
use std::sync::Arc;

/// What all bodies that are held may take together, whether they are being read, wait or are under
/// way. Ours: room for thousands of ordinary ones, and for twenty-five of the largest that are
/// queued by default.
pub const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Requests that may wait for admission at once. Each holds a connection and at most one small
/// body; CONTRACT §2 bounds the queue of writes alike.
const WAITING_MAX: usize = 10_000;

/// Bytes of bodies that requests waiting for admission may hold together: three quarters of the
/// memory there is for bodies. Ours: the last quarter stays free for those that need not wait,
/// whose bodies would else be refused at the door.
const WAITING_BYTES_MAX: u64 = (HELD_BYTES_MAX / 4 * 3) as u64;

pub fn settings(config: &Config) -> Settings {
    let account = |account: &config::Account| AccountSettings {
        name: Arc::clone(&account.name),
        kind: account.kind,
        reserve: account.reserve,
        also_spends: account.also_spends.map(|index| config.account_id(index)),
    };
    let limits = &config.limits;
    let client = |client: &config::Client| ClientSettings {
        weight: client.weight,
        priority: client.priority,
    };
    Settings {
        accounts: config.accounts.iter().map(account).collect(),
        dynamic_accounts: config.places.dynamic,
        clients: config.clients.iter().map(client).collect(),
        pace: limits.pace,
        batch_floor: limits.batch_floor,
        waiting_max: WAITING_MAX,
        waiting_bytes_max: WAITING_BYTES_MAX,
        limits: limits.secondary(),
        spacing: config.writes.spacing,
        notify_spacing: config.writes.notify_spacing,
    }
}
