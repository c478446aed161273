//! Teams of an enterprise: finds the team in a path; the files beside this one hold the routes.
//!
//! All routes require a classic token: with `read:enterprise` for GET, with `admin:enterprise` for
//! others. The upstream documents this only for organisation assignments.

pub mod memberships;
pub mod organizations;
pub mod teams;

use std::collections::BTreeSet;

use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Fields};
use crate::emulator::routing::{Call, Need};
use crate::emulator::world::{Enterprise, EnterpriseTeam};

pub const READ: Need = Need::Enterprise(Level::Read);
pub const WRITE: Need = Need::Enterprise(Level::Write);

pub fn enterprise<'a>(call: &'a Call<'_>) -> Result<&'a Enterprise, ApiError> {
    call.world.enterprise_by_slug(call.params.get("enterprise")).ok_or(ApiError::NotFound)
}

pub fn enterprise_mut<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Enterprise, ApiError> {
    let id = enterprise(call)?.id;
    call.world.enterprises.get_mut(&id).ok_or(ApiError::NotFound)
}

pub fn team<'a>(call: &'a Call<'_>) -> Result<&'a EnterpriseTeam, ApiError> {
    enterprise(call)?.team(call.params.get("enterprise-team")).ok_or(ApiError::NotFound)
}

/// Records the change.
pub fn team_mut<'a>(call: &'a mut Call<'_>) -> Result<&'a mut EnterpriseTeam, ApiError> {
    let (id, now) = (team(call)?.id, call.now);
    let team = enterprise_mut(call)?.teams.get_mut(&id).ok_or(ApiError::NotFound)?;
    team.updated_at = now;
    Ok(team)
}

/// In the body's order without duplicates; an unknown name is an error.
fn ids_of_names(
    call: &Call<'_>,
    field: &str,
    meaning: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<u64>, ApiError> {
    let mut fields = Fields::parse("EnterpriseTeam", call.body)?;
    fields.require(field);
    let names = fields.strings(field).unwrap_or_default();
    let found: Vec<Option<u64>> = names.iter().map(|name| meaning(name)).collect();
    if found.iter().any(Option::is_none) {
        fields.invalid(field, format!("{field} has a name that the enterprise does not know"));
    }
    fields.check()?;
    let mut seen = BTreeSet::new();
    Ok(found.into_iter().flatten().filter(|id| seen.insert(*id)).collect())
}
