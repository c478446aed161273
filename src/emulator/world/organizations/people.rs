//! Users, organisations with their teams, and apps.

use std::collections::{BTreeMap, BTreeSet};

use super::membership::People;
use super::teams::Team;
use crate::clock::Timestamp;
use crate::emulator::world::webhooks::hooks::Hook;

/// The owner of a repository or app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    User(u64),
    Organization(u64),
}

#[derive(Debug)]
pub struct User {
    pub id: u64,
    pub login: String,
    pub name: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Repositories with notifications for every thread.
    pub watching: BTreeSet<u64>,
}

impl User {
    pub fn new(id: u64, login: String, name: String, at: Timestamp) -> Self {
        Self { id, login, name, created_at: at, updated_at: at, watching: BTreeSet::new() }
    }
}

#[derive(Debug, Default)]
pub struct Organization {
    pub id: u64,
    pub login: String,
    pub description: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub owners: BTreeSet<u64>,
    /// All members, owners included.
    pub members: BTreeSet<u64>,
    pub teams: BTreeMap<u64, Team>,
    pub people: People,
    pub roles: BTreeMap<&'static str, BTreeSet<u64>>,
    pub hooks: BTreeMap<u64, Hook>,
}

#[derive(Debug)]
pub struct OauthApp {
    pub id: u64,
    pub client_id: String,
    pub client_secret: String,
    pub owner: Owner,
}

#[derive(Debug)]
pub struct App {
    pub id: u64,
    pub slug: String,
    pub owner: Owner,
    /// Signs the app's JWTs, PEM (PKCS#1). Made up, so that a test may have it.
    pub private_key: &'static str,
    /// The public half, DER.
    pub public_key: Vec<u8>,
    /// Installation id and the organisation it is installed on.
    pub installations: Vec<(u64, u64)>,
}
