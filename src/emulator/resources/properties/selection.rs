//! `repository_query`: search terms that select repositories (SPECIFICATION, "Custom properties").
//!
//! The upstream does not document the qualifiers. Here are the useful ones of the running service's
//! repository search, and `props.NAME:VALUE`. All terms must match; `-` negates a qualifier. An
//! unknown qualifier is a keyword, because the route documents no error for a query.

use crate::emulator::world::properties::Properties;
use crate::emulator::world::{Repository, Visibility, World};

/// The most terms; further ones are ignored.
const TERMS_MAX: usize = 50;

#[derive(Debug)]
pub struct Selection {
    terms: Vec<Term>,
}

#[derive(Debug, PartialEq, Eq)]
struct Term {
    negated: bool,
    /// Lower case, like the whole query; empty for a keyword.
    qualifier: String,
    wanted: String,
}

impl Selection {
    pub fn parse(query: &str) -> Self {
        let words = words(&query.to_lowercase()).into_iter().take(TERMS_MAX);
        Self { terms: words.map(|word| term(&word)).collect() }
    }

    pub fn matches(&self, world: &World, organization: u64, repository: &Repository) -> bool {
        let holds = |term: &Term| holds(world, organization, repository, term) != term.negated;
        self.terms.iter().all(holds)
    }
}

/// Splits at blanks; quotation marks group words.
fn words(query: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted) = (String::new(), false);
    for c in query.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn term(word: &str) -> Term {
    let (negated, rest) = word.strip_prefix('-').map_or((false, word), |rest| (true, rest));
    match rest.split_once(':') {
        Some((qualifier, wanted)) if is_known(qualifier) => {
            Term { negated, qualifier: qualifier.to_owned(), wanted: wanted.to_owned() }
        }
        _ => Term { negated: false, qualifier: String::new(), wanted: word.to_owned() },
    }
}

fn is_known(qualifier: &str) -> bool {
    const QUALIFIERS: &[&str] =
        &["repo", "org", "user", "visibility", "is", "archived", "template", "language", "topic"];
    QUALIFIERS.contains(&qualifier) || qualifier.starts_with("props.")
}

fn holds(world: &World, organization: u64, repository: &Repository, term: &Term) -> bool {
    let wanted = term.wanted.as_str();
    let is_on = |feature: &str| repository.features.get(feature) == Some(&true);
    match term.qualifier.as_str() {
        "repo" => {
            world.full_name(repository).to_lowercase() == wanted
                || repository.name.to_lowercase() == wanted
        }
        "org" | "user" => world.owner_login(repository.owner).to_lowercase() == wanted,
        "visibility" | "is" if matches!(wanted, "public" | "private") => {
            (repository.visibility == Visibility::Private) == (wanted == "private")
        }
        "is" => is_on(wanted),
        "archived" => is_on("archived").to_string() == wanted,
        "template" => is_on("is_template").to_string() == wanted,
        "language" => repository.language.is_some_and(|language| language.to_lowercase() == wanted),
        "topic" => repository.topics.iter().any(|topic| topic.to_lowercase() == wanted),
        "" => is_named(world, repository, wanted),
        qualifier => qualifier.strip_prefix("props.").is_some_and(|name| {
            has_value(&world.properties, organization, repository.id, name, wanted)
        }),
    }
}

/// Searches a keyword in names and descriptions.
fn is_named(world: &World, repository: &Repository, wanted: &str) -> bool {
    world.full_name(repository).to_lowercase().contains(wanted)
        || repository.description.to_lowercase().contains(wanted)
}

/// Returns true when the repository shows this value, its own or the default.
fn has_value(
    properties: &Properties,
    organization: u64,
    repository: u64,
    name: &str,
    wanted: &str,
) -> bool {
    let named = properties.definitions(organization);
    let named = named.filter(|definition| definition.name.to_lowercase() == name);
    let mut shown = named.filter_map(|definition| properties.value_of(repository, definition));
    shown.any(|value| value.has(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_split_at_blanks_outside_quotes() {
        assert_eq!(words("a  b"), ["a", "b"]);
        assert_eq!(words("props.team:\"the core\" x"), ["props.team:the core", "x"]);
        assert_eq!(words("\" \"\""), [" "]);
        assert!(words("  \"\" ").is_empty());
    }

    #[test]
    fn an_unknown_qualifier_is_a_keyword() {
        assert_eq!(
            term("size:3"),
            Term { negated: false, qualifier: String::new(), wanted: "size:3".to_owned() }
        );
        assert_eq!(
            term("-x"),
            Term { negated: false, qualifier: String::new(), wanted: "-x".to_owned() }
        );
        assert!(term("-is:private").negated);
    }
}
