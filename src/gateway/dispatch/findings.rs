//! Findings of this replica, for the others: permissions of tokens, prices of GraphQL operations,
//! and the spending of clients.
//!
//! A lost finding about a token or an operation costs another replica one request, which teaches it
//! the same. Lost spending is lost until the end of the window.

use http::Method;
use parking_lot::Mutex;

use crate::api::{Access, OperationKey};
use crate::decision::SpentBudget;
use crate::decision::permissions::{Holder, Observation};
use crate::gateway::dispatch::graphql_prices::Price;

/// Findings that are not sent yet; further ones are lost. Chosen here: more than a replica has in a
/// quarter of a second.
const PENDING_MAX: usize = 128;
/// The longest path of a finding, in bytes.
const PATH_BYTES_MAX: usize = 512;

/// A finding for the other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An observation of a token's permissions.
    Permission {
        holder: Holder,
        method: Method,
        path: String,
        observation: Observation,
        accepted: Option<(String, Access)>,
    },
    /// The price of an operation.
    Price(OperationKey, Price),
    /// Spending of a client that has a budget of its own.
    Spent(SpentBudget),
}

/// See the module.
#[derive(Default)]
pub struct Findings(Mutex<Vec<Finding>>);

impl Findings {
    pub fn note(&self, finding: Finding) {
        let is_long =
            matches!(&finding, Finding::Permission { path, .. } if path.len() > PATH_BYTES_MAX);
        let mut pending = self.0.lock();
        if pending.len() < PENDING_MAX && !is_long {
            pending.push(finding);
        }
    }

    pub fn take(&self) -> Vec<Finding> {
        std::mem::take(&mut self.0.lock())
    }
}
