//! Issue events of the repositories that always exist: labels, closing and the milestone, each by
//! the issue's author. Other repositories begin without any, which saves memory.

use super::people::WIDGETS;
use crate::clock::Timestamp;
use crate::emulator::world::{Detail, Issue, IssueEvent, Repository, World};

const REPOSITORIES: u64 = 6;

pub fn add(world: &mut World) {
    for id in WIDGETS..WIDGETS + REPOSITORIES {
        let Some(repository) = world.repositories.get_mut(&id) else { continue };
        let mut events: Vec<IssueEvent> =
            repository.issues.values().flat_map(|issue| events_of(repository, issue)).collect();
        events.sort_by_key(|event| event.created_at);
        for event in events {
            repository.issue_events.note(id, event);
        }
    }
}

fn events_of(repository: &Repository, issue: &Issue) -> Vec<IssueEvent> {
    let event = |name, created_at: Timestamp, detail| IssueEvent {
        id: 0,
        name,
        number: issue.number,
        actor: issue.author,
        detail,
        created_at,
    };
    let labels = issue.labels.iter().filter_map(|id| repository.labels.get(id)).map(|label| {
        let detail = Detail::Label(label.name.clone(), label.color.clone());
        event("labeled", issue.created_at, detail)
    });
    let milestone = issue.milestone.and_then(|number| repository.milestones.get(&number));
    let milestone = milestone.map(|milestone| {
        let detail = Detail::Milestone(milestone.title.clone());
        event("milestoned", milestone.created_at, detail)
    });
    let closed = issue.closed_at.map(|at| event("closed", at, Detail::None));
    labels.chain(milestone).chain(closed).collect()
}
