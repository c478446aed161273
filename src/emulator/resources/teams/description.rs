//! Parses the bodies that create or change a team. The upstream does not document their fields;
//! they are those of the running service's that have an effect here.

use std::collections::{BTreeMap, BTreeSet};

use super::sees;
use crate::emulator::auth::access::role_of_token;
use crate::emulator::http::{ApiError, Change, Code, Fields};
use crate::emulator::routing::{Call, Role};
use crate::emulator::world::{Organization, Owner, Privacy, RepositoryRole, Team, TeamRole, World};

/// Bounds of names and descriptions. Undocumented; large enough for real ones.
pub const NAME_CHARS_MAX: usize = 100;
const DESCRIPTION_CHARS_MAX: usize = 1_000;

#[derive(Debug)]
pub struct NewTeam {
    pub name: String,
    pub slug: String,
    pub description: Option<String>,
    pub privacy: Privacy,
    pub permission: RepositoryRole,
    pub parent: Option<u64>,
    pub people: BTreeMap<u64, TeamRole>,
    pub repositories: BTreeSet<u64>,
}

#[derive(Debug)]
pub struct TeamChange {
    /// With its slug.
    pub name: Option<(String, String)>,
    pub description: Change<String>,
    pub privacy: Privacy,
    pub permission: Option<RepositoryRole>,
    pub parent: Option<u64>,
}

/// Undocumented: letters and digits stay, a dash replaces all others.
pub fn slug(name: &str) -> String {
    let lower = name.to_lowercase();
    let is_kept = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<&str> = lower.split(|c| !is_kept(c)).filter(|word| !word.is_empty()).collect();
    words.join("-")
}

pub fn of_new_team(call: &Call<'_>) -> Result<NewTeam, ApiError> {
    let organization = call.organization()?;
    let mut fields = Fields::parse("Team", call.body)?;
    let name = fields.required_string("name");
    let slug = if name.is_empty() {
        String::new()
    } else {
        free_slug(&mut fields, organization, &name, None)
    };
    let description = description(&mut fields).value();
    let permission = permission(&mut fields).unwrap_or(RepositoryRole::Pull);
    let parent = parent(&mut fields, call, organization).value();
    // The running service's defaults: secret for a top-level team, closed for a child team.
    let usual = if parent.is_some() { Privacy::Closed } else { Privacy::Secret };
    let privacy = privacy(&mut fields).unwrap_or(usual);
    if parent.is_some() && privacy == Privacy::Secret {
        fields.invalid("privacy", "a secret team cannot be nested");
    }
    let mut people = maintainers(&mut fields, call.world, organization);
    people.extend(call.caller.user().map(|user| (user, TeamRole::Maintainer)));
    let repositories = repositories(&mut fields, call);
    fields.check()?;
    Ok(NewTeam { name, slug, description, privacy, permission, parent, people, repositories })
}

pub fn of_changed_team(call: &Call<'_>, id: u64) -> Result<TeamChange, ApiError> {
    let organization = call.organization()?;
    let team = organization.teams.get(&id).ok_or(ApiError::NotFound)?;
    let mut fields = Fields::parse("Team", call.body)?;
    let name =
        fields.has("name").then(|| fields.required_string("name")).filter(|name| !name.is_empty());
    let name = name.map(|name| {
        let slug = free_slug(&mut fields, organization, &name, Some(id));
        (name, slug)
    });
    let description = description(&mut fields);
    let permission = permission(&mut fields);
    let parent = new_parent(&mut fields, call, organization, team);
    let requested = privacy(&mut fields);
    let privacy =
        requested.unwrap_or(if parent.is_some() { Privacy::Closed } else { team.privacy });
    let is_nested =
        parent.is_some() || organization.teams.values().any(|other| other.parent == Some(id));
    if privacy == Privacy::Secret && is_nested {
        fields.invalid("privacy", "a secret team cannot be nested or have teams nested in it");
    }
    fields.check()?;
    Ok(TeamChange { name, description, privacy, permission, parent })
}

/// Returns the slug of a name. It must be non-empty and free.
fn free_slug(
    fields: &mut Fields,
    organization: &Organization,
    name: &str,
    except: Option<u64>,
) -> String {
    let slug = slug(name);
    if slug.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        fields.invalid(
            "name",
            format!("name must have a letter or digit and at most {NAME_CHARS_MAX} characters"),
        );
    } else if organization.team_by_slug(&slug).is_some_and(|taken| Some(taken.id) != except) {
        fields.reject("name", Code::AlreadyExists, "name must be unique in the organization");
    }
    slug
}

/// Reads a bounded text or null; enterprise teams use it too.
pub fn description(fields: &mut Fields) -> Change<String> {
    let given = fields.nullable_string("description");
    if matches!(&given, Change::Set(text) if text.chars().count() > DESCRIPTION_CHARS_MAX) {
        let message = format!("description must have at most {DESCRIPTION_CHARS_MAX} characters");
        fields.invalid("description", message);
    }
    given
}

fn privacy(fields: &mut Fields) -> Option<Privacy> {
    fields.choice(
        "privacy",
        |name| name.parse::<Privacy>().ok(),
        "privacy must be secret or closed",
    )
}

/// Reads the default right in repositories: only the two that map to the roles read and write.
fn permission(fields: &mut Fields) -> Option<RepositoryRole> {
    let is_default =
        |role: &RepositoryRole| [RepositoryRole::Pull, RepositoryRole::Push].contains(role);
    let named = |name: &str| name.parse::<RepositoryRole>().ok().filter(is_default);
    fields.choice("permission", named, "permission must be pull or push")
}

/// Reads a closed team of the organisation that the caller sees.
fn parent(fields: &mut Fields, call: &Call<'_>, organization: &Organization) -> Change<u64> {
    let given = fields.nullable_integer("parent_team_id");
    let Change::Set(id) = given else { return given };
    let found = organization.teams.get(&id).filter(|team| sees(call, organization, team));
    if found.is_none_or(|team| team.privacy == Privacy::Secret) {
        fields
            .invalid("parent_team_id", "parent_team_id must be a closed team of this organization");
        return Change::Keep;
    }
    given
}

fn new_parent(
    fields: &mut Fields,
    call: &Call<'_>,
    organization: &Organization,
    team: &Team,
) -> Option<u64> {
    let parent = parent(fields, call, organization).of(team.parent);
    if parent.is_some_and(|parent| organization.team_and_above(parent).contains(&team.id)) {
        fields.invalid("parent_team_id", "a team cannot be nested in itself or in a team below it");
    }
    parent
}

/// Reads logins of members of the organisation.
fn maintainers(
    fields: &mut Fields,
    world: &World,
    organization: &Organization,
) -> BTreeMap<u64, TeamRole> {
    let mut people = BTreeMap::new();
    for login in fields.strings("maintainers").unwrap_or_default() {
        let user = world.user_by_login(&login);
        let Some(member) = user.filter(|user| organization.members.contains(&user.id)) else {
            let message = "maintainers must be logins of members of the organization";
            fields.invalid("maintainers", message);
            break;
        };
        people.insert(member.id, TeamRole::Maintainer);
    }
    people
}

/// Reads full names of the organisation's repositories that the caller administers.
fn repositories(fields: &mut Fields, call: &Call<'_>) -> BTreeSet<u64> {
    let mut repositories = BTreeSet::new();
    for name in fields.strings("repo_names").unwrap_or_default() {
        let named =
            name.split_once('/').and_then(|(owner, name)| call.world.repository_named(owner, name));
        let given = named.filter(|repository| {
            let role = |token| role_of_token(call.world, token, repository);
            repository.owner == Owner::Organization(call.organization)
                && call.caller.token().is_some_and(|token| role(token) >= Role::Admin)
        });
        let Some(repository) = given else {
            let message = "repo_names must be repositories of the organization that you administer";
            fields.invalid("repo_names", message);
            break;
        };
        repositories.insert(repository.id);
    }
    repositories
}
