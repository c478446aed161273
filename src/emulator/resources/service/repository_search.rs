//! Searches for repositories.

use super::search_terms::{self, Term, days, flag, invalid, numbers, wrong};
use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::routing::Call;
use crate::emulator::world::{Issue, IssueState, Repository, Visibility};

const QUALIFIERS: [&str; 24] = [
    "archived",
    "created",
    "followers",
    "fork",
    "forks",
    "good-first-issues",
    "help-wanted-issues",
    "in",
    "is",
    "language",
    "license",
    "mirror",
    "org",
    "pushed",
    "repo",
    "size",
    "sort",
    "stars",
    "template",
    "topic",
    "topics",
    "updated",
    "user",
    "visibility",
];

/// The licence that every repository claims.
const LICENSE: &str = "apache-2.0";

enum Filter {
    Text(String),
    Repository(String),
    Owner(String),
    Language(String),
    License(String),
    Topic(String),
    IsPrivate(bool),
    IsArchived(bool),
    IsTemplate(bool),
    IsFork,
    /// Anything, or nothing.
    Always(bool),
    Count(Count, Range),
    Created(Range),
    Pushed(Range),
    Updated(Range),
}

#[derive(Clone, Copy)]
enum Count {
    Stars,
    Forks,
    Topics,
    /// In kilobytes.
    Size,
    /// Open issues with this label.
    Labelled(&'static str),
    /// No account has followers.
    Followers,
}

/// A part of a repository that words are searched in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Description,
    Topics,
    Readme,
}

/// Returns what the search finds, in its order. Forks are left out unless the search asks for them.
pub fn find<'a>(call: &'a Call<'_>, search: &str) -> Result<Vec<&'a Repository>, ApiError> {
    let terms = search_terms::parse(search, &QUALIFIERS)?;
    let mut fields = vec![Field::Name, Field::Description, Field::Topics];
    let mut filters = Vec::new();
    let (mut wants_forks, mut order) = (false, None);
    for Term { negated, qualifier, value } in &terms {
        match qualifier.as_deref() {
            Some(name @ ("in" | "sort")) if *negated => {
                return Err(invalid(format!("{name} cannot be negated")));
            }
            Some("sort") => order = Some(sorting(value)?),
            Some("in") => fields = searched_fields(value)?,
            Some("fork") if matches!(&**value, "true" | "false") => {
                wants_forks = (value == "true") != *negated;
            }
            name => {
                wants_forks |= name == Some("fork") && !negated;
                filters.push((*negated, filter(name, value)?));
            }
        }
    }
    let has = |repository: &&Repository| {
        (wants_forks || repository.fork_of.is_none())
            && filters
                .iter()
                .all(|(negated, filter)| filter.holds(call, repository, &fields) != *negated)
    };
    let mut found: Vec<&Repository> = call.visible_repositories().filter(has).collect();
    if let Some((key, descends)) = order.or(parameters(call)?) {
        sort(&mut found, key, descends);
    }
    Ok(found)
}

const SORT_KEYS: [&str; 4] = ["forks", "help-wanted-issues", "stars", "updated"];

fn sort_key(name: &str) -> Option<&'static str> {
    SORT_KEYS.into_iter().find(|known| *known == name)
}

/// The order by the qualifier `sort`, such as `updated-desc`.
fn sorting(value: &str) -> Result<(&'static str, bool), ApiError> {
    let (name, descends) = match value.rsplit_once('-') {
        Some((name, "asc")) => (name, false),
        Some((name, "desc")) => (name, true),
        _ => (value, true),
    };
    let found = sort_key(name).map(|key| (key, descends));
    found.ok_or_else(|| wrong("sort", &format!("{}, with -asc or -desc", SORT_KEYS.join(", "))))
}

/// The order by the parameters `sort` and `order`.
fn parameters(call: &Call<'_>) -> Result<Option<(&'static str, bool)>, ApiError> {
    let message = format!("sort must be {}", SORT_KEYS.join(", "));
    let sort = call.choice("Search", "sort", sort_key, &message)?;
    let descends = search_terms::descends(call)?;
    Ok(sort.map(|sort| (sort, descends)))
}

fn sort(found: &mut [&Repository], key: &str, descends: bool) {
    found.sort_by_key(|repository| match key {
        "stars" => Count::Stars.of(repository),
        "forks" => Count::Forks.of(repository),
        "updated" => repository.updated_at.as_millis(),
        _ => Count::Labelled("help wanted").of(repository),
    });
    if descends {
        found.reverse();
    }
}

fn searched_fields(value: &str) -> Result<Vec<Field>, ApiError> {
    let field = |name: &str| match name {
        "name" => Ok(Field::Name),
        "description" => Ok(Field::Description),
        "topics" => Ok(Field::Topics),
        "readme" => Ok(Field::Readme),
        _ => Err(wrong("in", "name, description, topics and readme")),
    };
    value.split(',').map(field).collect()
}

fn filter(qualifier: Option<&str>, value: &str) -> Result<Filter, ApiError> {
    let text = || value.to_owned();
    let count = |name: &str, count| Ok(Filter::Count(count, numbers(name, value)?));
    Ok(match qualifier {
        None => Filter::Text(text()),
        Some("repo") => Filter::Repository(text()),
        Some("org" | "user") => Filter::Owner(text()),
        Some("language") => Filter::Language(text()),
        Some("license") => Filter::License(text()),
        Some("topic") => Filter::Topic(text()),
        Some("archived") => Filter::IsArchived(flag("archived", value)?),
        Some("template") => Filter::IsTemplate(flag("template", value)?),
        // No repository is a mirror.
        Some("mirror") => Filter::Always(!flag("mirror", value)?),
        Some("fork") if value == "only" => Filter::IsFork,
        Some("fork") => return Err(wrong("fork", "true, only or false")),
        Some(name @ ("is" | "visibility")) => match value {
            "public" => Filter::IsPrivate(false),
            "private" => Filter::IsPrivate(true),
            "archived" => Filter::IsArchived(true),
            "template" => Filter::IsTemplate(true),
            // No account has sponsors.
            "sponsorable" => Filter::Always(false),
            _ => {
                let known = "public, private, archived, template or sponsorable";
                return Err(wrong(name, known));
            }
        },
        Some(name @ "stars") => return count(name, Count::Stars),
        Some(name @ "forks") => return count(name, Count::Forks),
        Some(name @ "topics") => return count(name, Count::Topics),
        Some(name @ "size") => return count(name, Count::Size),
        Some(name @ "followers") => return count(name, Count::Followers),
        Some(name @ "good-first-issues") => {
            return count(name, Count::Labelled("good first issue"));
        }
        Some(name @ "help-wanted-issues") => return count(name, Count::Labelled("help wanted")),
        Some("created") => Filter::Created(days("created", value)?),
        Some("updated") => Filter::Updated(days("updated", value)?),
        // `parse` accepts no other.
        Some(_) => Filter::Pushed(days("pushed", value)?),
    })
}

impl Filter {
    fn holds(&self, call: &Call<'_>, repository: &Repository, fields: &[Field]) -> bool {
        let full_name = call.world.full_name(repository).to_lowercase();
        let is_on = |feature: &str| repository.features.get(feature) == Some(&true);
        match self {
            Self::Text(text) => has_text(repository, &full_name, fields, text),
            Self::Repository(name) => full_name == *name,
            Self::Owner(login) => full_name.split('/').next() == Some(login.as_str()),
            Self::Language(language) => {
                repository.language.is_some_and(|known| known.eq_ignore_ascii_case(language))
            }
            Self::License(license) => license == LICENSE,
            Self::Topic(topic) => repository.topics.contains(topic),
            Self::IsPrivate(wanted) => (repository.visibility == Visibility::Private) == *wanted,
            Self::IsArchived(wanted) => is_on("archived") == *wanted,
            Self::IsTemplate(wanted) => is_on("is_template") == *wanted,
            Self::IsFork => repository.fork_of.is_some(),
            Self::Always(holds) => *holds,
            Self::Count(count, range) => range.has(count.of(repository)),
            Self::Created(range) => range.has(repository.created_at.as_secs()),
            Self::Pushed(range) => range.has(repository.pushed_at.as_secs()),
            Self::Updated(range) => range.has(repository.updated_at.as_secs()),
        }
    }
}

fn has_text(repository: &Repository, full_name: &str, fields: &[Field], text: &str) -> bool {
    fields.iter().any(|field| match field {
        Field::Name => full_name.contains(text),
        Field::Description => repository.description.to_lowercase().contains(text),
        Field::Topics => repository.topics.iter().any(|topic| topic == text),
        Field::Readme => repository.readme.to_lowercase().contains(text),
    })
}

impl Count {
    fn of(self, repository: &Repository) -> u64 {
        let count = match self {
            Self::Stars => repository.stars.len(),
            Self::Forks => repository.forks.len(),
            Self::Topics => repository.topics.len(),
            // As the repository itself shows it.
            Self::Size => repository.readme.len(),
            Self::Followers => 0,
            Self::Labelled(name) => {
                let label = repository.labels.values().find(|label| label.name == name);
                let has = |issue: &&Issue| {
                    issue.state == IssueState::Open
                        && label.is_some_and(|label| issue.labels.contains(&label.id))
                };
                repository.issues.values().filter(has).count()
            }
        };
        count as u64
    }
}
