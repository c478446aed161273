//! Writes: order, retries, the queue, and unknown outcomes.

mod bursts;
mod crashes;
mod early_responses;
mod graphql;
mod long_waits;
mod outcomes;
mod queue;
mod sync_waiters;
mod synchronous;
mod uploads;
