//! Git as a repository has it: objects, commits and history.

pub mod commits;
pub mod history;
pub mod objects;
