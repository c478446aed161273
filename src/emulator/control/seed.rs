//! `/_emulator/seed`: `{"seed": 7, "repositories": 10000, "dialect": "github"}` restarts with
//! another world. Absent members keep their value.

use http::StatusCode;
use serde_json::{Value, json};

use super::{JsonReply, members, refuse, refuse_members};
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::faults::Members;
use crate::emulator::seed::options::Options;
use crate::emulator::state::State;

pub fn show(state: &State) -> JsonReply {
    (StatusCode::OK, shown(&state.options))
}

fn shown(options: &Options) -> Value {
    json!({ "seed": options.seed, "repositories": options.repositories, "dialect": options.dialect })
}

pub fn plant(state: &mut State, now: Timestamp, body: &[u8]) -> JsonReply {
    let given = match members(body) {
        Ok(given) => given,
        Err(refusal) => return refusal,
    };
    let mut members = Members::of(&given);
    let seed = members.whole("seed", 0..=u64::MAX);
    let (least, most) = (*Options::REPOSITORIES.start(), *Options::REPOSITORIES.end());
    let repositories = members
        .whole("repositories", u64::from(least)..=u64::from(most))
        .and_then(|count| u32::try_from(count).ok());
    let dialect =
        members.choice("dialect", &[("service", Dialect::Service), ("github", Dialect::Github)]);
    let wrong = members.finish();
    if !wrong.is_empty() {
        return refuse_members(wrong);
    }
    if state.replayer.is_some() {
        return refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            "it replays recorded exchanges and has no world to seed",
        );
    }
    let old = state.options.clone();
    let options = Options {
        seed: seed.unwrap_or(old.seed),
        repositories: repositories.unwrap_or(old.repositories),
        dialect: dialect.unwrap_or(old.dialect),
        ..old
    };
    state.begin_again(options, now);
    (StatusCode::OK, shown(&state.options))
}
