//! Mutations of pull requests: they call REST's functions, as those of issues do.

use std::collections::BTreeSet;

use super::ids;
use super::mutation::{
    assignees, changed_milestone, enter_for, labels, named, refuse_projects, title,
};
use super::object::{Arguments, Node, Result};
use super::problem::Problem;
use crate::emulator::events::changes::EventContext;
use crate::emulator::events::issues::raise;
use crate::emulator::events::notifications::Notice;
use crate::emulator::http::{ApiError, Change, Fields};
use crate::emulator::render;
use crate::emulator::resources::issues::issue::{self, Edit};
use crate::emulator::resources::issues::pull_requests::{self, Proposal};
use crate::emulator::resources::issues::{auto_merge, review_state, reviewers};
use crate::emulator::routing::{Call, Role};
use crate::emulator::world::IssueState;

type Mutation = fn(&mut Call<'_>, Arguments<'_>) -> Result<Node>;

/// Each mutation with its payload's type.
const MUTATIONS: [(&str, &str, Mutation); 10] = [
    ("createPullRequest", "CreatePullRequestPayload", create),
    ("updatePullRequest", "UpdatePullRequestPayload", update),
    ("closePullRequest", "ClosePullRequestPayload", close),
    ("reopenPullRequest", "ReopenPullRequestPayload", reopen),
    ("mergePullRequest", "MergePullRequestPayload", merge),
    ("enablePullRequestAutoMerge", "EnablePullRequestAutoMergePayload", enable_auto_merge),
    ("disablePullRequestAutoMerge", "DisablePullRequestAutoMergePayload", disable_auto_merge),
    ("markPullRequestReadyForReview", "MarkPullRequestReadyForReviewPayload", make_ready),
    ("convertPullRequestToDraft", "ConvertPullRequestToDraftPayload", make_draft),
    ("requestReviews", "RequestReviewsPayload", request_reviews),
];

pub fn has(name: &str) -> bool {
    MUTATIONS.iter().any(|(known, ..)| *known == name)
}

/// Makes one of the [`MUTATIONS`]; returns its payload's type and the pull request.
pub fn field(
    call: &mut Call<'_>,
    name: &str,
    input: Arguments<'_>,
) -> Result<(&'static str, Node)> {
    let found = MUTATIONS.iter().find(|(known, ..)| *known == name);
    let (_, payload, make) = found.ok_or_else(|| Problem::unprocessable("unknown mutation"))?;
    Ok((*payload, make(call, input)?))
}

/// Without any error so far.
fn fields() -> Result<Fields> {
    Ok(Fields::parse("PullRequest", b"")?)
}

/// Enters the repository of the pull request that the input names; returns its number.
fn enter(call: &mut Call<'_>, input: Arguments<'_>, role: Role) -> Result<u64> {
    let node = ids::node(call, input.text("pullRequestId").unwrap_or(""))?;
    let Node::Pull(repository, number) = node else {
        return Err(Problem::unprocessable("pullRequestId does not name a pull request."));
    };
    enter_for(call, repository, "pull_requests", role)?;
    Ok(number)
}

fn create(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let Node::Repository(id) = ids::node(call, input.text("repositoryId").unwrap_or(""))? else {
        return Err(Problem::unprocessable("repositoryId does not name a repository."));
    };
    enter_for(call, id, "pull_requests", Role::Take)?;
    let text = |name: &str| input.text(name).unwrap_or("").to_owned();
    let (mut head, mut head_repository) = (text("headRefName"), None);
    if let Some(node_id) = input.text("headRepositoryId") {
        let Node::Repository(source) = ids::node(call, node_id)? else {
            return Err(Problem::unprocessable("headRepositoryId does not name a repository."));
        };
        let source = call.world.repositories.get(&source).ok_or(ApiError::NotFound)?;
        let branch = head.rsplit(':').next().unwrap_or("").to_owned();
        head = format!("{}:{branch}", call.world.owner_login(source.owner));
        head_repository = Some(source.name.clone());
    }
    let proposal = Proposal {
        title: title(input)?,
        body: input.text("body").map(str::to_owned),
        head,
        head_repository,
        base: text("baseRefName"),
        is_draft: input.flag("draft").unwrap_or(false),
    };
    let number = pull_requests::open(call, fields()?, proposal)?;
    Ok(Node::Pull(call.repository, number))
}

fn update(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let number = enter(call, input, Role::Take)?;
    refuse_projects(input)?;
    let base = input.text("baseRefName").map(str::to_owned);
    if base.as_ref().is_some_and(|base| call.history().is_ok_and(|all| all.head(base).is_none())) {
        return Err(Problem::unprocessable("baseRefName is no branch of the repository."));
    }
    let state = match input.text("state") {
        Some("OPEN") => Some(IssueState::Open),
        Some(_) => Some(IssueState::Closed),
        None => None,
    };
    refuse_merged(call, number, state)?;
    let change = Edit {
        title: input.has("title").then(|| title(input)).transpose()?,
        body: input.text("body").map_or(Change::Keep, |body| Change::Set(body.to_owned())),
        state,
        labels: labels(call, input)?,
        assignees: assignees(call, input)?,
        milestone: changed_milestone(call, input)?,
        base,
    };
    issue::edit(call, number, change)?;
    Ok(Node::Pull(call.repository, number))
}

/// A merged pull request stays closed.
fn refuse_merged(call: &Call<'_>, number: u64, state: Option<IssueState>) -> Result<()> {
    let pull = call.repository()?.issues.get(&number);
    if state == Some(IssueState::Open) && pull.is_some_and(|pull| pull.merged.is_some()) {
        return Err(Problem::unprocessable("Could not open the pull request: it is merged."));
    }
    Ok(())
}

fn set_state(call: &mut Call<'_>, input: Arguments<'_>, state: IssueState) -> Result<Node> {
    let number = enter(call, input, Role::Take)?;
    refuse_merged(call, number, Some(state))?;
    issue::edit(call, number, Edit { state: Some(state), ..Edit::default() })?;
    Ok(Node::Pull(call.repository, number))
}

fn close(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    set_state(call, input, IssueState::Closed)
}

fn reopen(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    set_state(call, input, IssueState::Open)
}

fn merge(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let number = enter(call, input, Role::Push)?;
    let text = |name: &str| input.text(name).map(str::to_owned);
    let wanted = (text("expectedHeadOid"), text("commitHeadline"));
    pull_requests::merge_now(call, fields()?, number, wanted)?;
    Ok(Node::Pull(call.repository, number))
}

fn enable_auto_merge(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let number = enter(call, input, Role::Push)?;
    let method = match input.text("mergeMethod") {
        Some("REBASE") => "REBASE",
        Some("SQUASH") => "SQUASH",
        _ => "MERGE",
    };
    auto_merge::enable(call, number, method, input.text("commitHeadline").map(str::to_owned))?;
    Ok(Node::Pull(call.repository, number))
}

fn disable_auto_merge(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let number = enter(call, input, Role::Push)?;
    auto_merge::disable(call, number)?;
    Ok(Node::Pull(call.repository, number))
}

fn make_ready(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    set_draft(call, input, (false, "ready_for_review"))
}

fn make_draft(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    set_draft(call, input, (true, "converted_to_draft"))
}

fn set_draft(
    call: &mut Call<'_>,
    input: Arguments<'_>,
    (is_draft, action): (bool, &str),
) -> Result<Node> {
    let number = enter(call, input, Role::Take)?;
    let pull = call.repository()?.issues.get(&number).ok_or(ApiError::NotFound)?;
    let (author, was) = (pull.author, pull.is_draft);
    issue::must_be_author_or_push(call, author)?;
    let (now, repository) = (call.now, call.repository);
    if was != is_draft {
        let pull = call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
        (pull.is_draft, pull.updated_at) = (is_draft, now);
        let (context, event) = (EventContext::of(call), (action, Vec::new()));
        raise(call.world, context, (repository, number), event, Notice::Nobody, |_| {
            serde_json::json!({})
        });
    }
    Ok(Node::Pull(repository, number))
}

/// Without `union`, the requests of others are withdrawn.
fn request_reviews(call: &mut Call<'_>, input: Arguments<'_>) -> Result<Node> {
    let number = enter(call, input, Role::Push)?;
    let user = |node| if let Node::User(user) = node { Some(user) } else { None };
    let wrong = "userIds may only name users.";
    let users = named(call, input.texts("userIds"), user, wrong)?.unwrap_or_default();
    let mut teams = BTreeSet::new();
    for node_id in input.texts("teamIds").unwrap_or_default() {
        let mut known = call.world.organizations.values().flat_map(|one| one.teams.keys());
        let team = known.find(|id| render::node_id("Team", **id) == node_id);
        let wrong = || Problem::unprocessable("teamIds may only name teams.");
        teams.insert(*team.ok_or_else(wrong)?);
    }
    let users: BTreeSet<u64> = users.into_iter().collect();
    let author = call.repository()?.issues.get(&number).map(|pull| pull.author);
    if author.is_some_and(|author| users.contains(&author)) {
        return Err(Problem::unprocessable("Review cannot be requested from pull request author."));
    }
    if input.flag("union") != Some(true) {
        let asked = |what| review_state::requested(call.world, call.repository, number, what);
        let of = |what, kept: &BTreeSet<u64>| {
            asked(what).into_iter().filter(|id| !kept.contains(id)).collect::<BTreeSet<u64>>()
        };
        let gone = (of("requested_reviewers", &users), of("requested_teams", &teams));
        reviewers::remove(call, number, gone.0, gone.1)?;
    }
    reviewers::add(call, number, users, teams)?;
    Ok(Node::Pull(call.repository, number))
}
