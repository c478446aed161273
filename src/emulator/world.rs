//! What exists upstream: users, organisations, repositories and what is in them. Data and look-ups; rules are in `resources`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::accounts::{AccountId, Level, Permissions, Token, kind_name};
use super::limits::InstallationReach;
use super::resources::hooks::Hook;
use super::resources::notifications::Thread;
use crate::api::TokenKind;
use crate::clock::Timestamp;

/// Everything that exists, and the next free id.
#[derive(Debug, Default)]
pub struct World {
    next_id: u64,
    pub tokens: Vec<Arc<Token>>,
    /// By the secret itself, for the look-up of every request.
    pub token_positions: HashMap<String, usize>,
    pub oauth_apps: Vec<OauthApp>,
    pub apps: Vec<App>,
    pub users: BTreeMap<u64, User>,
    pub organizations: BTreeMap<u64, Organization>,
    pub repositories: BTreeMap<u64, Repository>,
    /// Lower-case login of a user or organisation.
    logins: HashMap<String, Owner>,
    /// Lower-case `owner/name`, also names that a repository had before (those answer with a redirect).
    repository_names: HashMap<String, u64>,
    /// Named as the author of what installations and workflows make.
    pub machine_user: u64,
    /// How many repositories an owner has.
    owned: HashMap<Owner, u64>,
    /// Names that repositories had before.
    former: Vec<(String, u64)>,
    /// Notification threads by id.
    pub threads: BTreeMap<u64, Thread>,
    /// The thread of a user about an issue or pull of a repository.
    pub thread_of: BTreeMap<(u64, u64, u64), u64>,
    /// When a user's list of notifications last changed in any way.
    pub inbox_changed: BTreeMap<u64, Timestamp>,
    /// Marks that are still being made in the background: when, whose, up to which time.
    pub background_reads: Vec<(Timestamp, u64, Timestamp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    User(u64),
    Organization(u64),
}

#[derive(Debug)]
pub struct User {
    pub id: u64,
    pub login: String,
    pub name: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Repositories whose every thread it is told about.
    pub watching: BTreeSet<u64>,
}

#[derive(Debug)]
pub struct Organization {
    pub id: u64,
    pub login: String,
    pub description: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub owners: BTreeSet<u64>,
    /// All members, owners included.
    pub members: BTreeSet<u64>,
    pub teams: Vec<Team>,
    pub hooks: BTreeMap<u64, Hook>,
}

#[derive(Debug, Serialize)]
pub struct Team {
    pub id: u64,
    pub slug: String,
    pub name: String,
    /// The id of the team it is nested in.
    pub parent: Option<u64>,
    pub maintainers: BTreeSet<u64>,
    pub members: BTreeSet<u64>,
    /// Whether an identity provider rules its membership.
    pub synchronised: bool,
}

#[derive(Debug)]
pub struct OauthApp {
    pub id: u64,
    pub client_id: String,
    pub client_secret: String,
}

#[derive(Debug)]
pub struct App {
    pub id: u64,
    pub slug: String,
    /// Installation id and the organisation it is installed on.
    pub installations: Vec<(u64, u64)>,
}

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
    /// Users that may push although they are not members of the owner.
    pub collaborators: BTreeSet<u64>,
    pub readme: String,
    pub labels: BTreeMap<u64, Label>,
    pub milestones: BTreeMap<u64, Milestone>,
    /// By number, which pulls share.
    pub issues: BTreeMap<u64, Issue>,
    pub comments: BTreeMap<u64, Comment>,
    pub releases: BTreeMap<u64, Release>,
}

/// The switches that `PATCH /repos/{owner}/{repo}` turns, by their names on the wire; absent ones are off.
pub type Features = BTreeMap<&'static str, bool>;

/// The switches of a repository that the wire names (Document 3, Repository object) and a PATCH may set, with the seed's values.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueState {
    Open,
    Closed,
}

impl IssueState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
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
    /// The branch that a pull request wants merged; none for an issue.
    pub pull_from: Option<String>,
}

impl Issue {
    /// An open issue that says nothing but its title.
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
        }
    }
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

#[derive(Debug)]
pub struct Release {
    pub id: u64,
    pub tag: String,
    pub name: String,
    pub body: Option<String>,
    pub author: u64,
    pub created_at: Timestamp,
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
}

impl World {
    /// An id that nothing else has.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Ids handed out from now on are above `floor`.
    pub fn raise_ids_above(&mut self, floor: u64) {
        self.next_id = self.next_id.max(floor);
    }

    pub fn add_user(&mut self, user: User) -> u64 {
        let id = user.id;
        self.logins.insert(user.login.to_lowercase(), Owner::User(id));
        self.users.insert(id, user);
        id
    }

    pub fn add_organization(&mut self, organization: Organization) -> u64 {
        let id = organization.id;
        self.logins.insert(organization.login.to_lowercase(), Owner::Organization(id));
        self.organizations.insert(id, organization);
        id
    }

    pub fn add_token(&mut self, token: Token) {
        self.token_positions.insert(token.value.clone(), self.tokens.len());
        self.tokens.push(Arc::new(token));
    }

    pub fn add_repository(&mut self, repository: Repository) {
        *self.owned.entry(repository.owner).or_default() += 1;
        let full_name = self.full_name(&repository).to_lowercase();
        self.repository_names.insert(full_name, repository.id);
        self.repositories.insert(repository.id, repository);
    }

    /// Gives a repository another name; the old one stays known and leads to it. False when the name is taken.
    pub fn rename_repository(&mut self, id: u64, name: &str) -> bool {
        let Some(repository) = self.repositories.get(&id) else { return false };
        let full_name = format!("{}/{name}", self.owner_login(repository.owner)).to_lowercase();
        if self.repository_names.get(&full_name).is_some_and(|taken| *taken != id) {
            return false;
        }
        let before = self.repositories.get(&id).map(|repository| self.full_name(repository).to_lowercase());
        self.former.extend(before.map(|name| (name, id)));
        self.repository_names.insert(full_name, id);
        if let Some(repository) = self.repositories.get_mut(&id) {
            name.clone_into(&mut repository.name);
        }
        true
    }

    /// Who has this login, in any case of letters.
    pub fn owner(&self, login: &str) -> Option<Owner> {
        self.logins.get(&login.to_lowercase()).copied()
    }

    pub fn user_by_login(&self, login: &str) -> Option<&User> {
        match self.owner(login)? {
            Owner::User(id) => self.users.get(&id),
            Owner::Organization(_) => None,
        }
    }

    pub fn organization_by_login(&self, login: &str) -> Option<&Organization> {
        match self.owner(login)? {
            Owner::Organization(id) => self.organizations.get(&id),
            Owner::User(_) => None,
        }
    }

    /// The repository that has or had this name, in any case of letters.
    pub fn repository_named(&self, owner: &str, name: &str) -> Option<&Repository> {
        let id = self.repository_names.get(&format!("{owner}/{name}").to_lowercase())?;
        self.repositories.get(id)
    }

    /// The names a repository had before, lower-case.
    pub fn former_names(&self, repository: &Repository) -> Vec<&str> {
        let now = self.full_name(repository).to_lowercase();
        let mut names: Vec<&str> =
            self.former.iter().filter(|(name, id)| *id == repository.id && *name != now).map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names
    }

    pub fn login(&self, user: u64) -> &str {
        self.users.get(&user).map_or("ghost", |user| &user.login)
    }

    pub fn owner_login(&self, owner: Owner) -> &str {
        match owner {
            Owner::User(id) => self.login(id),
            Owner::Organization(id) => self.organizations.get(&id).map_or("ghost", |organization| &organization.login),
        }
    }

    pub fn full_name(&self, repository: &Repository) -> String {
        format!("{}/{}", self.owner_login(repository.owner), repository.name)
    }

    /// How the control plane names an account.
    pub fn account_name(&self, account: AccountId) -> String {
        match account {
            AccountId::User(id) => self.login(id).to_owned(),
            AccountId::Installation(id) => format!("installation-{id}"),
            AccountId::OauthApp(id) => format!("oauth-app-{id}"),
            AccountId::Workflow(id) => format!("workflow-{id}"),
            AccountId::Anonymous(address) => format!("anonymous-{address}"),
            AccountId::Replayed(digest) => format!("recorded-{digest}"),
        }
    }

    /// What an installation's limit is scaled by (Document 1: repositories and organization users).
    pub fn installation_reach(&self, account: AccountId) -> InstallationReach {
        let AccountId::Installation(id) = account else { return InstallationReach::default() };
        let organization = self
            .apps
            .iter()
            .flat_map(|app| &app.installations)
            .find(|(installation, _)| *installation == id)
            .map(|(_, organization)| *organization);
        let Some(organization) = organization.and_then(|id| self.organizations.get(&id)) else { return InstallationReach::default() };
        let repositories = self.owned.get(&Owner::Organization(organization.id)).copied().unwrap_or(0);
        InstallationReach { repositories, users: organization.members.len() as u64 }
    }

    /// Every token, then every OAuth app, which uses its id and secret in a token's place.
    pub fn token_views(&self) -> Vec<TokenView> {
        let apps = self.oauth_apps.iter().map(|app| TokenView {
            token: format!("{}:{}", app.client_id, app.client_secret),
            account: self.account_name(AccountId::OauthApp(app.id)),
            kind: kind_name(TokenKind::Basic),
            user: None,
            scopes: Vec::new(),
            permissions: BTreeMap::new(),
            note: "the OAuth app itself, by Basic",
        });
        self.tokens.iter().map(|token| self.token_view(token)).chain(apps).collect()
    }

    fn token_view(&self, token: &Token) -> TokenView {
        let permissions = match &token.permissions {
            Permissions::NotApplicable => BTreeMap::new(),
            Permissions::All => BTreeMap::from([("*", "write")]),
            Permissions::Only(granted) => granted.iter().map(|(name, level)| (*name, level_name(*level))).collect(),
        };
        TokenView {
            token: token.value.clone(),
            account: self.account_name(token.account),
            kind: kind_name(token.kind),
            user: token.user.map(|user| self.login(user).to_owned()),
            scopes: token.scopes.clone(),
            permissions,
            note: token.note,
        }
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Read => "read",
        Level::Write => "write",
    }
}

/// A token as `/_emulator/world` shows it. The secret is in it: it is made up, and a test needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenView {
    /// The secret, to be sent as `Authorization: Bearer`; for an OAuth app `CLIENT_ID:CLIENT_SECRET`.
    pub token: String,
    /// The name of the account whose budget it spends.
    pub account: String,
    /// `classic`, `fine-grained`, `oauth`, `app-user`, `installation`, `workflow` or `basic`.
    pub kind: &'static str,
    /// The login it acts as.
    pub user: Option<String>,
    /// Classic and OAuth tokens only.
    pub scopes: Vec<&'static str>,
    /// Name to `read` or `write`; `*` stands for every permission.
    pub permissions: BTreeMap<&'static str, &'static str>,
    /// What it is there for.
    pub note: &'static str,
}
