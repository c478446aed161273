//! Budgets, secondary limits, and the wait for them.

mod budgets;
mod concurrency;
mod given_up;
mod secondary;
mod slow_readers;
mod waiting;
