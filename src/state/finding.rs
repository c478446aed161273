//! Findings of a replica from answers, for the others. Tokens have the names that all replicas
//! share.

use serde::{Deserialize, Serialize};

use crate::decision::SpentBudget;

/// A finding. What a replica cannot read of it, it does not learn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedFinding {
    /// An observation of a token's permissions.
    Permission {
        /// Shared name of the token.
        token: String,
        /// Method of the request.
        method: String,
        /// Its path, without a query.
        path: String,
        /// The observation.
        observation: Observed,
        /// Name and level of the only permission that the answer names for its endpoint.
        accepted: Option<(String, String)>,
    },
    /// The price of a GraphQL operation.
    Price {
        /// Digest of the operation.
        operation: [u8; 16],
        /// Units to expect.
        units: u32,
        /// Units that are proven.
        proven: u32,
        /// A higher price that was measured once.
        higher: Option<u32>,
    },
    /// Spending of a client that has a budget of its own.
    Spent(SpentBudget),
}

/// An observation of a token's permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// It was served.
    Served,
    /// It was denied.
    Denied(Denied),
    /// It was denied, and another one served with the same request.
    ServedElsewhere(Denied),
}

/// The kind of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denied {
    /// A permission is missing.
    Permission,
    /// The permission that the endpoint accepts is missing.
    AcceptedPermission,
    /// A 403 for an unknown reason.
    Forbidden,
    /// A 404.
    NotFound,
}
