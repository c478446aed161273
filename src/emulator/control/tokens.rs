//! `POST /_emulator/tokens`: a token with the scopes or permissions that a test chooses.
//!
//! `{"user": "ada", "scopes": ["repo"]}` adds a classic token, `{"user": "ada", "kind":
//! "fine-grained", "permissions": {"issues": "write"}}` a fine-grained one. `token` chooses its
//! value and `seconds` its lifetime in the emulator's time. A reset removes it.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::{ControlResult, check, members, unprocessable};
use crate::api::TokenKind;
use crate::clock::Timestamp;
use crate::emulator::accounts::{Level, Permissions, TokenStatus, kind_name};
use crate::emulator::auth::permission_names;
use crate::emulator::faults::Members;
use crate::emulator::seed::tokens::{SCOPES, of_user};
use crate::emulator::state::State;

/// The most added tokens, which bounds the memory.
const ADDED_MAX: usize = 1_000;
const VALUE_BYTES_MAX: usize = 255;
const SECONDS_MAX: u64 = 366 * 24 * 3_600;
/// The note that marks an added token.
const NOTE: &str = "added by a test";

pub fn add(state: &mut State, now: Timestamp, body: &[u8]) -> ControlResult {
    let given = members(body)?;
    let mut members = Members::of(&given);
    let user = user(state, &mut members);
    let kinds = [TokenKind::Classic, TokenKind::FineGrained].map(|kind| (kind_name(kind), kind));
    let kind = members.choice("kind", &kinds).unwrap_or(TokenKind::Classic);
    let (scopes, permissions) = match kind {
        TokenKind::Classic => (scopes(&mut members), Permissions::NotApplicable),
        _ => (Vec::new(), Permissions::Only(permissions(&mut members))),
    };
    let value = value(state, &mut members);
    let seconds = members.whole("seconds", 1..=SECONDS_MAX);
    check(members)?;
    if state.replayer.is_some() {
        return unprocessable("it replays recorded exchanges and accepts any token");
    }
    let world = &mut state.world;
    if world.tokens.iter().filter(|token| token.note == NOTE).count() >= ADDED_MAX {
        return unprocessable("there are too many added tokens; reset");
    }
    let value = value.unwrap_or_else(|| format!("emu_added_{}", world.next_id()));
    let status = seconds.map_or(TokenStatus::Valid, |seconds| {
        TokenStatus::ValidUntil(now + Duration::from_secs(seconds))
    });
    let mut token = of_user(&value, kind, user).noted(NOTE);
    (token.scopes, token.permissions, token.status) = (scopes, permissions, status);
    world.add_token(token);
    let added = world.token_views().into_iter().find(|view| view.token == value);
    Ok((StatusCode::CREATED, json!(added)))
}

/// Returns the user's id, or 0 after an error.
fn user(state: &State, members: &mut Members<'_>) -> u64 {
    let accepted = "a login that /_emulator/world shows";
    if members.value("user").is_none() {
        members.refuse::<()>("user", "missing", accepted);
    }
    let Some(login) = members.text("user", 256) else { return 0 };
    let user = state.world.user_by_login(login).map(|user| user.id);
    user.or_else(|| members.refuse("user", "unknown value", accepted)).unwrap_or(0)
}

fn scopes(members: &mut Members<'_>) -> Vec<&'static str> {
    let known = |name: &Value| SCOPES.iter().copied().find(|scope| name == scope);
    let accepted = || format!("an array of some of {}", SCOPES.join(", "));
    match members.value("scopes") {
        None => Vec::new(),
        Some(Value::Array(names)) => match names.iter().map(known).collect::<Option<Vec<_>>>() {
            Some(mut scopes) => {
                scopes.sort_unstable();
                scopes.dedup();
                scopes
            }
            None => members.refuse("scopes", "unknown value", accepted()).unwrap_or_default(),
        },
        Some(_) => members.refuse("scopes", "wrong type", accepted()).unwrap_or_default(),
    }
}

fn permissions(members: &mut Members<'_>) -> BTreeMap<&'static str, Level> {
    const ACCEPTED: &str = "an object of permissions and levels, such as {\"issues\": \"write\"}";
    let read = |(name, level): (&String, &Value)| {
        Some((permission_names::named(name)?, permission_names::level_named(level.as_str()?)?))
    };
    let given = match members.value("permissions") {
        None => return BTreeMap::new(),
        Some(Value::Object(given)) => given.iter().map(read).collect::<Option<BTreeMap<_, _>>>(),
        Some(_) => members.refuse("permissions", "wrong type", ACCEPTED),
    };
    let granted = given.filter(|granted| Permissions::All.include(granted));
    granted.or_else(|| members.refuse("permissions", "unknown value", ACCEPTED)).unwrap_or_default()
}

/// It becomes a part of a header, and a dot would make it look like a JWT.
fn value(state: &State, members: &mut Members<'_>) -> Option<String> {
    let accepted = "letters, digits, - and _; no token of the world";
    let value = members.text("token", VALUE_BYTES_MAX)?;
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !value.bytes().all(is_legal) {
        return members.refuse("token", "unknown value", accepted);
    }
    if state.world.token_positions.contains_key(value) {
        return members.refuse("token", "taken", accepted);
    }
    Some(value.to_owned())
}
