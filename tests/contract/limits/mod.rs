//! Budgets, secondary limits, and the wait for them.

mod budgets;
mod concurrency;
mod secondary;
mod waiting;
