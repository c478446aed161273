//! Whole days in virtual time: every limit is kept and every budget is used (`weir::simulation`).
//!
//! Each test is a statement about many seeds. A failure prints the seed and the events before the
//! first refusal. `make soak` plays whole days and 1,000 seeds.

mod kit;

mod budgets;
mod command;
mod fairness;
mod polling;
mod recorded;
mod repetition;
mod replicas;
mod secondary;
mod seeds;
mod sizing;
