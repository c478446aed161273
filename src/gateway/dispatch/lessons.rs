//! What answers have taught this replica, for the others: permissions of tokens, and prices of
//! GraphQL operations.
//!
//! A lost lesson costs another replica one request, which teaches it the same.

use http::Method;
use parking_lot::Mutex;

use crate::api::{Access, OperationKey};
use crate::decision::permissions::{Holder, Observation};
use crate::gateway::dispatch::graphql_prices::Price;

/// Lessons that are not said yet; further ones are lost. Chosen here: more than a replica learns in
/// a quarter of a second.
const LESSONS_MAX: usize = 128;
/// The longest path of a lesson, in bytes.
const PATH_BYTES_MAX: usize = 512;

/// A lesson for the other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lesson {
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
}

/// See the module.
#[derive(Default)]
pub struct Lessons(Mutex<Vec<Lesson>>);

impl Lessons {
    pub fn note(&self, lesson: Lesson) {
        let is_long =
            matches!(&lesson, Lesson::Permission { path, .. } if path.len() > PATH_BYTES_MAX);
        let mut pending = self.0.lock();
        if pending.len() < LESSONS_MAX && !is_long {
            pending.push(lesson);
        }
    }

    pub fn take(&self) -> Vec<Lesson> {
        std::mem::take(&mut self.0.lock())
    }
}
