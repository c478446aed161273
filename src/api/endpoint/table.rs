//! The endpoint table: all known routes, and the class of a request.
//!
//! Each method has a radix tree, built once per dialect: a lookup takes time by the length of the
//! path, not by the number of routes. A route in no table belongs to the nearest family or class
//! and is never an error, so the number of classes is bounded. Paths are compared without decoding
//! (`%2F` is data of a segment). A trailing slash makes another, unknown route.

use std::sync::LazyLock;

use http::Method;
pub use matchit::Params;
use matchit::{InsertError, Match, Router};

use super::dialect::Dialect;
use super::owner_root::{root_segments, segment_count, split_after};
use super::table_text::{Lines, METHODS};
use super::{Endpoint, EndpointId, Source};

pub(super) const TEXT: &str = include_str!("endpoints.table");

static SERVICE: LazyLock<Table> = LazyLock::new(|| Table::read(TEXT, Dialect::Service).0);
static GITHUB: LazyLock<Table> = LazyLock::new(|| Table::read(TEXT, Dialect::Github).0);

/// Addresses by number that replace addresses by name. They occur in `Link` headers of the running
/// service, which pages by number: `/repositories/{id}/issues?page=2`. They are the same endpoint
/// with other parameters.
const BY_NUMBER: [(&str, &str); 4] = [
    ("/repos/{owner}/{repo}", "/repositories/{repository_id}"),
    ("/orgs/{org}/teams/{team_slug}", "/organizations/{organization_id}/team/{team_id}"),
    ("/orgs/{org}", "/organizations/{organization_id}"),
    ("/users/{username}", "/user/{account_id}"),
];

/// No template is deeper; ends the search for a place under a family's conflicting routes.
const SEGMENTS_MAX: usize = 16;

/// Result of a table lookup.
#[derive(Clone, Debug)]
pub struct Classified<'t, 'p> {
    /// Endpoint, or class of unknown routes.
    pub endpoint: &'t Endpoint,
    /// Parameters of the path, not decoded. An address by number has no `owner`.
    pub params: Params<'t, 'p>,
}

/// All endpoints, and the trees that find them.
#[derive(Debug)]
pub struct Table {
    endpoints: Vec<Endpoint>,
    trees: [Router<Route>; METHODS.len()],
    /// For a path in no tree, by method; the last is for methods that are none of the five.
    unknown: [EndpointId; METHODS.len() + 1],
}

#[derive(Clone, Copy, Debug)]
struct Route {
    endpoint: EndpointId,
    /// For an address by number: its class when the first parameter is no number.
    unless_number: Option<EndpointId>,
}

impl Table {
    /// Returns the table of this release in the names of `dialect`.
    pub fn embedded(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::Service => &SERVICE,
            Dialect::Github => &GITHUB,
        }
    }

    /// Classifies a request. `path` begins with `/`, has no `/api/v3` and no query. HEAD counts as
    /// GET.
    pub fn classify<'t, 'p>(&'t self, method: &Method, path: &'p str) -> Classified<'t, 'p> {
        let place = method_index(method);
        let found = self.trees.get(place).and_then(|tree| tree.at(path).ok());
        let (id, params) = match found {
            None => (self.unknown[place], Params::default()),
            Some(Match { value: Route { endpoint, unless_number }, params }) => match unless_number
            {
                Some(class) if !begins_with_number(&params) => (*class, Params::default()),
                _ => (*endpoint, params),
            },
        };
        Classified { endpoint: self.endpoint(id), params }
    }

    /// Returns the endpoint of this id.
    pub fn endpoint(&self, id: EndpointId) -> &Endpoint {
        &self.endpoints[id.index()]
    }

    /// Endpoints in the order of their ids, classes of unknown routes included.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Returns the part of a path or template that names its repository, organization, team,
    /// enterprise or user; `None` where none is named.
    pub fn place(path: &str) -> Option<&str> {
        // One segment names no place: `/user` is the caller.
        let segments = Some(root_segments(path)).filter(|segments| *segments > 1)?;
        let (named, _) = split_after(path, segments);
        (segment_count(named) == segments).then_some(named)
    }

    /// Builds the table from its text, and lists the faults. A test proves that the embedded text
    /// has none.
    pub(super) fn read(text: &str, dialect: Dialect) -> (Self, Vec<String>) {
        let Lines { mut endpoints, mut faults } = Lines::read(text, dialect);
        let unknown = add_unknown(&mut endpoints);
        let mut trees = METHODS.map(|_| Router::new());
        // Explicit routes come first, then addresses by number, then families from the deepest to
        // the shallowest: each takes the free places.
        for endpoint in endpoints
            .iter()
            .filter(|endpoint| !endpoint.family && endpoint.template.starts_with('/'))
        {
            if let Err(fault) = insert(&mut trees, endpoint, &endpoint.template, None) {
                faults.push(format!("{} {}: {fault}", endpoint.method, endpoint.template));
            }
        }
        let by_number: Vec<_> = endpoints
            .iter()
            .filter_map(|endpoint| Some((endpoint, by_number(&endpoint.template)?)))
            .collect();
        for (endpoint, template) in by_number.iter().filter(|(endpoint, _)| !endpoint.family) {
            let class = class_of(&endpoints, &endpoint.method, template)
                .unwrap_or(unknown[method_index(&endpoint.method)]);
            // On a conflict the address by number has a line of its own, which stays.
            let _ = insert(&mut trees, endpoint, template, Some(class));
        }
        let own = endpoints
            .iter()
            .filter(|endpoint| endpoint.family)
            .map(|endpoint| (endpoint, endpoint.template.clone()));
        let numbered =
            by_number.iter().filter(|(endpoint, _)| endpoint.family && !endpoint.generic).cloned();
        let mut families: Vec<_> = own.chain(numbered).collect();
        families.sort_by_key(|(_, template)| std::cmp::Reverse(segment_count(template)));
        for (endpoint, template) in &families {
            insert_family(&mut trees, endpoint, template);
        }
        (Self { endpoints, trees, unknown }, faults)
    }
}

/// Adds the classes for paths in no tree; the last is for methods that are none of the five.
fn add_unknown(endpoints: &mut Vec<Endpoint>) -> [EndpointId; METHODS.len() + 1] {
    let [get, post, put, patch, delete] = METHODS;
    [get, post, put, patch, delete, Method::OPTIONS].map(|method| {
        // Ids are 16 bits wide; `Lines` reports a table near that size as a fault.
        let id = EndpointId(u16::try_from(endpoints.len()).unwrap_or(u16::MAX));
        endpoints.push(Endpoint::blank(id, method, "(unknown)", "unknown", Source::Generic));
        id
    })
}

fn begins_with_number(params: &Params<'_, '_>) -> bool {
    let first = params.iter().next();
    first.is_some_and(|(_, value)| value.bytes().all(|byte| byte.is_ascii_digit()))
}

fn method_index(method: &Method) -> usize {
    match *method {
        Method::GET | Method::HEAD => 0,
        Method::POST => 1,
        Method::PUT => 2,
        Method::PATCH => 3,
        Method::DELETE => 4,
        _ => METHODS.len(),
    }
}

fn insert(
    trees: &mut [Router<Route>],
    endpoint: &Endpoint,
    template: &str,
    unless_number: Option<EndpointId>,
) -> Result<(), InsertError> {
    let route = Route { endpoint: endpoint.id, unless_number };
    trees
        .get_mut(method_index(&endpoint.method))
        .map_or(Ok(()), |tree| tree.insert(template, route))
}

/// Inserts a family's catch-all. A tree cannot hold `{*rest}` beside `{name}`: there the family
/// takes the free places next to and below `{name}`.
fn insert_family(trees: &mut [Router<Route>], endpoint: &Endpoint, template: &str) {
    let route = Route { endpoint: endpoint.id, unless_number: None };
    let Some(tree) = trees.get_mut(method_index(&endpoint.method)) else { return };
    let mut above = template.trim_end_matches("{*rest}").to_owned();
    for depth in segment_count(template)..SEGMENTS_MAX {
        // A trailing slash is another, unknown route. On a conflict a route or a deeper family is
        // there already.
        let _ = tree.insert(above.clone(), route);
        if tree.insert(format!("{above}{{*rest}}"), route).is_ok() {
            return;
        }
        above = format!("{above}{{rest{depth}}}");
        let _ = tree.insert(above.clone(), route);
        above.push('/');
    }
}

/// Returns the address by number of a template, if it has one. A parameter right after the owner is
/// left out, because it would match everything.
fn by_number(template: &str) -> Option<String> {
    let (tail, number) = BY_NUMBER.iter().find_map(|(name, number)| {
        let tail = template.strip_prefix(name)?;
        (tail.is_empty() || tail.starts_with('/')).then_some((tail, number))
    })?;
    (!tail.starts_with("/{")).then(|| format!("{number}{tail}"))
}

fn class_of(endpoints: &[Endpoint], method: &Method, template: &str) -> Option<EndpointId> {
    let first = |template: &str| template.split('/').nth(1).map(str::to_owned);
    let same = |endpoint: &&Endpoint| {
        endpoint.generic
            && endpoint.method == *method
            && first(&endpoint.template) == first(template)
    };
    endpoints.iter().find(same).map(|endpoint| endpoint.id)
}
