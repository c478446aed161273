//! The parameters of lists of repositories, which are the running service's.

use std::cmp::Reverse;

use crate::clock::Timestamp;
use crate::emulator::http::ApiError;
use crate::emulator::routing::Call;
use crate::emulator::world::{Owner, Repository, Visibility};

const RESOURCE: &str = "Repository";

/// The relation of a list's owner, or of the caller, to a repository in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Owner,
    Collaborator,
    Member,
}

fn relation(call: &Call<'_>, user: u64, repository: &Repository) -> Option<Relation> {
    match repository.owner {
        Owner::User(id) if id == user => Some(Relation::Owner),
        _ if repository.collaborators.contains_key(&user) => Some(Relation::Collaborator),
        Owner::Organization(id) if call.is_member(id, user) => Some(Relation::Member),
        _ => None,
    }
}

fn one_of(
    call: &Call<'_>,
    name: &str,
    known: &[&'static str],
) -> Result<Option<&'static str>, ApiError> {
    let named = |given: &str| known.iter().copied().find(|one| *one == given);
    call.choice(RESOURCE, name, named, &format!("{name} must be {}", known.join(", ")))
}

fn is_private(repository: &Repository) -> bool {
    repository.visibility == Visibility::Private
}

/// Lists the repositories of the caller: `visibility` and `affiliation`, or `type` in their place.
pub fn of_caller<'a>(call: &'a Call<'_>, me: u64) -> Result<Vec<&'a Repository>, ApiError> {
    let visibility = one_of(call, "visibility", &["all", "public", "private"])?;
    let kind = one_of(call, "type", &["all", "owner", "public", "private", "member"])?;
    let affiliation = call.query.get("affiliation").filter(|given| !given.is_empty());
    if kind.is_some() && (visibility.is_some() || affiliation.is_some()) {
        let message = "type cannot be combined with visibility or affiliation";
        return Err(ApiError::invalid(RESOURCE, "type", message));
    }
    let mut wanted = vec![Relation::Owner, Relation::Collaborator, Relation::Member];
    if let Some(names) = affiliation {
        wanted.clear();
        for name in names.split(',') {
            wanted.push(match name.trim() {
                "owner" => Relation::Owner,
                "collaborator" => Relation::Collaborator,
                "organization_member" => Relation::Member,
                _ => {
                    let message = "affiliation must be owner, collaborator, organization_member";
                    return Err(ApiError::invalid(RESOURCE, "affiliation", message));
                }
            });
        }
    }
    let (since, before) = (call.moment(RESOURCE, "since")?, call.moment(RESOURCE, "before")?);
    let is_wanted = |repository: &&Repository| {
        let Some(relation) = relation(call, me, repository) else { return false };
        let of_kind = match kind {
            Some("owner") => relation == Relation::Owner,
            Some("member") => relation != Relation::Owner,
            Some("public") => !is_private(repository),
            Some("private") => is_private(repository),
            _ => true,
        };
        let seen = visibility.is_none_or(|wanted| {
            wanted == "all" || is_private(repository) == (wanted == "private")
        });
        of_kind
            && seen
            && wanted.contains(&relation)
            && since.is_none_or(|since| repository.updated_at >= since)
            && before.is_none_or(|before| repository.updated_at <= before)
    };
    let found = call.world.repositories.values().filter(is_wanted).collect();
    sorted(call, found, Some("full_name"))
}

pub fn of_user<'a>(call: &'a Call<'_>, owner: Owner) -> Result<Vec<&'a Repository>, ApiError> {
    let kind = one_of(call, "type", &["all", "owner", "member"])?.unwrap_or("owner");
    let has_part = |repository: &Repository| {
        let Owner::User(user) = owner else { return repository.owner == owner };
        relation(call, user, repository).is_some()
    };
    let is_wanted = |repository: &&Repository| match kind {
        "owner" => repository.owner == owner,
        "member" => repository.owner != owner && has_part(repository),
        _ => has_part(repository),
    };
    let found = if kind == "owner" {
        call.world.repositories_of(owner).collect()
    } else {
        call.world.repositories.values().filter(is_wanted).collect()
    };
    sorted(call, found, Some("full_name"))
}

/// Without `sort`, the oldest comes first.
pub fn of_organization<'a>(
    call: &'a Call<'_>,
    organization: u64,
) -> Result<Vec<&'a Repository>, ApiError> {
    let known = ["all", "public", "private", "forks", "sources", "member"];
    let kind = one_of(call, "type", &known)?.unwrap_or("all");
    let me = call.caller.user();
    let is_wanted = |repository: &&Repository| match kind {
        "public" => !is_private(repository),
        "private" => is_private(repository),
        "forks" => repository.fork_of.is_some(),
        "sources" => repository.fork_of.is_none(),
        "member" => me.is_some_and(|me| relation(call, me, repository).is_some()),
        _ => true,
    };
    let all = call.world.repositories_of(Owner::Organization(organization));
    sorted(call, all.filter(is_wanted).collect(), None)
}

/// Names ascend and times descend, unless the query gives the direction.
fn sorted<'a>(
    call: &Call<'_>,
    mut found: Vec<&'a Repository>,
    default: Option<&'static str>,
) -> Result<Vec<&'a Repository>, ApiError> {
    let sort = one_of(call, "sort", &["created", "updated", "pushed", "full_name"])?.or(default);
    let descends = call.descends(RESOURCE)?;
    let key: fn(&Repository) -> Timestamp = match sort {
        None if descends == Some(true) => |one| one.created_at,
        None => return Ok(found),
        Some("full_name") => {
            found.sort_by_cached_key(|one| call.world.full_name(one).to_lowercase());
            if descends == Some(true) {
                found.reverse();
            }
            return Ok(found);
        }
        Some("updated") => |one| one.updated_at,
        Some("pushed") => |one| one.pushed_at,
        Some(_) => |one| one.created_at,
    };
    found.sort_by_key(|one| (key(one), one.id));
    if descends.unwrap_or(true) {
        found.reverse();
    }
    Ok(found)
}

/// Lists the forks of a repository; the default is newest first.
pub fn forks<'a>(
    call: &'a Call<'_>,
    repository: &Repository,
) -> Result<Vec<&'a Repository>, ApiError> {
    let mut forks: Vec<&Repository> =
        repository.forks.iter().filter_map(|id| call.world.repositories.get(id)).collect();
    forks.sort_by_key(|fork| Reverse((fork.created_at, fork.id)));
    match one_of(call, "sort", &["newest", "oldest", "stargazers", "watchers"])? {
        Some("oldest") => forks.reverse(),
        // The running service calls stars watchers.
        Some("stargazers" | "watchers") => forks.sort_by_key(|fork| Reverse(fork.stars.len())),
        _ => {}
    }
    Ok(forks)
}

/// Lists the repositories with a user's star; the default is the newest star first.
pub fn starred<'a>(call: &'a Call<'_>, user: u64) -> Result<Vec<&'a Repository>, ApiError> {
    let by_push = one_of(call, "sort", &["created", "updated"])? == Some("updated");
    let all = call.world.repositories.values();
    let mut starred: Vec<(Timestamp, &Repository)> = all
        .filter_map(|one| {
            let at = *one.stars.get(&user)?;
            Some((if by_push { one.pushed_at } else { at }, one))
        })
        .collect();
    starred.sort_by_key(|(at, one)| (*at, one.id));
    if call.descends(RESOURCE)?.unwrap_or(true) {
        starred.reverse();
    }
    Ok(starred.into_iter().map(|(_, one)| one).collect())
}
