//! The world: users, organisations, repositories and their content. Data and look-ups only; the
//! rules are in `resources`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use self::notifications::feed::Feed;
use self::notifications::polls::Polls;
use self::notifications::thread::{BackgroundRead, Key, Participation};
use self::organizations::issue_fields::IssueField;
use self::properties::Properties;
use self::storage::clone_secrets::CloneSecrets;
use self::storage::collections::Collections;
use self::storage::lfs::Storage;
use self::storage::migrations::Migrations;
use self::storage::run_steps::RunSteps;
use self::webhooks::queue::DeliveryQueue;
use crate::clock::Timestamp;
use crate::emulator::accounts::Token;

mod account_names;
mod apps;
mod authors;
pub mod git;
pub mod notifications;
pub mod organizations;
mod ownership;
pub mod properties;
mod removal;
pub mod repositories;
pub mod storage;
mod tokens;
mod views;
pub mod webhooks;

pub use self::apps::InstallationGrant;
pub use self::git::commits::Draft;
pub use self::git::history::{Author, Commit, Edit, History, HistoryFull, README, Tree};
pub use self::notifications::thread::{Reason, SeededRun, Thread, ThreadState, Topic};
pub use self::organizations::enterprises::{Enterprise, EnterpriseTeam, SLUG_PREFIX};
pub use self::organizations::membership::{
    Invitation, InvitationFailure, InvitationRole, Invitee, ORGANIZATION_ROLES, People, Purpose,
};
pub use self::organizations::people::{App, OauthApp, Organization, Owner, User};
pub use self::organizations::property::{Definition, Editors, PropertyValue};
pub use self::organizations::teams::{Privacy, RepositoryRole, Team, TeamRole};
pub use self::repositories::issue_events::{Detail, IssueEvent};
pub use self::repositories::issues::{AutoMerge, Comment, Issue, IssueState, Label, Milestone};
pub use self::repositories::repository::{Asset, FEATURES, Release, Repository, Visibility};
pub use self::storage::collections::StoredItem;
pub use self::storage::migrations::{Flag, Migration, MigrationState};
pub use self::views::{TokenView, role_views};
pub use self::webhooks::deliveries::{
    ANSWER_BYTES_MAX, Attempt, DELIVERIES_MAX, Delivery, DeliveryLog, Failure, Posted, QueueStatus,
    Receipt, Signatures, guid,
};
pub use self::webhooks::hooks::{Certificate, Config, ContentType, Hook, HookKey, Target};
pub use self::webhooks::queue::OutgoingId;

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
    pub enterprises: BTreeMap<u64, Enterprise>,
    pub repositories: BTreeMap<u64, Repository>,
    /// Lower-case login of a user or organisation.
    logins: HashMap<String, Owner>,
    /// Lower-case `owner/name`, former names included, which answer with a redirect.
    repository_names: HashMap<String, u64>,
    /// The author of objects created by installations and workflows.
    pub machine_user: u64,
    ownership: ownership::Ownership,
    former: Vec<(String, u64)>,
    /// The histories of repositories with a push.
    histories: BTreeMap<u64, Arc<History>>,
    /// By repository and number.
    pub auto_merges: BTreeMap<(u64, u64), AutoMerge>,
    /// The stored objects of routes without a model of their own.
    pub collections: Collections,
    pub threads: BTreeMap<u64, Thread>,
    /// The thread of a user about a subject in a repository.
    pub thread_of: BTreeMap<Key, u64>,
    /// The last change of a user's list of notifications.
    pub inbox_changed: BTreeMap<u64, Timestamp>,
    pub enterprise_cloud: BTreeSet<u64>,
    /// Grants of installations; one without an entry has every permission.
    pub installation_grants: BTreeMap<u64, InstallationGrant>,
    /// Positions of the expiring run-time tokens, in the order of expiry.
    minted: VecDeque<usize>,
    pub lfs: Storage,
    pub app_hooks: BTreeMap<u64, Hook>,
    pub delivery_queue: DeliveryQueue,
    pub background_reads: Vec<BackgroundRead>,
    pub participation: Participation,
    pub polls: Polls,
    pub clone_secrets: CloneSecrets,
    pub properties: Properties,
    /// By organisation, then by id.
    pub issue_fields: BTreeMap<u64, BTreeMap<u64, IssueField>>,
    /// The template of a generated repository.
    pub template_of: BTreeMap<u64, u64>,
    pub migrations: Migrations,
    pub feed: Feed,
    /// The runs of the seed's notifications.
    pub seeded_runs: Vec<SeededRun>,
    pub run_steps: RunSteps,
}

impl World {
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Makes all later ids greater than `floor`.
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
        self.ownership.add(&repository);
        let full_name = self.full_name(&repository).to_lowercase();
        self.repository_names.insert(full_name, repository.id);
        self.repositories.insert(repository.id, repository);
    }

    /// Renames a repository; the old name redirects to it. False when the name is taken.
    pub fn rename_repository(&mut self, id: u64, name: &str) -> bool {
        let Some(repository) = self.repositories.get(&id) else { return false };
        let full_name = format!("{}/{name}", self.owner_login(repository.owner)).to_lowercase();
        if self.repository_names.get(&full_name).is_some_and(|taken| *taken != id) {
            return false;
        }
        let before = (self.full_name(repository).to_lowercase(), id);
        if !self.former.contains(&before) {
            self.former.push(before);
        }
        self.repository_names.insert(full_name, id);
        if let Some(repository) = self.repositories.get_mut(&id) {
            name.clone_into(&mut repository.name);
        }
        true
    }

    /// Finds an account by login, case-insensitively.
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

    /// Finds a repository by its current or a former name, case-insensitively.
    pub fn repository_named(&self, owner: &str, name: &str) -> Option<&Repository> {
        let id = self.repository_names.get(&format!("{owner}/{name}").to_lowercase())?;
        self.repositories.get(id)
    }

    /// Lists a repository's former names, in lower case.
    pub fn former_names(&self, repository: &Repository) -> Vec<&str> {
        let now = self.full_name(repository).to_lowercase();
        let former = self.former.iter().filter(|(name, id)| *id == repository.id && *name != now);
        let mut names: Vec<&str> = former.map(|(name, _)| name.as_str()).collect();
        names.dedup();
        names
    }

    #[cfg(test)]
    pub fn former_names_count(&self) -> usize {
        self.former.len()
    }

    pub fn login(&self, user: u64) -> &str {
        self.users.get(&user).map_or("ghost", |user| &user.login)
    }

    pub fn owner_login(&self, owner: Owner) -> &str {
        match owner {
            Owner::User(id) => self.login(id),
            Owner::Organization(id) => {
                self.organizations.get(&id).map_or("ghost", |organization| &organization.login)
            }
        }
    }

    pub fn full_name(&self, repository: &Repository) -> String {
        format!("{}/{}", self.owner_login(repository.owner), repository.name)
    }

    pub fn enterprise_by_slug(&self, slug: &str) -> Option<&Enterprise> {
        self.enterprises.values().find(|enterprise| enterprise.slug.eq_ignore_ascii_case(slug))
    }

    /// Returns true for owners of the enterprise and members of its organisations.
    pub fn belongs_to_enterprise(&self, user: u64, enterprise: &Enterprise) -> bool {
        let mut organizations =
            enterprise.organizations.iter().filter_map(|id| self.organizations.get(id));
        enterprise.owners.contains(&user)
            || organizations.any(|organization| organization.members.contains(&user))
    }

    pub fn enterprise_teams_of(&self, organization: u64) -> impl Iterator<Item = &EnterpriseTeam> {
        let teams = self.enterprises.values().flat_map(|enterprise| enterprise.teams.values());
        teams.filter(move |team| team.organizations.contains(&organization))
    }

    pub fn hook_mut(&mut self, hook_key: HookKey) -> Option<&mut Hook> {
        match hook_key.target {
            Target::Organization(id) => {
                self.organizations.get_mut(&id)?.hooks.get_mut(&hook_key.hook)
            }
            Target::App(id) => self.app_hooks.get_mut(&id).filter(|hook| hook.id == hook_key.hook),
        }
    }
}
