//! The reaction groups of issues and comments: each content, with nobody in it. REST's reactions
//! are stored for themselves.

use super::connection;
use super::object::{Field, FieldValue, Node, Result};

const CONTENTS: [&str; 8] =
    ["THUMBS_UP", "THUMBS_DOWN", "LAUGH", "HOORAY", "CONFUSED", "HEART", "ROCKET", "EYES"];

pub fn groups() -> FieldValue {
    FieldValue::Many(CONTENTS.into_iter().map(|name| Some(Node::ReactionGroup(name))).collect())
}

pub fn field(field: Field<'_, '_>, content: &str) -> Result {
    if field.name == "content" {
        return Ok(FieldValue::text(content));
    }
    connection::of(field, connection::REACTING_USERS, Vec::new())
}
