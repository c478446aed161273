//! The outside of the gateway, sentence by sentence: a real listener, a real upstream connection, the emulator behind it.

mod support;

#[path = "contract/cache.rs"]
mod cache;
#[path = "contract/identity.rs"]
mod identity;
#[path = "contract/intake.rs"]
mod intake;
#[path = "contract/limits.rs"]
mod limits;
#[path = "contract/listeners.rs"]
mod listeners;
#[path = "contract/rewriting.rs"]
mod rewriting;
#[path = "contract/upstream.rs"]
mod upstream;
#[path = "contract/writes.rs"]
mod writes;
