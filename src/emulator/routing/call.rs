//! Request context: response headers need a [`Context`], a route's handler a [`Call`].

use bytes::Bytes;
use http::HeaderMap;

use super::params::Params;
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::http::{ApiError, Query, Urls};
use crate::emulator::limits::{Limits, Primary, Resource, View};
use crate::emulator::world::{Repository, World};

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
