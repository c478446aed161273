//! Cursor pagination: `nodes`, `edges`, `pageInfo`, `totalCount`.

use std::rc::Rc;

use super::ids::{cursor, decode_cursor};
use super::object::{Field, FieldValue, Node, Result};
use super::problem::{Kind as ProblemKind, Problem};

#[derive(Debug)]
pub struct Kind {
    pub connection: &'static str,
    pub edge: &'static str,
}

pub const REPOSITORIES: &Kind =
    &Kind { connection: "RepositoryConnection", edge: "RepositoryEdge" };
pub const ORGANIZATIONS: &Kind =
    &Kind { connection: "OrganizationConnection", edge: "OrganizationEdge" };
pub const ISSUES: &Kind = &Kind { connection: "IssueConnection", edge: "IssueEdge" };
pub const PULLS: &Kind = &Kind { connection: "PullRequestConnection", edge: "PullRequestEdge" };
pub const USERS: &Kind = &Kind { connection: "UserConnection", edge: "UserEdge" };
pub const LABELS: &Kind = &Kind { connection: "LabelConnection", edge: "LabelEdge" };
pub const COMMENTS: &Kind =
    &Kind { connection: "IssueCommentConnection", edge: "IssueCommentEdge" };

macro_rules! kinds {
    ($($name:ident $connection:literal $edge:literal,)*) => {
        $(pub const $name: &Kind = &Kind { connection: $connection, edge: $edge };)*
    };
}

kinds! {
    ALERTS "RepositoryVulnerabilityAlertConnection" "RepositoryVulnerabilityAlertEdge",
    AUTHORS "GitActorConnection" "GitActorEdge",
    COMMITS "PullRequestCommitConnection" "PullRequestCommitEdge",
    CONTEXTS "StatusCheckRollupContextConnection" "StatusCheckRollupContextEdge",
    FILES "PullRequestChangedFileConnection" "PullRequestChangedFileEdge",
    MILESTONES "MilestoneConnection" "MilestoneEdge",
    PROJECT_CARDS "ProjectCardConnection" "ProjectCardEdge",
    PROJECT_ITEMS "ProjectV2ItemConnection" "ProjectV2ItemEdge",
    REACTING_USERS "ReactingUserConnection" "ReactingUserEdge",
    REFS "RefConnection" "RefEdge",
    RELEASES "ReleaseConnection" "ReleaseEdge",
    REVIEWS "PullRequestReviewConnection" "PullRequestReviewEdge",
    REVIEW_REQUESTS "ReviewRequestConnection" "ReviewRequestEdge",
    SEARCH "SearchResultItemConnection" "SearchResultItemEdge",
}

#[derive(Debug)]
pub struct Page {
    pub kind: &'static Kind,
    items: Vec<Node>,
    /// Of the whole list.
    total: usize,
    has_previous: bool,
    has_next: bool,
}

#[derive(Debug)]
pub struct Edge {
    pub kind: &'static Kind,
    pub node: Node,
}

impl Edge {
    pub fn of(kind: &'static Kind, node: Node) -> Node {
        Node::Edge(Rc::new(Self { kind, node }))
    }
}

/// Relay's rules: first `after` and `before`, then `first` and `last`.
pub fn of(field: Field<'_, '_>, kind: &'static Kind, mut items: Vec<Node>) -> Result {
    let Field { budget, arguments, .. } = field;
    // Building and cutting the list is work too.
    budget.charge(items.len());
    let total = items.len();
    let position_of = |name: &str| {
        let Some(given) = arguments.text(name) else { return Ok(None) };
        let found = decode_cursor(given)
            .and_then(|key| items.iter().position(|item| item.cursor_key() == key));
        found.map(Some).ok_or_else(|| {
            let shown: String = given.chars().take(100).collect();
            Problem::new(
                ProblemKind::InvalidCursor,
                format!("`{shown}` does not appear to be a valid cursor."),
            )
        })
    };
    let mut start = position_of("after")?.map_or(0, |at| at + 1);
    let mut end = position_of("before")?.unwrap_or(total).max(start);
    let size = |name: &str| {
        arguments.integer(name).map(|size| usize::try_from(size).unwrap_or(usize::MAX))
    };
    if let Some(first) = size("first") {
        end = end.min(start.saturating_add(first));
    }
    if let Some(last) = size("last") {
        start = start.max(end.saturating_sub(last));
    }
    items.truncate(end);
    let items = items.split_off(start.min(items.len()));
    Ok(FieldValue::One(Node::Page(Rc::new(Page {
        kind,
        items,
        total,
        has_previous: start > 0,
        has_next: end < total,
    }))))
}

pub fn page(page: &Rc<Page>, name: &str) -> FieldValue {
    match name {
        "nodes" => FieldValue::Many(page.items.iter().cloned().map(Some).collect()),
        "edges" => {
            let edge = |node: &Node| Some(Edge::of(page.kind, node.clone()));
            FieldValue::Many(page.items.iter().map(edge).collect())
        }
        "pageInfo" => FieldValue::One(Node::PageInfo(Rc::clone(page))),
        _ => FieldValue::count(page.total),
    }
}

pub fn page_info(page: &Page, name: &str) -> FieldValue {
    let at = |item: Option<&Node>| {
        FieldValue::maybe_text(item.map(|item| cursor(item.cursor_key())).as_deref())
    };
    match name {
        "hasNextPage" => FieldValue::value(page.has_next),
        "hasPreviousPage" => FieldValue::value(page.has_previous),
        "startCursor" => at(page.items.first()),
        _ => at(page.items.last()),
    }
}

pub fn edge(edge: &Edge, name: &str) -> FieldValue {
    if name == "cursor" {
        FieldValue::text(&cursor(edge.node.cursor_key()))
    } else {
        FieldValue::One(edge.node.clone())
    }
}
