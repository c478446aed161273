//! Budgets, secondary limits, and the wait for them.

mod budgets;
mod client_budgets;
mod concurrency;
mod given_up;
mod graphql_prices;
mod hanging_reads;
mod hanging_writes;
mod returned_budgets;
mod secondary;
mod slow_readers;
mod unknown_windows;
mod waiting;
