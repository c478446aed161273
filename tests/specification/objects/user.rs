//! The user summary object (SPECIFICATION, "Team membership").

use crate::shape::{Field, Object, Type, field, listed};

const ADDRESSES: &str = "avatar_url, gravatar_id, url, html_url";
const LISTS: &str = "followers_url, following_url, gists_url, starred_url, subscriptions_url, organizations_url, repos_url, events_url, received_events_url";

pub static USER_SUMMARY: Object = Object { name: "User summary object", fields: FIELDS };

const FIELDS: &[Field] = &[
    field("login", Type::Text),
    field("id", Type::Integer),
    field("node_id", Type::Text),
    listed(ADDRESSES, "avatar_url", Type::Url),
    // "gravatar_id may be empty".
    listed(ADDRESSES, "gravatar_id", Type::String),
    listed(ADDRESSES, "url", Type::Url),
    listed(ADDRESSES, "html_url", Type::Url),
    listed(LISTS, "followers_url", Type::Url),
    listed(LISTS, "following_url", Type::Url),
    listed(LISTS, "gists_url", Type::Url),
    listed(LISTS, "starred_url", Type::Url),
    listed(LISTS, "subscriptions_url", Type::Url),
    listed(LISTS, "organizations_url", Type::Url),
    listed(LISTS, "repos_url", Type::Url),
    listed(LISTS, "events_url", Type::Url),
    listed(LISTS, "received_events_url", Type::Url),
    field("type", Type::Text),
    field("site_admin", Type::Boolean),
];
