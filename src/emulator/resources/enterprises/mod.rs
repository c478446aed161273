//! Teams of an enterprise: which one a path names; what can be asked of them is in the files beside
//! this one.
//!
//! Document 2 says it of the organisation assignments, and the other routes of the family are asked
//! in the same way: "only classic personal access tokens: `read:enterprise` for GET,
//! `admin:enterprise` for all others".

pub mod memberships;
pub mod organizations;
pub mod teams;

use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Code, Fields};
use crate::emulator::routing::{Call, Need};
use crate::emulator::world::{Enterprise, EnterpriseTeam};

pub const READ: Need = Need::Enterprise(Level::Read);
pub const WRITE: Need = Need::Enterprise(Level::Write);

/// The enterprise that the path names.
pub fn enterprise<'a>(call: &'a Call<'_>) -> Result<&'a Enterprise, ApiError> {
    call.world.enterprise_by_slug(call.params.get("enterprise")).ok_or(ApiError::NotFound)
}

pub fn enterprise_mut<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Enterprise, ApiError> {
    let id = enterprise(call)?.id;
    call.world.enterprises.get_mut(&id).ok_or(ApiError::NotFound)
}

/// The team that the path names: "slug or team id" (Document 2).
pub fn team<'a>(call: &'a Call<'_>) -> Result<&'a EnterpriseTeam, ApiError> {
    enterprise(call)?.team(call.params.get("enterprise-team")).ok_or(ApiError::NotFound)
}

/// The same, to be changed; the change is noted.
pub fn team_mut<'a>(call: &'a mut Call<'_>) -> Result<&'a mut EnterpriseTeam, ApiError> {
    let (id, now) = (team(call)?.id, call.now);
    let team = enterprise_mut(call)?.teams.get_mut(&id).ok_or(ApiError::NotFound)?;
    team.updated_at = now;
    Ok(team)
}

/// The ids of the things that an array of names in the body means, each once, in the order of the
/// body; every name must mean one.
fn ids_of_names(
    call: &Call<'_>,
    field: &str,
    meaning: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<u64>, ApiError> {
    let mut fields = Fields::parse("EnterpriseTeam", call.body)?;
    if !fields.has(field) {
        fields.reject(field, Code::MissingField, format!("{field} is required"));
    }
    let names = fields.strings(field).unwrap_or_default();
    let found: Vec<Option<u64>> = names.iter().map(|name| meaning(name)).collect();
    if found.iter().any(Option::is_none) {
        fields.invalid(field, format!("{field} has a name that the enterprise does not know"));
    }
    fields.check()?;
    let mut seen = std::collections::BTreeSet::new();
    Ok(found.into_iter().flatten().filter(|id| seen.insert(*id)).collect())
}
