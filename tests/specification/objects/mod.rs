//! Objects of more than one document. Other objects are beside their tables in `rows/`.

pub mod repository;
pub mod user;
