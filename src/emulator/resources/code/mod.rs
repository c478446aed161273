//! Git content: files, branches, commits, statuses and LFS objects.

pub mod branches;
pub mod commits;
pub mod contents;
pub mod git;
pub mod lfs;
pub mod protection;
pub mod refs;
pub mod rollup;
pub mod statuses;
