//! The objects that a query traverses, and the resolution of their fields.
//!
//! Resolved values are plain data; only [`Object`] depends on the library. It also bounds the
//! response: every value is charged to a byte budget, and an exhausted budget ends all look-ups.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use apollo_compiler::executable::{Selection, SelectionSet};
use apollo_compiler::resolvers::{FieldError, ObjectValue, ResolveInfo, ResolvedValue};
use apollo_compiler::response::{JsonMap, JsonValue};

use super::connection::{self, Edge, Page};
use super::mutation::{self, Payload};
use super::problem::Problem;
use super::record::{self, Record};
use super::{issue, people, query, reactions, repository, rollup};
use crate::emulator::limits::Limits;
use crate::emulator::routing::Call;
use crate::emulator::world::Issue;

/// The overhead of a value beside its text: name, quotes and separators.
const VALUE_BYTES: usize = 24;

/// An object, identified by its repository, number or id.
#[derive(Clone, Debug)]
pub enum Node {
    Query,
    Mutation,
    RateLimit,
    User(u64),
    Bot(u64),
    Organization(u64),
    Repository(u64),
    /// An object with nothing but a name, such as a language, by its type.
    Named(&'static str, String),
    Record(Rc<Record>),
    ReactionGroup(&'static str),
    Issue(u64, u64),
    Pull(u64, u64),
    Comment(u64, u64),
    Label(u64, u64),
    Page(Rc<Page>),
    PageInfo(Rc<Page>),
    Edge(Rc<Edge>),
    Payload(Rc<Payload>),
}

impl Node {
    pub fn issue(repository: u64, issue: &Issue) -> Self {
        if issue.pull_from.is_some() {
            Self::Pull(repository, issue.number)
        } else {
            Self::Issue(repository, issue.number)
        }
    }

    /// Returns the repository itself, or the one that contains the object.
    pub fn repository(&self) -> Option<u64> {
        match self {
            Self::Repository(id)
            | Self::Issue(id, _)
            | Self::Pull(id, _)
            | Self::Comment(id, _)
            | Self::Label(id, _) => Some(*id),
            _ => None,
        }
    }

    pub fn key(&self) -> u64 {
        match self {
            Self::User(id) | Self::Bot(id) | Self::Organization(id) | Self::Repository(id) => *id,
            Self::Issue(_, key)
            | Self::Pull(_, key)
            | Self::Comment(_, key)
            | Self::Label(_, key) => *key,
            Self::Record(record) => record.key,
            _ => 0,
        }
    }

    /// Returns the place in a list, which may be of several repositories.
    pub fn cursor_key(&self) -> u64 {
        match self {
            Self::Issue(repository, number) | Self::Pull(repository, number) => {
                (repository << 20) | number
            }
            other => other.key(),
        }
    }
}

#[derive(Clone, Debug)]
pub enum FieldValue {
    Value(JsonValue),
    One(Node),
    Many(Vec<Option<Node>>),
}

impl FieldValue {
    pub fn null() -> Self {
        Self::Value(JsonValue::Null)
    }

    pub fn value(value: impl Into<JsonValue>) -> Self {
        Self::Value(value.into())
    }

    pub fn maybe(node: Option<Node>) -> Self {
        node.map_or_else(Self::null, Self::One)
    }

    pub fn number(value: u64) -> Self {
        Self::value(i64::try_from(value).unwrap_or(i64::MAX))
    }

    pub fn count(value: usize) -> Self {
        Self::number(value as u64)
    }

    pub fn text(value: &str) -> Self {
        Self::value(value.to_owned())
    }

    pub fn maybe_text(value: Option<&str>) -> Self {
        value.map_or_else(Self::null, Self::text)
    }
}

pub type Result<T = FieldValue> = std::result::Result<T, Problem>;

/// The arguments of a field, coerced to their types.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(pub &'a JsonMap);

impl<'a> Arguments<'a> {
    pub fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).and_then(JsonValue::as_str)
    }

    pub fn integer(self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(JsonValue::as_i64).and_then(|value| u64::try_from(value).ok())
    }

    /// Strings, ids or enumeration values. A single one is a list of one, as the default value of a
    /// variable may be.
    pub fn texts(self, name: &str) -> Option<Vec<&'a str>> {
        match self.0.get(name)? {
            JsonValue::Array(values) => Some(values.iter().filter_map(JsonValue::as_str).collect()),
            value => value.as_str().map(|value| vec![value]),
        }
    }

    pub fn flag(self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(JsonValue::as_bool)
    }

    pub fn object(self, name: &str) -> Option<Self> {
        self.0.get(name).and_then(JsonValue::as_object).map(Self)
    }

    pub fn has(self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }
}

/// The size of one request, and the bytes left for its response.
#[derive(Debug)]
pub struct Budget {
    pub cost: u32,
    pub nodes: u64,
    left_bytes: Cell<Option<usize>>,
}

impl Budget {
    pub fn new(cost: u32, nodes: u64, limits: &Limits) -> Self {
        let bytes_max = usize::try_from(limits.get("graphql.answer-bytes")).unwrap_or(usize::MAX);
        Self { cost, nodes, left_bytes: Cell::new(Some(bytes_max)) }
    }

    /// Charges the byte budget; an overdraft leaves it exhausted for good.
    pub fn charge(&self, bytes: usize) {
        self.left_bytes.set(self.left_bytes.get().and_then(|left| left.checked_sub(bytes)));
    }

    pub fn is_exhausted(&self) -> bool {
        self.left_bytes.get().is_none()
    }
}

/// A selected field of an object.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a, 'c> {
    pub call: &'a Call<'c>,
    pub budget: &'a Budget,
    pub name: &'a str,
    pub arguments: Arguments<'a>,
}

pub struct Object<'x, 'g, 'c> {
    /// Mutations change the world that later fields read.
    pub call: &'x RefCell<&'g mut Call<'c>>,
    pub budget: &'x Budget,
    pub node: Node,
}

impl Object<'_, '_, '_> {
    fn find(&self, info: &ResolveInfo<'_>) -> Result {
        let (name, arguments) = (info.field_name(), Arguments(info.arguments()));
        if let Node::Mutation = self.node {
            return mutation::field(&mut self.call.borrow_mut(), name, arguments);
        }
        let field = Field { call: &self.call.borrow(), budget: self.budget, name, arguments };
        match &self.node {
            Node::Query | Node::Mutation => query::field(field),
            Node::RateLimit => Ok(query::rate_limit(field)),
            Node::User(id) | Node::Bot(id) => people::user(field, *id),
            Node::Organization(id) => people::organization(field, *id),
            Node::Repository(id) => repository::field(field, *id),
            Node::Named(_, text) => Ok(FieldValue::text(text)),
            Node::Record(record) if name == "authors" => record::authors(field, record),
            Node::Record(record) if name == "contexts" => rollup::contexts(field, record),
            Node::Record(record) if name == "isRequired" => rollup::is_required(field, record),
            Node::Record(record) => Ok(record.field(name)),
            Node::ReactionGroup(content) => reactions::field(field, content),
            Node::Issue(repository, number) | Node::Pull(repository, number) => {
                issue::field(field, *repository, *number)
            }
            Node::Comment(repository, id) => issue::comment(field, *repository, *id),
            Node::Label(repository, id) => repository::label(field, *repository, *id),
            Node::Page(page) => Ok(connection::page(page, name)),
            Node::PageInfo(page) => Ok(connection::page_info(page, name)),
            Node::Edge(edge) => Ok(connection::edge(edge, name)),
            Node::Payload(payload) => Ok(mutation::payload(payload, name)),
        }
    }
}

impl ObjectValue for Object<'_, '_, '_> {
    fn type_name(&self) -> &str {
        match &self.node {
            Node::Query => "Query",
            Node::Mutation => "Mutation",
            Node::RateLimit => "RateLimit",
            Node::User(_) => "User",
            Node::Bot(_) => "Bot",
            Node::Organization(_) => "Organization",
            Node::Repository(_) => "Repository",
            Node::Named(kind, _) => kind,
            Node::Record(record) => record.kind,
            Node::ReactionGroup(_) => "ReactionGroup",
            Node::Issue(..) => "Issue",
            Node::Pull(..) => "PullRequest",
            Node::Comment(..) => "IssueComment",
            Node::Label(..) => "Label",
            Node::Page(page) => page.kind.connection,
            Node::PageInfo(_) => "PageInfo",
            Node::Edge(edge) => edge.kind.edge,
            Node::Payload(payload) => payload.kind,
        }
    }

    fn resolve_field<'a>(
        &'a self,
        info: &'a ResolveInfo<'a>,
    ) -> std::result::Result<ResolvedValue<'a>, FieldError> {
        if self.budget.is_exhausted() {
            // The response will be an error; this only ends the execution.
            return Ok(ResolvedValue::SkipForPartialExecution);
        }
        let Self { call, budget, .. } = *self;
        let object = move |node| ResolvedValue::object(Object { call, budget, node });
        match self.find(info)? {
            FieldValue::Value(value) => {
                budget.charge(VALUE_BYTES + value.as_str().map_or(0, str::len));
                Ok(ResolvedValue::Leaf(value))
            }
            FieldValue::One(node) => {
                budget.charge(VALUE_BYTES);
                Ok(object(node))
            }
            FieldValue::Many(nodes) => {
                // Charged at once, so that fields without a look-up (`__typename`) count too.
                let each: usize = info
                    .field_selections()
                    .iter()
                    .map(|field| selections(info, &field.selection_set))
                    .sum();
                budget.charge(nodes.len().saturating_mul(each + 1).saturating_mul(VALUE_BYTES));
                if budget.is_exhausted() {
                    return Ok(ResolvedValue::SkipForPartialExecution);
                }
                let objects = nodes.into_iter();
                Ok(ResolvedValue::list(
                    objects.map(move |node| node.map_or_else(ResolvedValue::null, object)),
                ))
            }
        }
    }
}

/// Counts with fragments expanded. The size check of the whole query bounds the recursion.
fn selections(info: &ResolveInfo<'_>, set: &SelectionSet) -> usize {
    let inside = |selection: &Selection| match selection {
        Selection::Field(field) => 1 + selections(info, &field.selection_set),
        Selection::InlineFragment(inline) => selections(info, &inline.selection_set),
        Selection::FragmentSpread(spread) => info
            .document()
            .fragments
            .get(&spread.fragment_name)
            .map_or(0, |fragment| selections(info, &fragment.selection_set)),
    };
    set.selections.iter().map(inside).sum()
}
