//! Effects of the service's mutations, by name.
//!
//! No list of content-generating or notifying requests is published (SPECIFICATION, "Limits in
//! practice"). Content is text or a thing that people look at, not the machinery of builds; each
//! entry has a marked REST endpoint as its twin. An unknown name that begins with `create` counts
//! as content: that costs a wait, the opposite would cost a limit.

use super::GraphqlEffect;

/// Prefixes of mutations that create things without notifications: git, builds, settings.
const MACHINERY: [&str; 11] = [
    "createBranchProtection",
    "createCheck",
    "createCommitOnBranch",
    "createDeployment",
    "createEnvironment",
    "createIpAllowList",
    "createLinkedBranch",
    "createMigrationSource",
    "createProjectV2Field",
    "createRef",
    "createRepositoryRuleset",
];

/// Suffixes after `add` for things that people read.
const ADDED_CONTENT: [&str; 5] = ["Comment", "Review", "Thread", "Reaction", "DraftIssue"];

/// Further mutations that create visible content.
const CONTENT: [&str; 8] = [
    "cloneTemplateRepository",
    "convertProjectCardNoteToIssue",
    "convertProjectV2DraftIssueItemToIssue",
    "copyProjectV2",
    "inviteEnterpriseAdmin",
    "revertPullRequest",
    "submitPullRequestReview",
    "transferIssue",
];

/// Mutations that only notify.
const NOTIFYING: [&str; 6] = [
    "addSubIssue",
    "markPullRequestReadyForReview",
    "mergePullRequest",
    "removeSubIssue",
    "reprioritizeSubIssue",
    "requestReviews",
];

/// Mutations with a credential in clear, in their input or their answer.
const WITH_CREDENTIAL: [&str; 5] = [
    "createMigrationSource",
    "regenerateEnterpriseIdentityProviderRecoveryCodes",
    "regenerateVerifiableDomainToken",
    "startOrganizationMigration",
    "startRepositoryMigration",
];

/// True if a text names a mutation with a credential, even in a comment: that costs no more than a
/// place in the queue.
pub(super) fn names_credential(text: &[u8]) -> bool {
    WITH_CREDENTIAL.iter().any(|name| memchr::memmem::find(text, name.as_bytes()).is_some())
}

pub(super) fn effect_of(name: &str) -> GraphqlEffect {
    let is_machinery = || MACHINERY.iter().any(|beginning| name.starts_with(beginning));
    let adds_content = |what: &str| ADDED_CONTENT.iter().any(|content| what.contains(content));
    if name.starts_with("create") && !is_machinery()
        || name.strip_prefix("add").is_some_and(adds_content)
        || CONTENT.contains(&name)
    {
        GraphqlEffect::Creates
    } else if NOTIFYING.contains(&name) {
        GraphqlEffect::Notifies
    } else {
        GraphqlEffect::Plain
    }
}
