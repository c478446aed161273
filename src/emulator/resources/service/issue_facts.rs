//! Qualifiers of issue searches about more than the issue itself: mentions, links, reviews, checks
//! and reactions.

use super::search_terms::{numbers, wrong};
use crate::emulator::events::notifications::mentions;
use crate::emulator::generic;
use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::resources::code::rollup;
use crate::emulator::resources::issues::review_state::{self, Decision};
use crate::emulator::routing::Call;
use crate::emulator::world::{Issue, Repository, StoredItem};

pub const QUALIFIERS: [&str; 14] = [
    "interactions",
    "language",
    "linked",
    "mentions",
    "project",
    "reactions",
    "reason",
    "review",
    "review-requested",
    "reviewed-by",
    "status",
    "team",
    "team-review-requested",
    DIRECT,
];
/// The qualifier of a review that is requested of the user itself, not of a team.
const DIRECT: &str = "user-review-requested";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    None,
    Required,
    Approved,
    ChangesRequested,
}

#[derive(Clone, Debug)]
pub enum Fact {
    /// Of something that the world does not have, such as projects.
    Nothing,
    Mentions(Option<u64>),
    /// The mention of a team as a text writes it.
    Team(String),
    /// Linked to a pull request, or to an issue, by a closing keyword.
    LinkedToPull,
    LinkedToIssue,
    Language(String),
    Review(Review),
    ReviewedBy(Option<u64>),
    /// Requested of the user, or also of a team of the user.
    Requested(Option<u64>, bool),
    TeamRequested(Option<u64>),
    Status(&'static str),
    Reactions(Range),
    Interactions(Range),
}

pub fn is_known(qualifier: &str) -> bool {
    QUALIFIERS.contains(&qualifier)
}

impl Fact {
    /// Reads one of the [`QUALIFIERS`]; `user` is the one that the value names, if it does.
    pub fn read(
        call: &Call<'_>,
        qualifier: &str,
        value: &str,
        user: Option<u64>,
    ) -> Result<Self, ApiError> {
        let team = || {
            let (organization, slug) = value.trim_start_matches('@').split_once('/')?;
            let organization = call.world.organization_by_login(organization)?;
            Some(organization.team_by_slug(slug)?.id)
        };
        Ok(match qualifier {
            "mentions" => Self::Mentions(user),
            "team" => Self::Team(format!("@{}", value.trim_start_matches('@'))),
            "linked" => match value {
                "pr" => Self::LinkedToPull,
                "issue" => Self::LinkedToIssue,
                _ => return Err(wrong("linked", "pr or issue")),
            },
            "language" => Self::Language(value.to_owned()),
            "review" => Self::Review(match value {
                "none" => Review::None,
                "required" => Review::Required,
                "approved" => Review::Approved,
                "changes_requested" | "changes-requested" => Review::ChangesRequested,
                _ => return Err(wrong("review", "none, required, approved or changes_requested")),
            }),
            "reviewed-by" => Self::ReviewedBy(user),
            "review-requested" => Self::Requested(user, false),
            DIRECT => Self::Requested(user, true),
            "team-review-requested" => Self::TeamRequested(team()),
            "status" => Self::Status(match value {
                "pending" => "PENDING",
                "success" => "SUCCESS",
                "failure" | "error" => "FAILURE",
                _ => return Err(wrong("status", "pending, success or failure")),
            }),
            "reactions" => Self::Reactions(numbers("reactions", value)?),
            "interactions" => Self::Interactions(numbers("interactions", value)?),
            "reason" if !matches!(value, "completed" | "not planned" | "duplicate") => {
                return Err(wrong("reason", "completed, \"not planned\" or duplicate"));
            }
            // No issue is in a project, and no closing has a reason.
            _ => Self::Nothing,
        })
    }

    pub fn holds(&self, call: &Call<'_>, repository: &Repository, issue: &Issue) -> bool {
        let is_pull = issue.pull_from.is_some();
        match self {
            Self::Nothing => false,
            Self::Mentions(user) => {
                user.is_some_and(|user| mentions_user(call, repository, issue, user))
            }
            Self::Team(mention) => {
                texts(repository, issue).any(|text| has_word(&text.to_lowercase(), mention))
            }
            Self::LinkedToPull => !is_pull && closers(repository, issue.number).next().is_some(),
            Self::LinkedToIssue => is_pull && !closed_by(repository, issue).is_empty(),
            Self::Language(language) => {
                repository.language.is_some_and(|known| known.eq_ignore_ascii_case(language))
            }
            Self::Review(wanted) => is_pull && has_review(call, repository, issue, *wanted),
            Self::ReviewedBy(user) => user.is_some_and(|user| {
                let reviews = review_state::submitted(call.world, repository.id, issue.number);
                reviews.iter().any(|(reviewer, _)| *reviewer == user)
            }),
            Self::Requested(user, direct) => {
                user.is_some_and(|user| is_requested(call, repository, issue, user, *direct))
            }
            Self::TeamRequested(team) => team.is_some_and(|team| {
                review_state::requested(call.world, repository.id, issue.number, "requested_teams")
                    .contains(&team)
            }),
            Self::Status(wanted) => is_pull && has_status(call, repository, issue, wanted),
            Self::Reactions(range) => range.has(reactions(call, repository, issue, None)),
            Self::Interactions(range) => range.has(interactions(call, repository, issue)),
        }
    }
}

/// Title, body and comments.
fn texts<'a>(repository: &'a Repository, issue: &'a Issue) -> impl Iterator<Item = &'a str> {
    let comments = issue.comments.iter().filter_map(|id| repository.comments.get(id));
    [issue.title.as_str(), issue.body.as_deref().unwrap_or("")]
        .into_iter()
        .chain(comments.map(|comment| comment.body.as_str()))
}

pub fn mentions_user(call: &Call<'_>, repository: &Repository, issue: &Issue, user: u64) -> bool {
    texts(repository, issue).any(|text| mentions::find(call.world, text).users.contains(&user))
}

/// Finds a mention that is not the beginning of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let goes_on = |after: &str| {
        after.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    text.match_indices(word).any(|(at, _)| !goes_on(&text[at + word.len()..]))
}

/// Lists the issues that a pull request closes by the keywords in its body.
pub fn closed_by(repository: &Repository, pull: &Issue) -> Vec<u64> {
    const KEYWORDS: [&str; 9] =
        ["close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved"];
    let body = pull.body.as_deref().unwrap_or("").to_lowercase();
    let words: Vec<&str> = body.split_whitespace().collect();
    let number = |pair: &[&str]| {
        let keyword = pair[0].trim_end_matches(':');
        let number = pair[1].strip_prefix('#')?;
        let number = number.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        let issue = repository.issues.get(&number)?;
        (KEYWORDS.contains(&keyword) && issue.pull_from.is_none()).then_some(number)
    };
    words.windows(2).filter_map(number).collect()
}

/// Lists the pull requests that close an issue by a keyword.
pub fn closers(repository: &Repository, issue: u64) -> impl Iterator<Item = &Issue> {
    let pulls = repository.issues.values().filter(|one| one.pull_from.is_some());
    pulls.filter(move |pull| closed_by(repository, pull).contains(&issue))
}

fn has_review(call: &Call<'_>, repository: &Repository, pull: &Issue, wanted: Review) -> bool {
    let decision = review_state::decision(call.world, repository, pull);
    match wanted {
        Review::None => review_state::submitted(call.world, repository.id, pull.number).is_empty(),
        Review::Required => decision == Some(Decision::Required),
        Review::Approved => decision == Some(Decision::Approved),
        Review::ChangesRequested => decision == Some(Decision::ChangesRequested),
    }
}

fn is_requested(
    call: &Call<'_>,
    repository: &Repository,
    pull: &Issue,
    user: u64,
    direct: bool,
) -> bool {
    let of = |what| review_state::requested(call.world, repository.id, pull.number, what);
    let in_team = |team: &u64| {
        let mut organizations = call.world.organizations.values();
        let team = organizations.find_map(|organization| organization.teams.get(team));
        team.is_some_and(|team| team.people.contains_key(&user))
    };
    of("requested_reviewers").contains(&user)
        || (!direct && of("requested_teams").iter().any(in_team))
}

fn has_status(call: &Call<'_>, repository: &Repository, pull: &Issue, wanted: &str) -> bool {
    let history = call.world.history(repository);
    let head = call.world.pull_head(&history, pull);
    let state =
        head.and_then(|head| rollup::state(&rollup::of(call.world, repository.id, &head.sha)));
    state.map(|state| if state == "ERROR" { "FAILURE" } else { state }) == Some(wanted)
}

/// Counts the reactions to an issue, or those of one kind.
pub fn reactions(
    call: &Call<'_>,
    repository: &Repository,
    issue: &Issue,
    kind: Option<&str>,
) -> u64 {
    let address = format!("repository/{}/issues/{}/reactions", repository.id, issue.number);
    let is_wanted = |item: &StoredItem| {
        let content = item.fields.get("content").and_then(serde_json::Value::as_str);
        kind.is_none() || content == kind
    };
    let all = generic::items(call.world, &address);
    all.iter().filter(|(_, item)| is_wanted(item)).count() as u64
}

pub fn interactions(call: &Call<'_>, repository: &Repository, issue: &Issue) -> u64 {
    reactions(call, repository, issue, None) + issue.comments.len() as u64
}
