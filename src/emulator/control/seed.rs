//! `/_emulator/seed`: `{"seed": 7, "repositories": 10000, "dialect": "github"}` restarts with
//! another world. Absent members keep their value.

use serde_json::{Value, json};

use super::{ControlResult, check, members, success, unprocessable};
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::faults::Members;
use crate::emulator::seed::options::Options;
use crate::emulator::state::State;

pub fn shown(options: &Options) -> Value {
    json!({ "seed": options.seed, "repositories": options.repositories, "dialect": options.dialect })
}

pub fn plant(state: &mut State, now: Timestamp, body: &[u8]) -> ControlResult {
    let given = members(body)?;
    let mut members = Members::of(&given);
    let seed = members.whole("seed", 0..=u64::MAX);
    let repositories = members.whole("repositories", Options::REPOSITORIES);
    let dialect =
        members.choice("dialect", &[("service", Dialect::Service), ("github", Dialect::Github)]);
    check(members)?;
    if state.replayer.is_some() {
        return unprocessable("it replays recorded exchanges and has no world to seed");
    }
    let old = state.options.clone();
    let options = Options {
        seed: seed.unwrap_or(old.seed),
        repositories: repositories.unwrap_or(old.repositories),
        dialect: dialect.unwrap_or(old.dialect),
        ..old
    };
    state.begin_again(options, now);
    Ok(success(shown(&state.options)))
}
