//! Issues and what belongs to them: labels, milestones and comments.

use strum::{EnumString, IntoStaticStr};

use crate::clock::Timestamp;
use crate::emulator::http::Urls;

#[derive(Debug)]
pub struct Label {
    pub id: u64,
    pub name: String,
    pub color: String,
    pub description: Option<String>,
}

#[derive(Debug)]
pub struct Milestone {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub description: Option<String>,
    pub state: IssueState,
    pub creator: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, EnumString)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum IssueState {
    Open,
    Closed,
}

#[derive(Debug)]
pub struct Issue {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: Option<String>,
    pub state: IssueState,
    pub author: u64,
    pub labels: Vec<u64>,
    pub assignees: Vec<u64>,
    pub milestone: Option<u64>,
    pub comments: Vec<u64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    /// The source branch of a pull request; `None` for an issue.
    pub pull_from: Option<String>,
    /// The fork that has the source branch; `None` for a branch of the repository itself.
    pub fork: Option<ForkHead>,
    /// The target branch, unless it is the default one.
    pub pull_into: Option<String>,
    pub is_draft: bool,
    /// The time of the merge and its commit.
    pub merged: Option<(Timestamp, String)>,
    /// Restricts comments to callers with push rights.
    pub locked: bool,
    /// The reason that was given for the lock, if any.
    pub lock_reason: Option<&'static str>,
}

impl Issue {
    pub fn new(id: u64, number: u64, title: String, author: u64, at: Timestamp) -> Self {
        Self {
            id,
            number,
            title,
            body: None,
            state: IssueState::Open,
            author,
            labels: Vec::new(),
            assignees: Vec::new(),
            milestone: None,
            comments: Vec::new(),
            created_at: at,
            updated_at: at,
            closed_at: None,
            pull_from: None,
            fork: None,
            pull_into: None,
            is_draft: false,
            merged: None,
            locked: false,
            lock_reason: None,
        }
    }
}

/// The source of a pull request from a fork. The repository has its commits too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkHead {
    pub repository: u64,
    /// The newest commit of the branch, or the last one before its end.
    pub sha: String,
}

/// A request to merge a pull request as soon as nothing blocks it.
#[derive(Clone, Debug)]
pub struct AutoMerge {
    pub by: u64,
    pub at: Timestamp,
    /// In GraphQL's words, such as `SQUASH`.
    pub method: &'static str,
    pub headline: Option<String>,
    /// The addresses of the request, which the events of the merge have too.
    pub urls: Urls,
}

#[derive(Debug)]
pub struct Comment {
    pub id: u64,
    pub issue: u64,
    pub author: u64,
    pub body: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
