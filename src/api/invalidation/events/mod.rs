//! The upstream's webhook events, and the paths that each may change.
//!
//! The names are those of the running service, and the effects follow from its answers
//! (SPECIFICATION, "Webhooks in practice"). A row names too much rather than too little: an
//! unnecessary invalidation costs a free 304, a missing one shows an old answer. An event without a
//! row changes the whole repository, else the whole organization, else everything.
//!
//! Feeds of events and notifications are left out: they have a poll interval, which an event must
//! not shorten. `webhooks/` reads the payloads, and `write_effects` maps our own writes to events.

mod rows;

use super::aliases::wild_form;
use super::path_pattern::{Fit, matches};
use super::webhook_coverage::COVERED_ROUTES;
use rows::{About, Groups, rows};

/// Paths that may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invalidation {
    /// This path, with any query.
    Exactly(String),
    /// This path and everything below it.
    Below(String),
    /// All paths.
    Everything,
}

/// Subject of an event or a write: each resource by all known addresses, without a trailing slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `/repos/acme/widgets`, `/repositories/7`, and earlier names.
    pub repositories: Vec<String>,
    /// `/orgs/acme`, `/organizations/3`.
    pub organizations: Vec<String>,
    /// `/orgs/acme/teams/core` and the like.
    pub teams: Vec<String>,
    /// `/users/ada`, `/user/9`: the person concerned.
    pub users: Vec<String>,
    /// `/orgs/acme`, `/users/acme`: the owner of the repository, or of the app's installation.
    pub owners: Vec<String>,
    /// `/repos/acme`: all repositories of an owner, where all are concerned.
    pub territories: Vec<String>,
    /// New resources, such as a fork: until now nothing existed at these addresses or below.
    pub made: Vec<String>,
    /// Values of the rows' parameters, such as `number`.
    pub values: Vec<(&'static str, String)>,
}

/// Treatment of a parameter without a known value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Any value.
    Any,
    /// A new resource: no stored answer shows it, and other rows name its lists.
    New,
}

/// Returns the paths that an event of this name changed.
pub fn stale_after_event(
    event: &str,
    action: Option<&str>,
    subject: &Subject,
) -> Vec<Invalidation> {
    let of_action = action.and_then(|action| row(&format!("{event}.{action}")));
    let mut stale = match of_action.or_else(|| row(event)) {
        Some((about, groups)) if subject.has(about) => stale_of(groups, subject, Unknown::Any),
        _ => subject.whole(),
    };
    stale.extend(subject.made.iter().cloned().map(Invalidation::Below));
    stale
}

/// Returns true when an event of this name has a row.
pub fn is_known_event(event: &str) -> bool {
    row(event).is_some()
}

/// Returns the paths changed by the cause of this event; empty for an event without a row.
pub fn stale_after(event: &str, subject: &Subject, unknown: Unknown) -> Vec<Invalidation> {
    row(event).map_or_else(Vec::new, |(_, groups)| stale_of(groups, subject, unknown))
}

/// Returns the events that can change answers of a route; none unless they cover all its changes.
/// The flag marks events that only webhooks of organizations and apps receive. Renames of the owner
/// and changes of an app's installation do not count.
pub fn events_of(template: &str) -> impl Iterator<Item = (&'static str, bool)> {
    let touches = |groups: Groups| {
        groups
            .iter()
            .copied()
            .flatten()
            .any(|pattern| *pattern != "{territory}/**" && may_match(pattern, template))
    };
    // The row for one action may name more than the row for all.
    let is_of = |name: &str, event: &str| {
        name.strip_prefix(event).is_some_and(|action| action.is_empty() || action.starts_with('.'))
    };
    let changes =
        |event: &str| rows().any(|(name, _, groups)| is_of(name, event) && touches(groups));
    let is_event = |event: &str, about: About| {
        matches!(about, About::Repository | About::Organization) && !event.contains('.')
    };
    let is_covered = COVERED_ROUTES.contains(&template);
    let mut events: Vec<_> = rows()
        .filter(|(event, about, _)| is_covered && is_event(event, *about) && changes(event))
        .map(|(event, about, _)| (event, about == About::Organization))
        .collect();
    events.sort_unstable();
    events.into_iter()
}

fn row(event: &str) -> Option<(About, Groups)> {
    rows().find(|(name, ..)| *name == event).map(|(_, about, groups)| (about, groups))
}

fn stale_of(groups: Groups, subject: &Subject, unknown: Unknown) -> Vec<Invalidation> {
    let mut stale: Vec<Invalidation> = groups
        .iter()
        .copied()
        .flatten()
        .flat_map(|pattern| subject.fill(pattern, unknown))
        .collect();
    stale.sort();
    stale.dedup();
    stale
}

impl Subject {
    fn has(&self, about: About) -> bool {
        match about {
            About::Repository => !self.repositories.is_empty(),
            About::Organization => !self.organizations.is_empty(),
            About::Account => !self.owners.is_empty(),
            About::Nothing => true,
        }
    }

    fn whole(&self) -> Vec<Invalidation> {
        let named = if self.repositories.is_empty() {
            [&self.organizations[..], &self.territories, &self.teams]
        } else {
            [&self.repositories[..], &[], &[]]
        };
        let below: Vec<Invalidation> =
            named.into_iter().flatten().map(|head| Invalidation::Below(head.clone())).collect();
        if below.is_empty() { vec![Invalidation::Everything] } else { below }
    }

    /// Fills a row's pattern; empty when the subject lacks its first part.
    fn fill(&self, pattern: &str, unknown: Unknown) -> Vec<Invalidation> {
        let (variable, tail) = pattern
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
            .unwrap_or(("", pattern));
        let none = [String::new()];
        let heads: &[String] = match variable {
            "repo" => &self.repositories,
            "org" => &self.organizations,
            "team" => &self.teams,
            "user" => &self.users,
            "owner" => &self.owners,
            "territory" => &self.territories,
            _ => &none,
        };
        heads.iter().filter_map(|head| self.filled(head, tail, unknown)).collect()
    }

    fn filled(&self, head: &str, tail: &str, unknown: Unknown) -> Option<Invalidation> {
        let mut path = head.to_owned();
        for segment in tail.split('/').skip(1) {
            let value = match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                None if segment == "**" => return Some(Invalidation::Below(path)),
                None => segment,
                Some(name) => match (self.values.iter().find(|(known, _)| *known == name), unknown)
                {
                    (Some((_, value)), _) => value,
                    (None, Unknown::Any) => "*",
                    (None, Unknown::New) => return None,
                },
            };
            if value == "*" && wild_form(&format!("{path}/*")).is_none() {
                return Some(Invalidation::Below(path));
            }
            path.push('/');
            path.push_str(value);
        }
        Some(Invalidation::Exactly(path))
    }
}

fn may_match(pattern: &str, template: &str) -> bool {
    let heads: &[&str] = match pattern.split('/').next().unwrap_or_default() {
        "" => &[""],
        "{repo}" => &["/repos/{owner}/{repo}", "/repositories/{id}"],
        "{org}" => &["/orgs/{org}", "/organizations/{id}"],
        "{team}" => &["/orgs/{org}/teams/{slug}", "/organizations/{id}/team/{id}", "/teams/{id}"],
        "{user}" => &["/users/{user}", "/user/{id}"],
        "{owner}" => &["/users/{user}", "/orgs/{org}", "/user/{id}", "/organizations/{id}"],
        _ => &["/repos/{owner}"],
    };
    let tail = pattern.split_once('/').map_or("", |(_, tail)| tail);
    let whole =
        |head: &&str| if tail.is_empty() { (*head).to_owned() } else { format!("{head}/{tail}") };
    heads.iter().any(|head| is_like(&whole(head), template))
}

pub(super) fn is_like(pattern: &str, template: &str) -> bool {
    let is_open = |segment: &str| segment == "*" || segment.starts_with('{');
    matches(pattern, template, |wanted, given| match wanted {
        _ if given.starts_with("{*") => Fit::WithRest,
        // A literal is no value of a parameter beside it: `/issues/comments` is no issue. But a
        // route's own parameter may have any value.
        Some(wanted) => Fit::from(wanted == given || is_open(wanted) && is_open(given)),
        None => Fit::No,
    })
}

#[cfg(test)]
mod tests;
