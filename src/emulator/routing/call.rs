//! Request context: response headers need a `Context`, a route's handler a [`Call`].

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

use super::params::Params;
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::http::timestamps::parse_iso;
use crate::emulator::http::{ApiError, Query, Urls};
use crate::emulator::limits::{Limits, Primary, Resource, View};
use crate::emulator::world::{History, Organization, Repository, StoredItem, User, World};

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
    /// Size of an upload's body, which is counted and not kept.
    pub upload_bytes: u64,
    pub is_read: bool,
    /// The requested path, without the base.
    pub requested_path: &'a str,
    pub raw_query: Option<&'a str>,
    pub query: Query,
    pub params: Params,
    /// The repository that the path names, once admitted.
    pub repository: u64,
    /// The organisation that the path names, once admitted.
    pub organization: u64,
}

impl Call<'_> {
    pub fn budget(&self, resource: Resource) -> View {
        view(self.world, self.limits, self.primary, self.now, self.caller.account, resource)
    }

    pub fn repository(&self) -> Result<&Repository, ApiError> {
        self.world.repositories.get(&self.repository).ok_or(ApiError::NotFound)
    }

    pub fn repository_mut(&mut self) -> Result<&mut Repository, ApiError> {
        self.world.repositories.get_mut(&self.repository).ok_or(ApiError::NotFound)
    }

    pub fn history(&self) -> Result<Arc<History>, ApiError> {
        Ok(self.world.history(self.repository()?))
    }

    /// Stores an object that is created now, and returns it.
    pub fn store(
        &mut self,
        collection: &str,
        name: &str,
        id: u64,
        fields: Map<String, Value>,
    ) -> Result<StoredItem, ApiError> {
        let item = StoredItem { id, fields, created_at: self.now, updated_at: self.now };
        self.world.collections.put(collection, name, item.clone())?;
        Ok(item)
    }

    /// Finds the repository of the path by its current or a former name, visible or not.
    pub fn named_repository(&self) -> Result<&Repository, ApiError> {
        let (owner, name) = (self.params.get("owner"), self.params.get("repo"));
        self.world.repository_named(owner, name).ok_or(ApiError::NotFound)
    }

    pub fn organization(&self) -> Result<&Organization, ApiError> {
        self.world.organizations.get(&self.organization).ok_or(ApiError::NotFound)
    }

    pub fn organization_mut(&mut self) -> Result<&mut Organization, ApiError> {
        self.world.organizations.get_mut(&self.organization).ok_or(ApiError::NotFound)
    }

    /// Finds the user whose login is a parameter of the path.
    pub fn user(&self, param: &str) -> Result<&User, ApiError> {
        self.world.user_by_login(self.params.get(param)).ok_or(ApiError::NotFound)
    }

    /// Returns the caller's user; an installation or app has none.
    pub fn me(&self) -> Result<u64, ApiError> {
        self.caller.user().ok_or(ApiError::RequiresAuthentication)
    }

    pub fn is_member(&self, organization: u64, user: u64) -> bool {
        let organization = self.world.organizations.get(&organization);
        organization.is_some_and(|organization| organization.members.contains(&user))
    }

    /// Returns the first value of a header, if it is text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Reads one of the values that `named` knows from the query; absent and empty are `None`.
    pub fn choice<T>(
        &self,
        resource: &'static str,
        name: &str,
        named: impl FnOnce(&str) -> Option<T>,
        message: &str,
    ) -> Result<Option<T>, ApiError> {
        let given = self.query.get(name).filter(|given| !given.is_empty());
        let unknown = || ApiError::invalid(resource, name, message);
        given.map(|given| named(given).ok_or_else(unknown)).transpose()
    }

    /// Reads a time from the query; absent and empty are `None`.
    pub fn moment(
        &self,
        resource: &'static str,
        name: &str,
    ) -> Result<Option<Timestamp>, ApiError> {
        self.choice(resource, name, parse_iso, &format!("{name} is not an ISO 8601 timestamp"))
    }

    /// Reads `direction` from the query: true for `desc`.
    pub fn descends(&self, resource: &'static str) -> Result<Option<bool>, ApiError> {
        let named = |name: &str| matches!(name, "asc" | "desc").then_some(name == "desc");
        self.choice(resource, "direction", named, "direction must be asc or desc")
    }

    pub fn actor(&self) -> u64 {
        self.caller.user().unwrap_or(self.world.machine_user)
    }
}

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
