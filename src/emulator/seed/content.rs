//! Repositories, issues and threads of the seed world.

use std::collections::BTreeMap;
use std::time::Duration;

use strum::VariantArray;

use super::options::Options;
use super::people::{
    ACME, ACME_PEOPLE, ADA, BEN, BUILD_BOT, DAN, GLOBEX, SCAN_BOT, TRIAGE_BOT, WIDGETS,
};
use super::{DAY, HOUR};
use crate::clock::Timestamp;
use crate::emulator::events::notifications::{self, Cause, Notification};
use crate::emulator::world::{
    Comment, Issue, IssueState, Label, Milestone, Owner, Reason, Release, Repository, SeededRun,
    ThreadState, Topic, Visibility, World,
};
use crate::random::Rng;

/// More than any known organisation of the real service has.
const REPOSITORIES_MAX: u32 = *Options::REPOSITORIES.end();
/// Repositories with a higher id were created by callers.
pub const SEEDED_BELOW: u64 = WIDGETS + REPOSITORIES_MAX as u64;
const WORDS: &[&str] = &[
    "build", "cache", "crash", "docs", "flaky", "login", "memory", "proxy", "queue", "retry",
    "slow", "test", "timeout", "token", "upload", "widget",
];

struct Plan {
    owner: Owner,
    name: String,
    visibility: Visibility,
    issues: u64,
    labels: u64,
}

/// Name, owner, visibility, issues and labels of the repositories that always exist.
const ALWAYS: [(&str, Owner, Visibility, u64, u64); 6] = [
    ("widgets", Owner::Organization(ACME), Visibility::Public, 75, 35),
    ("gadgets", Owner::Organization(ACME), Visibility::Private, 35, 5),
    // Renamed from acme/cogs.
    ("cogs", Owner::Organization(ACME), Visibility::Public, 3, 2),
    ("dotfiles", Owner::User(ADA), Visibility::Public, 2, 1),
    ("diary", Owner::User(ADA), Visibility::Private, 1, 1),
    ("portal", Owner::Organization(GLOBEX), Visibility::Private, 4, 2),
];

pub fn add(world: &mut World, options: &Options, dice: &mut Rng, now: Timestamp) {
    for index in 0..u64::from(options.repositories.clamp(6, REPOSITORIES_MAX)) {
        let plan = plan(index, dice);
        let repository = repository(world, WIDGETS + index, plan, dice, now);
        world.add_repository(repository);
    }
    world.raise_ids_above(WIDGETS + u64::from(REPOSITORIES_MAX));
    world.rename_repository(WIDGETS + 2, "sprockets");
    fill_first(world, dice, now);
    watch_and_notify(world, dice, now);
}

fn plan(index: u64, dice: &mut Rng) -> Plan {
    let known = usize::try_from(index).ok().and_then(|index| ALWAYS.get(index));
    if let Some(&(name, owner, visibility, issues, labels)) = known {
        return Plan { owner, name: name.to_owned(), visibility, issues, labels };
    }
    let owner = if index.is_multiple_of(9) { Owner::User(BEN) } else { Owner::Organization(ACME) };
    let visibility = if index.is_multiple_of(5) { Visibility::Private } else { Visibility::Public };
    let word = dice.pick(WORDS).copied().unwrap_or("service");
    Plan { owner, name: format!("{word}-{index:04}"), visibility, issues: dice.below(5), labels: 3 }
}

fn repository(
    world: &mut World,
    id: u64,
    plan: Plan,
    dice: &mut Rng,
    now: Timestamp,
) -> Repository {
    let created_at = now - DAY * 300;
    let labels: BTreeMap<u64, Label> = (0..plan.labels)
        .map(|index| label(world.next_id(), index, dice))
        .map(|label| (label.id, label))
        .collect();
    let label_ids: Vec<u64> = labels.keys().copied().collect();
    let issues: BTreeMap<u64, Issue> = (1..=plan.issues)
        .map(|number| (number, issue(world.next_id(), number, &label_ids, dice, now)))
        .collect();
    let updated_at = issues.values().map(|issue| issue.updated_at).max().unwrap_or(created_at);
    let number = dice.below(1_000_000);
    Repository {
        readme: format!("# {}\n\nMade up from a seed, number {number}.\n", plan.name),
        description: format!("All about {}", plan.name),
        language: Some("Rust"),
        topics: vec!["emulated".to_owned()],
        pushed_at: created_at + DAY,
        updated_at,
        labels,
        issues,
        ..Repository::new(id, plan.owner, plan.name, plan.visibility, created_at)
    }
}

fn label(id: u64, index: u64, dice: &mut Rng) -> Label {
    let name = if index == 0 {
        "bug".to_owned()
    } else {
        format!("{}-{index}", dice.pick(WORDS).unwrap_or(&"label"))
    };
    Label { id, name, color: format!("{:06x}", dice.below(0x0100_0000)), description: None }
}

fn issue(id: u64, number: u64, labels: &[u64], dice: &mut Rng, now: Timestamp) -> Issue {
    let words: Vec<&str> = (0..3).filter_map(|_| dice.pick(WORDS).copied()).collect();
    let author = dice.pick(ACME_PEOPLE).copied().unwrap_or(ADA);
    // Numbers rise with time, as for real issues.
    let created_at = now - DAY * 200
        + HOUR * u32::try_from(number).unwrap_or(0)
        + Duration::from_secs(dice.below(3_000));
    let closed_at = number.is_multiple_of(7).then_some(created_at + DAY);
    Issue {
        body: Some(format!("It is about {}.", words.join(" and "))),
        labels: dice.pick(labels).into_iter().copied().collect(),
        state: if closed_at.is_some() { IssueState::Closed } else { IssueState::Open },
        updated_at: closed_at.unwrap_or(created_at),
        closed_at,
        ..Issue::new(id, number, format!("The {}", words.join(" ")), author, created_at)
    }
}

/// Gives acme/widgets comments over more than one page, pull requests, a milestone and a release.
fn fill_first(world: &mut World, dice: &mut Rng, now: Timestamp) {
    let base = now - DAY * 100;
    let comments: Vec<Comment> = (0..45_u64)
        .map(|index| {
            let at = base + Duration::from_secs(index * 60);
            let author = dice.pick(ACME_PEOPLE).copied().unwrap_or(ADA);
            Comment {
                id: world.next_id(),
                issue: 1,
                author,
                body: format!("Comment {index}"),
                created_at: at,
                updated_at: at,
            }
        })
        .collect();
    let pulls: Vec<u64> = (0..4).map(|_| world.next_id()).collect();
    let (milestone, release) = (world.next_id(), world.next_id());
    let Some(widgets) = world.repositories.get_mut(&WIDGETS) else { return };
    if let Some(issue) = widgets.issues.get_mut(&1) {
        issue.comments = comments.iter().map(|comment| comment.id).collect();
        issue.updated_at = comments.last().map_or(issue.updated_at, |comment| comment.updated_at);
        issue.milestone = Some(1);
    }
    widgets.comments.extend(comments.into_iter().map(|comment| (comment.id, comment)));
    for id in pulls {
        let number = widgets.issues.len() as u64 + 1;
        let pull = Issue {
            pull_from: Some(format!("topic-{number}")),
            ..Issue::new(id, number, format!("Change number {number}"), BEN, base)
        };
        widgets.issues.insert(number, pull);
    }
    let milestone = Milestone {
        id: milestone,
        number: 1,
        title: "First release".to_owned(),
        description: None,
        state: IssueState::Open,
        creator: ADA,
        created_at: base,
        updated_at: base,
    };
    widgets.milestones.insert(1, milestone);
    let release = Release {
        id: release,
        tag: "v1.0.0".to_owned(),
        name: "One".to_owned(),
        body: None,
        author: ADA,
        created_at: base,
        updated_at: base,
        assets: BTreeMap::new(),
    };
    widgets.releases.insert(release.id, release);
    widgets.updated_at = widgets.updated_at.max(base + DAY);
}

/// Gives Ada more than a page of threads, with every reason, and the others some.
fn watch_and_notify(world: &mut World, dice: &mut Rng, now: Timestamp) {
    let base = now - DAY * 20;
    for user in [ADA, BEN, BUILD_BOT] {
        if let Some(user) = world.users.get_mut(&user) {
            user.watching.extend([WIDGETS, WIDGETS + 1]);
        }
    }
    for (user, count) in [(ADA, 60_u64), (BEN, 8), (BUILD_BOT, 12), (SCAN_BOT, 3), (DAN, 2)] {
        for (index, reason) in (0..count).zip(Reason::VARIANTS.iter().copied().cycle()) {
            let at = base + Duration::from_secs(index * 600 + dice.below(500));
            let numbered = Topic::Numbered(index + 1);
            let topic = Topic::of_reason(reason, world.next_id()).unwrap_or(numbered);
            let notice = Notification {
                user,
                repository: WIDGETS,
                topic,
                reason,
                cause: Cause::Activity,
                comment: None,
            };
            if let Topic::Run(id) = topic {
                let is_waiting = reason == Reason::ApprovalRequested;
                let actor = if is_waiting { TRIAGE_BOT } else { user };
                let run = SeededRun { id, repository: WIDGETS, actor, is_waiting, at };
                world.seeded_runs.push(run);
            }
            let id = notifications::notify(world, at, &notice);
            if let Some(thread) = world.threads.get_mut(&id).filter(|_| index % 10 == 9) {
                thread.state = ThreadState::Read;
                thread.last_read_at = Some(at + HOUR);
                thread.changed_at = at + HOUR;
            }
        }
        world.inbox_changed.insert(user, base + DAY);
    }
}
