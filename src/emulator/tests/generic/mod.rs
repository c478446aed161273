//! Tests of the endpoint table and generic resources, and random requests.

pub mod agreement;
pub mod documented;
pub mod filters;
pub mod fuzz;
pub mod fuzz_inventory;
pub mod inventory;
pub mod stored;
pub mod walk;
