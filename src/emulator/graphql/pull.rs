//! Pull requests: branches, commits, reviews and review requests.

use serde_json::Value;

use super::object::{Field, FieldValue, Node, Result};
use super::record::{self, Record};
use super::{connection, people, reactions};
use crate::emulator::generic;
use crate::emulator::http::iso;
use crate::emulator::render::node_id;
use crate::emulator::resources::issues::pull_requests;
use crate::emulator::resources::issues::review_state::{self, Decision};
use crate::emulator::routing::Call;
use crate::emulator::world::storage::collections::Collection;
use crate::emulator::world::{Commit, Issue, IssueState, Repository, StoredItem};

pub fn plain(
    call: &Call<'_>,
    repository: &Repository,
    issue: &Issue,
    name: &str,
) -> Option<FieldValue> {
    let head = issue.pull_from.as_deref().unwrap_or("");
    let source = call.world.pull_repository(repository, issue);
    let history = || call.world.history(repository);
    Some(match name {
        "isDraft" => FieldValue::value(issue.is_draft),
        "isCrossRepository" => FieldValue::value(issue.fork.is_some()),
        "isInMergeQueue" | "isMergeQueueEnabled" => FieldValue::value(false),
        "merged" => FieldValue::value(issue.merged.is_some()),
        "mergedAt" => {
            FieldValue::maybe_text(issue.merged.as_ref().map(|(at, _)| iso(*at)).as_deref())
        }
        "mergeCommit" => {
            let (history, merged) = (history(), issue.merged.as_ref());
            let commit = merged.and_then(|(_, sha)| history.commit(sha));
            FieldValue::maybe(
                commit.map(|commit| record::commit(call.world, repository, commit, 0)),
            )
        }
        "mergedBy" => {
            let (history, merged) = (history(), issue.merged.as_ref());
            let commit = merged.and_then(|(_, sha)| history.commit(sha));
            let by = commit.and_then(|commit| people::actor(call.world, commit.author.user));
            FieldValue::maybe(by)
        }
        "mergeStateStatus" => {
            FieldValue::text(review_state::merge_state(call.world, repository, issue).name())
        }
        "reviewDecision" => {
            let decision = review_state::decision(call.world, repository, issue);
            FieldValue::maybe_text(decision.map(|decision| match decision {
                Decision::Approved => "APPROVED",
                Decision::ChangesRequested => "CHANGES_REQUESTED",
                Decision::Required => "REVIEW_REQUIRED",
            }))
        }
        "autoMergeRequest" => FieldValue::maybe(auto_merge(call, repository, issue)),
        "baseRef" => {
            let base = issue.pull_into.as_ref().unwrap_or(&repository.default_branch);
            FieldValue::maybe(branch(call, repository, base))
        }
        "headRef" => FieldValue::maybe(source.and_then(|source| branch(call, source, head))),
        "maintainerCanModify" => FieldValue::value(true),
        "mergeable" => FieldValue::text(match (issue.state, history().pull_source(issue)) {
            (IssueState::Open, Some(_)) => "MERGEABLE",
            _ => "UNKNOWN",
        }),
        // REST counts no changed lines either.
        "additions" | "deletions" => FieldValue::count(0),
        "changedFiles" => FieldValue::count(pull_requests::changes(call, repository, issue).len()),
        "baseRefName" => {
            FieldValue::text(issue.pull_into.as_ref().unwrap_or(&repository.default_branch))
        }
        "headRefName" => FieldValue::text(head),
        "baseRefOid" => {
            let history = history();
            let base = history.pull_base(repository, issue);
            FieldValue::text(base.map_or("", |base| base.sha.as_str()))
        }
        "headRefOid" => {
            let head = call.world.pull_head(&history(), issue);
            FieldValue::text(head.as_ref().map_or("", |head| head.sha.as_str()))
        }
        "headRepository" => FieldValue::maybe(source.map(|source| Node::Repository(source.id))),
        "headRepositoryOwner" => {
            FieldValue::maybe(source.map(|source| people::of_owner(source.owner)))
        }
        _ => return None,
    })
}

/// `None` without such a branch.
fn branch(call: &Call<'_>, repository: &Repository, name: &str) -> Option<Node> {
    let history = call.world.history(repository);
    let target = history.head(name)?;
    let named = (record::BRANCHES, name);
    Some(record::reference(call.world, repository, named, Some(target), 0))
}

fn auto_merge(call: &Call<'_>, repository: &Repository, issue: &Issue) -> Option<Node> {
    let request = call.world.auto_merges.get(&(repository.id, issue.number))?;
    let fields = [
        ("mergeMethod", FieldValue::text(request.method)),
        ("enabledAt", FieldValue::text(&iso(request.at))),
        ("enabledBy", FieldValue::maybe(people::actor(call.world, request.by))),
        ("commitHeadline", FieldValue::maybe_text(request.headline.as_deref())),
    ];
    Some(Record::node("AutoMergeRequest", 0, fields))
}

pub fn list(field: Field<'_, '_>, repository: &Repository, issue: &Issue) -> Result {
    let call = field.call;
    let address =
        |list: &str| format!("repository/{}/pulls/{}/{list}", repository.id, issue.number);
    let (kind, items) = match field.name {
        "commits" => {
            let commits = pull_requests::ahead(call, repository, issue);
            let in_list = |(key, commit): (u64, &Commit)| {
                let shown = FieldValue::One(record::commit(call.world, repository, commit, key));
                Record::node("PullRequestCommit", key, [("commit", shown)])
            };
            (connection::COMMITS, (1..).zip(&commits).map(in_list).collect())
        }
        "files" => {
            let changes = pull_requests::changes(call, repository, issue);
            let file = |(key, change): (u64, &Value)| {
                let path = change["filename"].as_str().unwrap_or("");
                let fields = [
                    ("path", FieldValue::text(path)),
                    ("additions", FieldValue::count(0)),
                    ("deletions", FieldValue::count(0)),
                ];
                Record::node("PullRequestChangedFile", key, fields)
            };
            (connection::FILES, (1..).zip(&changes).map(file).collect())
        }
        "reviewRequests" => {
            let requested = call.world.collections.collection(&address("requested_reviewers"));
            let requested = requested.map(Collection::in_order).unwrap_or_default();
            let request = |(_, reviewer): (&str, &StoredItem)| {
                let reviewer = FieldValue::maybe(people::actor(call.world, reviewer.id));
                ("requestedReviewer", reviewer)
            };
            let node = |(key, found)| Record::node("ReviewRequest", key, [request(found)]);
            (connection::REVIEW_REQUESTS, (1..).zip(requested).map(node).collect())
        }
        _ => {
            let reviews = generic::items(call.world, &address("reviews"));
            (connection::REVIEWS, reviews.iter().map(|(_, item)| review(call, item)).collect())
        }
    };
    connection::of(field, kind, items)
}

/// An unknown state is a comment.
fn review(call: &Call<'_>, review: &StoredItem) -> Node {
    const STATES: [&str; 4] = ["APPROVED", "CHANGES_REQUESTED", "DISMISSED", "PENDING"];
    let text = |name: &str| review.fields.get(name).and_then(Value::as_str).unwrap_or("");
    let state = STATES.into_iter().find(|state| *state == text("state")).unwrap_or("COMMENTED");
    let author = review.fields.get("user").and_then(|user| user["id"].as_u64());
    let author = author.and_then(|id| people::actor(call.world, id));
    let fields = [
        ("id", FieldValue::text(&node_id("PullRequestReview", review.id))),
        ("author", FieldValue::maybe(author)),
        ("authorAssociation", FieldValue::text("MEMBER")),
        ("body", FieldValue::text(text("body"))),
        ("state", FieldValue::text(state)),
        ("submittedAt", FieldValue::text(&iso(review.created_at))),
        ("reactionGroups", reactions::groups()),
    ];
    Record::node("PullRequestReview", review.id, fields)
}
