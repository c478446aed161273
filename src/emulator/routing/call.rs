//! What the parts of the emulator know of the request they work on: headers need a [`Context`], a
//! route's function a [`Call`].

use bytes::Bytes;
use http::HeaderMap;

use super::params::Params;
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::http::{ApiError, Query, Urls};
use crate::emulator::limits::{Limits, Primary, Resource, View};
use crate::emulator::world::{Repository, World};

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
    /// How the caller's budget for a resource stands.
    pub fn budget(&self, resource: Resource) -> View {
        view(self.world, self.limits, self.primary, self.now, self.caller.account, resource)
    }

    /// The repository that the route was admitted to.
    pub fn repository(&self) -> Result<&Repository, ApiError> {
        self.world.repositories.get(&self.repository).ok_or(ApiError::NotFound)
    }

    pub fn repository_mut(&mut self) -> Result<&mut Repository, ApiError> {
        self.world.repositories.get_mut(&self.repository).ok_or(ApiError::NotFound)
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
