//! Promises of a whole day, in virtual time: every limit kept, every request of the budget used
//! (`weir::simulation`).
//!
//! Each test is a sentence about many seeds. A failure prints the seed and what led to the first
//! refusal. The same figures over whole days and 1,000 seeds are `make soak`'s.

mod kit;

mod budgets;
mod command;
mod fairness;
mod polling;
mod recorded;
mod repetition;
mod secondary;
mod seeds;
