//! Routes: their needs, and the call that a route's function works on.

pub mod call;
pub mod need;
pub mod pagination;
pub mod params;
pub mod polling;
pub mod route;
