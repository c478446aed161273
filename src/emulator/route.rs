//! The routes that exist: what each needs, what it counts for and which function answers it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use http::Method;

use super::access::Need;
use super::call::Call;
use super::fault::Fault;
use super::intake::decode_segment;
use super::limits::Resource;
use super::reply::Reply;
use super::resources;
use super::secondary::{Content, TokenRequest};

/// What a route's function makes of a call.
pub type Outcome = Result<Reply, Fault>;

/// A method that has routes; `HEAD` is asked as `GET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    Post,
    Patch,
    Put,
    Delete,
}

impl Verb {
    pub fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::POST => Some(Self::Post),
            Method::PATCH => Some(Self::Patch),
            Method::PUT => Some(Self::Put),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// Whether a request takes from a primary budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    One,
    /// A GraphQL query, by its size.
    Cost(u32),
    /// `GET /rate_limit` "does not count against the primary limit" (Document 1).
    Free,
}

/// One route.
#[derive(Debug)]
pub struct Route {
    pub verb: Verb,
    pub template: &'static str,
    pub need: Need,
    pub resource: Resource,
    pub charge: Charge,
    pub content: Content,
    pub tokens: TokenRequest,
    pub answer: fn(&mut Call<'_>) -> Outcome,
}

impl Route {
    pub const fn new(
        verb: Verb,
        template: &'static str,
        need: Need,
        answer: fn(&mut Call<'_>) -> Outcome,
    ) -> Self {
        Self {
            verb,
            template,
            need,
            resource: Resource::CORE,
            charge: Charge::One,
            content: Content::None,
            tokens: TokenRequest::No,
            answer,
        }
    }

    /// It makes something that people see. No list is published; this one takes every POST that
    /// makes a thing with an author.
    pub const fn content(self) -> Self {
        Self { content: Content::Generating, ..self }
    }

    /// It is about an access token of an app or OAuth app, of which there is a limit an hour.
    pub const fn about_tokens(self) -> Self {
        Self { tokens: TokenRequest::Counted, ..self }
    }

    pub const fn resource(self, resource: Resource) -> Self {
        Self { resource, ..self }
    }

    pub const fn free(self) -> Self {
        Self { charge: Charge::Free, ..self }
    }
}

/// The values of a template's parameters.
#[derive(Debug, Default)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// From names and values as the path has them.
    pub fn decoded<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), decode_segment(value)))
                .collect(),
        )
    }

    /// Decoded; empty when the template has no such parameter.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    /// A number; what is none names nothing that exists.
    pub fn id(&self, name: &str) -> Result<u64, Fault> {
        let given = self.get(name);
        // One number, one spelling: a sign or a zero in front names nothing.
        let is_plain = given.bytes().all(|byte| byte.is_ascii_digit())
            && (given == "0" || !given.starts_with('0'));
        given.parse().ok().filter(|_| is_plain).ok_or(Fault::NotFound)
    }
}

type Index = matchit::Router<BTreeMap<Verb, &'static Route>>;

static INDEX: OnceLock<Index> = OnceLock::new();

/// The route of a canonical path.
pub fn find(verb: Verb, path: &str) -> Option<(&'static Route, Params)> {
    let found = INDEX.get_or_init(index).at(path).ok()?;
    let route = found.value.get(&verb)?;
    Some((route, Params::decoded(found.params.iter())))
}

fn index() -> Index {
    let mut by_template: BTreeMap<&'static str, BTreeMap<Verb, &'static Route>> = BTreeMap::new();
    for route in resources::all() {
        by_template.entry(route.template).or_default().insert(route.verb, route);
    }
    let mut index = Index::new();
    for (template, routes) in by_template {
        let inserted = index.insert(template, routes);
        debug_assert!(inserted.is_ok(), "{template} collides with another route");
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_template() {
        for route in resources::all() {
            let path = route.template.replace(['{', '}', '*'], "");
            let (found, _) = find(route.verb, &path)
                .unwrap_or_else(|| panic!("{} {}", route.verb.name(), route.template));
            assert_eq!(found.template, route.template);
        }
    }

    #[test]
    fn an_encoded_slash_in_a_segment_is_data() {
        let (_, params) = find(Verb::Get, "/repos/a%2Fb/c").expect("a route");
        assert_eq!(params.get("owner"), "a/b");
    }

    #[test]
    fn a_trailing_slash_is_not_found() {
        assert!(find(Verb::Get, "/user/").is_none());
        assert!(find(Verb::Get, "/repos/acme/widgets/").is_none());
    }
}
