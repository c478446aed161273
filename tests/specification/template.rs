//! The route of a concrete path.
//!
//! A path can match several templates. It belongs to the most literal one from the left among the
//! routes that the tables name.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::rows;

/// A segment of a template, ordered by precision, the least first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    /// All remaining segments.
    Rest,
    Parameter,
    Literal(String),
}

type Shape = Vec<Segment>;

/// True if `template` is the most literal route of this method that `path` matches.
pub fn is_best(method: &str, template: &str, path: &str) -> bool {
    let shape = shape(template);
    if !fits(&shape, path) {
        return false;
    }
    let rivals = known()
        .iter()
        .filter(|(known, rival)| (known == method || known == "ANY") && fits(rival, path))
        .map(|(_, rival)| rival);
    rivals.max().is_none_or(|best| *best <= shape)
}

/// Every route that the tables name.
fn known() -> &'static BTreeSet<(String, Shape)> {
    static KNOWN: OnceLock<BTreeSet<(String, Shape)>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let tables = rows::tables();
        let evidence = tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.evidence);
        evidence
            .filter_map(|evidence| evidence.route())
            .map(|(method, template)| (method.to_owned(), shape(template)))
            .collect()
    })
}

/// The template without parameter names: `{org}` and `{org_id}` are the same.
fn shape(template: &str) -> Shape {
    let segment = |text: &str| match text.strip_prefix('{') {
        Some(name) if name.starts_with('*') => Segment::Rest,
        Some(_) => Segment::Parameter,
        None => Segment::Literal(text.to_owned()),
    };
    template.trim_start_matches('/').split('/').map(segment).collect()
}

fn fits(shape: &[Segment], path: &str) -> bool {
    let mut segments = path.trim_start_matches('/').split('/');
    for wanted in shape {
        match (wanted, segments.next()) {
            (Segment::Rest, Some(_)) => return true,
            (Segment::Parameter, Some(given)) if !given.is_empty() => {}
            (Segment::Literal(text), Some(given)) if text == given => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

/// A concrete path: `value` replaces each `{name}`.
pub fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let filled = template.split('/').map(|segment| {
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => value(name.trim_start_matches('*')),
            None => segment.to_owned(),
        }
    });
    filled.collect::<Vec<_>>().join("/")
}

mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_most_literal_template() {
        assert!(shape("/orgs/{org}/hooks") > shape("/orgs/{org}/{rest}"));
        assert!(shape("/orgs/{org}/{rest}") > shape("/orgs/{*rest}"));
        assert_eq!(shape("/orgs/{org}"), shape("/orgs/{org_id}"));
        assert!(fits(&shape("/orgs/{org}/hooks"), "/orgs/acme/hooks"));
        assert!(!fits(&shape("/orgs/{org}/hooks"), "/orgs/acme/hooks/1"));
        assert!(!fits(&shape("/orgs/{org}/hooks"), "/orgs//hooks"));
        assert!(fits(&shape("/orgs/{*rest}"), "/orgs/acme/hooks/1"));
    }

    #[test]
    fn parameters_are_filled_by_name() {
        assert_eq!(
            fill("/orgs/{org}/teams/{team_slug}", str::to_uppercase),
            "/orgs/ORG/teams/TEAM_SLUG"
        );
    }
}
