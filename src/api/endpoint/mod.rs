//! One endpoint: a method and a route template, with the facts known about it.

pub(super) mod dialect;
pub(super) mod kinds;
pub(super) mod lane;
#[cfg(test)]
mod matrix_tests;
pub(super) mod owner_root;
pub(super) mod resource;
pub(super) mod table;
#[cfg(test)]
mod table_tests;
mod table_text;

use std::fmt;

use http::Method;

use super::endpoint::kinds::TokenKinds;
use super::endpoint::resource::ResourceName;

/// Items on a page when the caller does not say (Document 1, Page-number pagination).
pub const PER_PAGE_DEFAULT: u32 = 30;
/// Most items on a page (Document 1, Page-number pagination).
pub const PER_PAGE_MAX: u32 = 100;
/// Points of a GraphQL request without mutations (Document 1, Secondary rate limits).
pub const GRAPHQL_QUERY_POINTS: u32 = 1;
/// Points of a GraphQL request with mutations (Document 1, Secondary rate limits).
pub const GRAPHQL_MUTATION_POINTS: u32 = 5;

/// Points of a REST request where the table gives no others (Document 1, Secondary rate limits).
pub fn rest_points(method: &Method) -> u32 {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => 1,
        _ => 5,
    }
}

/// An endpoint's place in its [`Table`](super::Table): the same in every dialect of one release,
/// not stable between releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub(super) u16);

impl EndpointId {
    /// The place as an index, below [`Table::len`](super::Table::len).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a fact was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Document 1, Route inventory.
    Inventory,
    /// Document 1, Permission matrix for app tokens.
    Matrix,
    /// Document 2.
    Document2,
    /// Document 3.
    Document3,
    /// Not in the documents; known of the running service (UPSTREAM.md, CLIENTS.md).
    Upstream,
    /// A class for routes that nothing is known about.
    Generic,
}

/// Whose object a permission is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PermissionOwner {
    /// An organization permission.
    Organization,
    /// A repository permission.
    Repository,
    /// An enterprise permission.
    Enterprise,
}

/// How much a permission allows; each level includes the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Look.
    Read,
    /// Change.
    Write,
    /// Change the rules themselves (custom property definitions, Document 2).
    Admin,
}

/// A permission that an endpoint wants of app and fine-grained tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permission {
    /// Whose object it is about.
    pub owner: PermissionOwner,
    /// The document's name of it in lower case with `_` for spaces: `self_hosted_runners`.
    pub name: String,
    /// The level wanted.
    pub access: Access,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self.owner {
            PermissionOwner::Organization => "org",
            PermissionOwner::Repository => "repo",
            PermissionOwner::Enterprise => "enterprise",
        };
        let access = match self.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Admin => "admin",
        };
        write!(f, "{owner}/{}:{access}", self.name)
    }
}

/// What is known about one method of one route template, or about one class of unknown routes.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact of the table, named as the specification names it"
)]
pub struct Endpoint {
    /// Its place in the table.
    pub id: EndpointId,
    /// The route with its parameters in braces: `/repos/{owner}/{repo}/issues`. A family or class
    /// ends in `{*rest}` or is a word in parentheses.
    pub template: String,
    /// The method; GET stands for HEAD too. The class of methods that are none of the five is
    /// `OPTIONS`.
    pub method: Method,
    /// The group of Document 1's route inventory, or one of our own for routes beyond it.
    pub group: String,
    /// Where the entry comes from.
    pub source: Source,
    /// The primary limit that it is expected to count against; the answer's own word corrects it.
    pub resource: ResourceName,
    /// Units of the primary limit that one request costs: 1, or 0 for `/rate_limit`.
    pub primary_cost: u32,
    /// Points of the secondary limit per minute; for GraphQL the most that a request may cost.
    pub points: u32,
    /// The credentials it takes, as far as that is said.
    pub tokens: TokenKinds,
    /// Scopes of which a classic or OAuth token needs one; empty where none is named.
    pub scopes: Vec<String>,
    /// The permission that app and fine-grained tokens need; `None` where none is named.
    pub permission: Option<Permission>,
    /// Further permissions under which the documents list it (routes marked \[M\]).
    pub other_permissions: Vec<Permission>,
    /// Of the two app tokens only the user's may use it.
    pub uat_only: bool,
    /// Marked \[M\]: needs more than one permission, or accepts a different one.
    pub several_permissions: bool,
    /// Creates something that people see, so that it counts against the content limits
    /// (UPSTREAM.md, Limits).
    pub content_generating: bool,
    /// Asks for an OAuth or app access token, of which an app may ask a number per hour (Document
    /// 1, Secondary rate limits).
    pub token_request: bool,
    /// Sends notifications, so that its writes want wider spacing (UPSTREAM.md, Limits).
    pub notifies: bool,
    /// Made for polling: answers carry `Last-Modified` and `X-Poll-Interval` (Document 1, Poll
    /// interval).
    pub polls: bool,
    /// Most items on a page.
    pub per_page_max: u32,
    /// Items on a page when the caller does not say.
    pub per_page_default: u32,
    /// Its list is paged by `cursor`, not by `page` (Document 1, Cursor pagination).
    pub cursor_pages: bool,
    /// Answers differently per account, because it is about whoever asks (DESIGN D2).
    pub about_caller: bool,
    /// The template to use instead of this one, which is closing down.
    pub replaced_by: Option<String>,
    /// Stands for routes of a family whose sub-routes the documents do not list.
    pub family: bool,
    /// Not in the table: a class of unknown routes.
    pub generic: bool,
}

impl Endpoint {
    /// An endpoint about which only its place and name are known.
    pub(super) fn blank(
        id: EndpointId,
        method: Method,
        template: String,
        group: &str,
        source: Source,
    ) -> Self {
        Self {
            id,
            family: template.ends_with("/{*rest}"),
            template,
            group: group.to_owned(),
            source,
            resource: ResourceName::core(),
            primary_cost: 1,
            points: rest_points(&method),
            method,
            tokens: TokenKinds::UNKNOWN,
            scopes: Vec::new(),
            permission: None,
            other_permissions: Vec::new(),
            uat_only: false,
            several_permissions: false,
            content_generating: false,
            token_request: false,
            notifies: false,
            polls: false,
            per_page_max: PER_PAGE_MAX,
            per_page_default: PER_PAGE_DEFAULT,
            cursor_pages: false,
            about_caller: false,
            replaced_by: None,
            generic: source == Source::Generic,
        }
    }

    /// The class of the requests of this method whose path has no known first segment.
    pub(super) fn unknown(id: EndpointId, method: Method) -> Self {
        Self::blank(id, method, "(unknown)".to_owned(), "unknown", Source::Generic)
    }
}
