//! Objects that more than one document uses. The others stand beside their tables in `rows/`.

pub mod repository;
pub mod user;
