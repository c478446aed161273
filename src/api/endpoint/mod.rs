//! One endpoint: a method and a route template, with the known facts about it.

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
use strum::{Display, EnumString};

use kinds::TokenKinds;
use resource::ResourceName;

/// Items on a page when the caller names no number (SPECIFICATION, "Conventions").
pub const PER_PAGE_DEFAULT: u32 = 30;
/// Most items on a page (SPECIFICATION, "Conventions").
pub const PER_PAGE_MAX: u32 = 100;
/// Points of a GraphQL request without mutations (SPECIFICATION, "Secondary rate limits").
pub const GRAPHQL_QUERY_POINTS: u32 = 1;
/// Points of a GraphQL request with mutations (SPECIFICATION, "Secondary rate limits").
pub const GRAPHQL_MUTATION_POINTS: u32 = 5;

/// Returns the points of a REST request for which the table has no entry (SPECIFICATION, "Secondary
/// rate limits").
pub fn rest_points(method: &Method) -> u32 {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => 1,
        _ => 5,
    }
}

/// Index of an endpoint in its [`Table`](super::Table): the same in every dialect of one release,
/// not stable between releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub(super) u16);

impl EndpointId {
    /// Returns the index, in [`Table::endpoints`](super::Table::endpoints).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Source of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Source {
    /// Route inventory.
    Inventory,
    /// Permission matrix for app tokens.
    Matrix,
    /// The document on organizations and teams.
    #[strum(serialize = "document-2")]
    Document2,
    /// The document on webhooks and migrations.
    #[strum(serialize = "document-3")]
    Document3,
    /// Known only from the running service.
    Upstream,
    /// A class for routes without known facts.
    Generic,
}

/// Owner of the object that a permission is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PermissionOwner {
    /// Organization permission.
    #[strum(serialize = "org")]
    Organization,
    /// Repository permission.
    #[strum(serialize = "repo")]
    Repository,
    /// Enterprise permission.
    Enterprise,
}

/// Level of a permission; each level includes the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Access {
    /// Permits reads.
    Read,
    /// Permits changes of the object.
    Write,
    /// Permits changes of the rules themselves, such as definitions of custom properties.
    Admin,
}

/// Permission that an endpoint requires of app and fine-grained tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permission {
    /// Owner of the object.
    pub owner: PermissionOwner,
    /// Name in lower case with `_` for spaces: `self_hosted_runners`.
    pub name: String,
    /// Lowest level that suffices.
    pub access: Access,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.owner, self.name, self.access)
    }
}

/// Facts about one method of one route template, or about one class of unknown routes.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact of the table, named as the specification names it"
)]
pub struct Endpoint {
    /// Index in the table.
    pub id: EndpointId,
    /// Route with its parameters in braces: `/repos/{owner}/{repo}/issues`. A family or class ends
    /// in `{*rest}` or is a word in parentheses.
    pub template: String,
    /// Method; GET includes HEAD. `OPTIONS` stands for all methods without a tree of their own.
    pub method: Method,
    /// Group of the route inventory, or one of our own for routes beyond it.
    pub group: String,
    /// Source of the entry.
    pub source: Source,
    /// Expected primary limit. A resource that an answer names replaces it.
    pub resource: ResourceName,
    /// Units of the primary limit that one request costs: 1, or 0 for `/rate_limit`.
    pub primary_cost: u32,
    /// Points of the secondary limit per minute; for GraphQL the most that a request may cost.
    pub points: u32,
    /// Credentials that the endpoint takes, as far as specified.
    pub tokens: TokenKinds,
    /// Scopes, of which a classic or OAuth token needs one; empty where none is named.
    pub scopes: Vec<String>,
    /// Permission that app and fine-grained tokens need; `None` where none is named.
    pub permission: Option<Permission>,
    /// Further permissions under which the matrix lists the route (routes marked \[M\]).
    pub other_permissions: Vec<Permission>,
    /// Only the user's token of an app's two tokens may use it.
    pub uat_only: bool,
    /// Marked \[M\]: needs more than one permission, or accepts a different one.
    pub several_permissions: bool,
    /// Creates visible content and counts against the content limits (SPECIFICATION, "Limits in
    /// practice").
    pub content_generating: bool,
    /// Requests an OAuth or app access token, which has an hourly limit (SPECIFICATION, "Secondary
    /// rate limits").
    pub token_request: bool,
    /// The write has a credential in clear in its request or its answer, so no queue may keep it
    /// (SPECIFICATION, "Asynchronous writes").
    pub carries_credential: bool,
    /// Sends notifications, so its writes need wider spacing (SPECIFICATION, "Limits in practice").
    pub notifies: bool,
    /// Made for polling: answers carry `Last-Modified` and `X-Poll-Interval`.
    pub polls: bool,
    /// Most items on a page.
    pub per_page_max: u32,
    /// Items on a page when the caller names no number.
    pub per_page_default: u32,
    /// The list is paged by `cursor`, not by `page`.
    pub cursor_pages: bool,
    /// Answers depend on the account, because the route is about the caller (SPECIFICATION D2).
    pub about_caller: bool,
    /// Replacement for this template, which is closing down.
    pub replaced_by: Option<String>,
    /// Represents routes of a family with unlisted sub-routes.
    pub family: bool,
    /// Not in the table: a class of unknown routes.
    pub generic: bool,
}

impl Endpoint {
    pub(super) fn blank(
        id: EndpointId,
        method: Method,
        template: &str,
        group: &str,
        source: Source,
    ) -> Self {
        Self {
            id,
            family: template.ends_with("/{*rest}"),
            template: template.to_owned(),
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
            carries_credential: false,
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
}
