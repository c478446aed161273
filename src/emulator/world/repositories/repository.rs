//! Repositories and their content.

use std::collections::{BTreeMap, BTreeSet};

use super::issue_events::IssueEvents;
use super::issues::{Comment, Issue, Label, Milestone};
use crate::clock::Timestamp;
use crate::emulator::world::organizations::people::Owner;
use crate::emulator::world::organizations::teams::RepositoryRole;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Public,
    Private,
}

#[derive(Debug)]
pub struct Repository {
    pub id: u64,
    pub owner: Owner,
    pub name: String,
    pub visibility: Visibility,
    pub description: String,
    pub homepage: Option<String>,
    pub language: Option<&'static str>,
    pub topics: Vec<String>,
    pub features: Features,
    pub default_branch: String,
    pub created_at: Timestamp,
    pub pushed_at: Timestamp,
    pub updated_at: Timestamp,
    /// Users with rights of their own, beside those as members of the owner.
    pub collaborators: BTreeMap<u64, RepositoryRole>,
    /// Users who starred it, with the time.
    pub stars: BTreeMap<u64, Timestamp>,
    /// The parent of a fork, and the repository's own forks.
    pub fork_of: Option<u64>,
    pub forks: BTreeSet<u64>,
    pub readme: String,
    pub labels: BTreeMap<u64, Label>,
    pub milestones: BTreeMap<u64, Milestone>,
    /// By number; pull requests share the numbers.
    pub issues: BTreeMap<u64, Issue>,
    pub comments: BTreeMap<u64, Comment>,
    pub issue_events: IssueEvents,
    pub releases: BTreeMap<u64, Release>,
}

impl Repository {
    /// Creates an empty repository; its README is its name.
    pub fn new(
        id: u64,
        owner: Owner,
        name: String,
        visibility: Visibility,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            owner,
            readme: format!("# {name}\n"),
            name,
            visibility,
            description: String::new(),
            homepage: None,
            language: None,
            topics: Vec::new(),
            features: FEATURES.iter().copied().collect(),
            default_branch: "main".to_owned(),
            created_at,
            pushed_at: created_at,
            updated_at: created_at,
            collaborators: BTreeMap::new(),
            stars: BTreeMap::new(),
            fork_of: None,
            forks: BTreeSet::new(),
            labels: BTreeMap::new(),
            milestones: BTreeMap::new(),
            issues: BTreeMap::new(),
            comments: BTreeMap::new(),
            issue_events: IssueEvents::default(),
            releases: BTreeMap::new(),
        }
    }
}

/// The switches of `PATCH /repos/{owner}/{repo}` by their API names; absent ones are off.
pub type Features = BTreeMap<&'static str, bool>;

/// The switches of a repository that a PATCH may set, with the seed's values.
pub const FEATURES: &[(&str, bool)] = &[
    ("archived", false),
    ("is_template", false),
    ("has_issues", true),
    ("has_projects", true),
    ("has_wiki", true),
    ("allow_rebase_merge", true),
    ("allow_squash_merge", true),
    ("allow_auto_merge", false),
    ("delete_branch_on_merge", true),
    ("allow_merge_commit", true),
];

#[derive(Debug)]
pub struct Release {
    pub id: u64,
    pub tag: String,
    pub name: String,
    pub body: Option<String>,
    pub author: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub assets: BTreeMap<u64, Asset>,
}

#[derive(Debug)]
pub struct Asset {
    pub id: u64,
    pub name: String,
    pub label: Option<String>,
    pub content_type: String,
    /// Only the size of an upload is kept.
    pub size_bytes: u64,
    pub uploader: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
