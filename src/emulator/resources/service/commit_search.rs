//! Searches for the commits of default branches. The author of a commit is its committer too, and
//! no commit is a merge.

use super::search_terms::{self, Term, days, flag, wrong};
use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::routing::Call;
use crate::emulator::world::{Commit, Repository, Visibility};

const QUALIFIERS: [&str; 16] = [
    "author",
    "author-date",
    "author-email",
    "author-name",
    "committer",
    "committer-date",
    "committer-email",
    "committer-name",
    "hash",
    "is",
    "merge",
    "org",
    "parent",
    "repo",
    "tree",
    "user",
];

enum Filter {
    Text(String),
    Repository(String),
    Owner(String),
    IsPrivate(bool),
    Author(Option<u64>),
    Name(String),
    Email(String),
    Date(Range),
    Hash(String),
    Parent(String),
    Tree(String),
    IsMerge(bool),
}

/// Returns what the search finds, at most `most` of it.
pub fn find<'a>(
    call: &'a Call<'_>,
    search: &str,
    most: usize,
) -> Result<Vec<(&'a Repository, Commit)>, ApiError> {
    let mut filters = Vec::new();
    for Term { negated, qualifier, value } in &search_terms::parse(search, &QUALIFIERS)? {
        filters.push((*negated, filter(call, qualifier.as_deref(), value)?));
    }
    let known = |name: &str| matches!(name, "author-date" | "committer-date").then_some(());
    let message = "sort must be author-date or committer-date";
    let by_date = call.choice("Search", "sort", known, message)?.is_some();
    let descends = search_terms::descends(call)?;
    let mut found = Vec::new();
    for repository in call.visible_repositories() {
        let full_name = call.world.full_name(repository).to_lowercase();
        let history = call.world.history(repository);
        let log = history.tip(repository).into_iter().flat_map(|tip| history.until(tip));
        let hits = log.filter(|commit| {
            let has = |filter| holds(filter, repository, &full_name, commit);
            filters.iter().all(|(negated, filter)| has(filter) != *negated)
        });
        found.extend(hits.take(most - found.len()).map(|commit| (repository, commit.clone())));
    }
    if by_date {
        found.sort_by_key(|(_, commit)| commit.at);
        if descends {
            found.reverse();
        }
    }
    Ok(found)
}

fn filter(call: &Call<'_>, qualifier: Option<&str>, value: &str) -> Result<Filter, ApiError> {
    let text = || value.to_owned();
    Ok(match qualifier {
        None => Filter::Text(text()),
        Some("repo") => Filter::Repository(text()),
        Some("org" | "user") => Filter::Owner(text()),
        Some("author" | "committer") if value == "@me" => Filter::Author(call.caller.user()),
        Some("author" | "committer") => {
            Filter::Author(call.world.user_by_login(value).map(|user| user.id))
        }
        Some("author-name" | "committer-name") => Filter::Name(text()),
        Some("author-email" | "committer-email") => Filter::Email(text()),
        Some(name @ ("author-date" | "committer-date")) => Filter::Date(days(name, value)?),
        Some("hash") => Filter::Hash(text()),
        Some("parent") => Filter::Parent(text()),
        Some("tree") => Filter::Tree(text()),
        Some("merge") => Filter::IsMerge(flag("merge", value)?),
        // `parse` accepts no other.
        Some(_) => match value {
            "public" => Filter::IsPrivate(false),
            "private" => Filter::IsPrivate(true),
            _ => return Err(wrong("is", "public or private")),
        },
    })
}

fn holds(filter: &Filter, repository: &Repository, full_name: &str, commit: &Commit) -> bool {
    match filter {
        Filter::Text(text) => commit.message.to_lowercase().contains(text),
        Filter::Repository(name) => full_name == name,
        Filter::Owner(login) => full_name.split('/').next() == Some(login.as_str()),
        Filter::IsPrivate(wanted) => (repository.visibility == Visibility::Private) == *wanted,
        Filter::Author(user) => *user == Some(commit.author.user),
        Filter::Name(name) => commit.author.name.to_lowercase().contains(name),
        Filter::Email(email) => commit.author.email.eq_ignore_ascii_case(email),
        Filter::Date(range) => range.has(commit.at.as_secs()),
        Filter::Hash(sha) => commit.sha == *sha,
        Filter::Parent(sha) => commit.parent.as_ref() == Some(sha),
        Filter::Tree(sha) => commit.tree == *sha,
        Filter::IsMerge(wanted) => !wanted,
    }
}
