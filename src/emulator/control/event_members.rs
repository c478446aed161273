//! The types of `POST /_emulator/events` and their members. Anything else is refused, so that a
//! typing error does not silently become a default.

use super::notification_triggers;
use crate::emulator::http::{ApiError, Fields};

const OF_ISSUES: &[&str] = &["repository", "actor", "user", "team", "number", "text"];
/// Types beside those of [`notification_triggers`], with their members.
const TYPES: &[(&str, &[&str])] = &[
    ("issue_opened", OF_ISSUES),
    ("comment", OF_ISSUES),
    ("mention", OF_ISSUES),
    ("push", &["repository", "actor", "branch", "path", "text"]),
    ("pull_request_opened", &["repository", "actor", "branch", "text"]),
    ("custom", &["event", "action", "repository", "organization", "actor", "payload"]),
    ("invitation_accepted", &["organization", "user"]),
    ("invitation_failed", &["organization", "user", "text"]),
];
/// Longer than any text that an event needs, and shorter than a body may be.
const TEXT_BYTES_MAX: usize = 65_536;

/// Refuses an unknown type, members that the type does not have, and an empty or long text.
pub fn check(kind: &str, fields: &mut Fields) -> Result<(), ApiError> {
    let known = TYPES.iter().find(|(name, _)| *name == kind).map(|(_, members)| *members);
    let is_trigger = notification_triggers::KINDS.contains(&kind);
    let Some(members) = known.or_else(|| is_trigger.then_some(OF_ISSUES)) else {
        let types = TYPES.iter().map(|(name, _)| *name).chain(notification_triggers::KINDS);
        let types: Vec<&str> = types.collect();
        return Err(ApiError::invalid(
            "Event",
            "type",
            format!("type must be one of {}", types.join(", ")),
        ));
    };
    for name in fields.member_names() {
        if name != "type" && !members.contains(&name.as_str()) {
            let accepted = members.join(", ");
            fields.invalid(&name, format!("{name} is no member of {kind}, which has {accepted}"));
        }
    }
    if fields.has("organization") && fields.has("repository") {
        fields.invalid("organization", "organization cannot stand beside repository");
    }
    let text = fields.string("text");
    if text.is_some_and(|text| text.trim().is_empty() || text.len() > TEXT_BYTES_MAX) {
        fields.invalid("text", format!("text must have 1 to {TEXT_BYTES_MAX} bytes"));
    }
    fields.check()
}
