//! Promises of a whole day, in virtual time: every limit kept, every request of the budget used
//! (`weir::simulation`).
//!
//! Each test is a sentence about many seeds. A failure prints the seed and what led to the first
//! refusal. The same figures over whole days and 1,000 seeds are `make soak`'s.

#[path = "simulation/kit.rs"]
mod kit;

#[path = "simulation/budgets.rs"]
mod budgets;
#[path = "simulation/command.rs"]
mod command;
#[path = "simulation/fairness.rs"]
mod fairness;
#[path = "simulation/polling.rs"]
mod polling;
#[path = "simulation/recorded.rs"]
mod recorded;
#[path = "simulation/repetition.rs"]
mod repetition;
#[path = "simulation/secondary.rs"]
mod secondary;
#[path = "simulation/seeds.rs"]
mod seeds;
