//! Routes: their needs, and the call that a route's function works on.

pub mod call;
pub mod need;
pub mod pagination;
pub mod params;
pub mod polling;
pub mod route;

pub use self::call::Call;
pub use self::need::{
    MembersNeed, Need, OrganizationNeed, OrganizationRole, READ_SCOPES, Role, Unscoped,
};
pub use self::pagination::{Caps, USUAL};
pub use self::params::Params;
pub use self::route::{Charge, Outcome, Route, Verb};
