//! The history of issues and pull requests, which `/issues/events` and the timelines list.

use crate::clock::Timestamp;
use crate::emulator::world::{Detail, IssueEvent, World};

/// Adds an entry to the history of an issue.
pub fn note(
    world: &mut World,
    now: Timestamp,
    (repository, number): (u64, u64),
    actor: u64,
    (name, detail): (&'static str, Detail),
) {
    let Some(found) = world.repositories.get_mut(&repository) else { return };
    let event = IssueEvent { id: 0, name, number, actor, detail, created_at: now };
    found.issue_events.note(repository, event);
}
