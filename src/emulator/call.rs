//! What the parts of the emulator know of the request they work on: headers need a [`Context`], a
//! route's function a [`Call`].

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;

use super::access::{Role, role_of_token};
use super::accounts::{AccountId, Caller};
use super::arrival::RequestId;
use super::dated::{Dated, Worth};
use super::fault::Fault;
use super::intake::Query;
use super::limits::{Limits, Resource};
use super::primary::{Primary, View};
use super::route::Params;
use super::urls::Urls;
use super::world::{Repository, World};
use crate::api::Dialect;
use crate::clock::Timestamp;

/// What an answer's headers need to know of the request.
#[derive(Debug)]
pub struct Context<'a> {
    pub id: RequestId,
    pub now: Timestamp,
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    pub caller: &'a Caller,
    pub dialect: Dialect,
    pub version: Option<&'static str>,
    pub accepted_permissions: String,
    pub accepted_scopes: String,
    /// Path and query as sent.
    pub address: &'a str,
    pub dated: Arc<Mutex<Dated>>,
}

impl Context<'_> {
    /// What the date of a change is worth in this answer.
    pub fn worth(&self, changed_at: Timestamp) -> Worth {
        // What two accounts see at one address changes at different times.
        let address = format!("{} {}", self.caller.account, self.address);
        self.dated.lock().judge(&address, changed_at, self.now)
    }

    pub fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Whether it is one of the methods that have conditional answers.
    pub fn is_read(&self) -> bool {
        matches!(*self.method, Method::GET | Method::HEAD)
    }
}

/// What a route's function works with.
#[derive(Debug)]
pub struct Call<'a> {
    pub world: &'a mut World,
    pub limits: &'a Limits,
    pub primary: &'a Primary,
    pub now: Timestamp,
    pub dialect: Dialect,
    pub caller: &'a Caller,
    pub urls: &'a Urls,
    pub headers: &'a HeaderMap,
    pub body: &'a Bytes,
    /// Size of an upload's body.
    pub upload_bytes: u64,
    pub is_read: bool,
    /// The path as asked, without the base.
    pub asked_path: &'a str,
    pub raw_query: Option<&'a str>,
    pub query: Query,
    pub params: Params,
    /// The repository that the path names, once admitted.
    pub repository: u64,
    /// The organisation that the path names, once admitted.
    pub organization: u64,
}

impl Call<'_> {
    /// How the caller's budget for a resource stands.
    pub fn budget(&self, resource: Resource) -> View {
        view(self.world, self.limits, self.primary, self.now, self.caller.account, resource)
    }

    /// The repository that the route was admitted to.
    pub fn repository(&self) -> Result<&Repository, Fault> {
        self.world.repositories.get(&self.repository).ok_or(Fault::NotFound)
    }

    pub fn repository_mut(&mut self) -> Result<&mut Repository, Fault> {
        self.world.repositories.get_mut(&self.repository).ok_or(Fault::NotFound)
    }

    /// Whether the caller may change what is in the repository.
    pub fn may_push(&self) -> Result<bool, Fault> {
        let repository = self.repository()?;
        Ok(self
            .caller
            .token()
            .is_some_and(|token| role_of_token(self.world, token, repository) >= Role::Push))
    }

    /// Who is named as the author of what the caller makes.
    pub fn actor(&self) -> u64 {
        self.caller.user().unwrap_or(self.world.machine_user)
    }
}

/// How an account's budget for a resource stands.
pub fn view(
    world: &World,
    limits: &Limits,
    primary: &Primary,
    now: Timestamp,
    account: AccountId,
    resource: Resource,
) -> View {
    let limit =
        limits.primary(account, &world.account_name(account), resource, world.scale(account));
    primary.view(now, account, resource, limit, limits.primary_window(resource))
}
