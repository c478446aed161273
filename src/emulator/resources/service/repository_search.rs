//! Searches for repositories.

use super::search_terms::{self, Term, days, flag, invalid, numbers, wrong};
use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::routing::Call;
use crate::emulator::world::{Issue, IssueState, Repository, Visibility};

const QUALIFIERS: [&str; 23] = [
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

#[derive(Clone, Copy)]
struct Fields {
    name: bool,
    description: bool,
    topics: bool,
    readme: bool,
}

/// Returns what the search finds, in its order. Forks are left out unless the search asks for them.
pub fn find<'a>(call: &'a Call<'_>, search: &str) -> Result<Vec<&'a Repository>, ApiError> {
    let terms = search_terms::parse(search, &QUALIFIERS)?;
    let mut fields = Fields { name: true, description: true, topics: true, readme: false };
    let mut filters = Vec::new();
    let mut wants_forks = false;
    for Term { negated, qualifier, value } in &terms {
        match qualifier.as_deref() {
            Some("in") if *negated => return Err(invalid("in cannot be negated".to_owned())),
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
                .all(|(negated, filter)| filter.holds(call, repository, fields) != *negated)
    };
    let mut found: Vec<&Repository> = call.visible_repositories().filter(has).collect();
    sort(call, &mut found)?;
    Ok(found)
}

fn sort(call: &Call<'_>, found: &mut [&Repository]) -> Result<(), ApiError> {
    let known = ["stars", "forks", "help-wanted-issues", "updated"];
    let named = |name: &str| known.into_iter().find(|known| *known == name);
    let message = format!("sort must be {}", known.join(", "));
    let sort = call.choice("Search", "sort", named, &message)?;
    let descends = search_terms::descends(call)?;
    let Some(sort) = sort else { return Ok(()) };
    found.sort_by_key(|repository| match sort {
        "stars" => Count::Stars.of(repository),
        "forks" => Count::Forks.of(repository),
        "updated" => repository.updated_at.as_millis(),
        _ => Count::Labelled("help wanted").of(repository),
    });
    if descends {
        found.reverse();
    }
    Ok(())
}

fn searched_fields(value: &str) -> Result<Fields, ApiError> {
    let mut fields = Fields { name: false, description: false, topics: false, readme: false };
    for name in value.split(',') {
        match name {
            "name" => fields.name = true,
            "description" => fields.description = true,
            "topics" => fields.topics = true,
            "readme" => fields.readme = true,
            _ => return Err(wrong("in", "name, description, topics and readme")),
        }
    }
    Ok(fields)
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
    fn holds(&self, call: &Call<'_>, repository: &Repository, fields: Fields) -> bool {
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

fn has_text(repository: &Repository, full_name: &str, fields: Fields, text: &str) -> bool {
    (fields.name && full_name.contains(text))
        || (fields.description && repository.description.to_lowercase().contains(text))
        || (fields.topics && repository.topics.iter().any(|topic| topic == text))
        || (fields.readme && repository.readme.to_lowercase().contains(text))
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
