//! The outside of the gateway, sentence by sentence: a real listener, a real upstream connection,
//! the emulator behind it.

mod support;

#[path = "contract/admin.rs"]
mod admin;
#[path = "contract/ages.rs"]
mod ages;
#[path = "contract/apps.rs"]
mod apps;
#[path = "contract/asking.rs"]
mod asking;
#[path = "contract/attended.rs"]
mod attended;
#[path = "contract/bursts.rs"]
mod bursts;
#[path = "contract/cache.rs"]
mod cache;
#[path = "contract/changes.rs"]
mod changes;
#[path = "contract/concurrency.rs"]
mod concurrency;
#[path = "contract/crashes.rs"]
mod crashes;
#[path = "contract/denied.rs"]
mod denied;
#[path = "contract/early.rs"]
mod early;
#[path = "contract/encoding.rs"]
mod encoding;
#[path = "contract/freshness.rs"]
mod freshness;
#[path = "contract/graphql.rs"]
mod graphql;
#[path = "contract/hits.rs"]
mod hits;
#[path = "contract/hooks.rs"]
mod hooks;
#[path = "contract/identity.rs"]
mod identity;
#[path = "contract/intake.rs"]
mod intake;
#[path = "contract/interim.rs"]
mod interim;
#[path = "contract/lasting.rs"]
mod lasting;
#[path = "contract/limits.rs"]
mod limits;
#[path = "contract/listeners.rs"]
mod listeners;
#[path = "contract/minting.rs"]
mod minting;
#[path = "contract/outcomes.rs"]
mod outcomes;
#[path = "contract/pages.rs"]
mod pages;
#[path = "contract/passthrough.rs"]
mod passthrough;
#[path = "contract/plain_cache.rs"]
mod plain_cache;
#[path = "contract/predicted.rs"]
mod predicted;
#[path = "contract/queued.rs"]
mod queued;
#[path = "contract/reload.rs"]
mod reload;
#[path = "contract/rewriting.rs"]
mod rewriting;
#[path = "contract/rights.rs"]
mod rights;
#[path = "contract/secondary.rs"]
mod secondary;
#[path = "contract/stale_if_error.rs"]
mod stale_if_error;
#[path = "contract/streams.rs"]
mod streams;
#[path = "contract/upstream.rs"]
mod upstream;
#[path = "contract/validators.rs"]
mod validators;
#[path = "contract/variants.rs"]
mod variants;
#[path = "contract/visibility.rs"]
mod visibility;
#[path = "contract/waiting.rs"]
mod waiting;
#[path = "contract/webhooks.rs"]
mod webhooks;
#[path = "contract/wishes.rs"]
mod wishes;
#[path = "contract/writes.rs"]
mod writes;
