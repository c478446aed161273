//! What the service's mutations do, by their names.
//!
//! No list is published, neither of content-generating requests nor of those that notify
//! (UPSTREAM.md, Limits). As in the endpoint table, content is text or a thing that other people
//! look at, not the machinery of builds; each entry is the twin of a REST endpoint that is marked
//! there. A name that is not known and begins with `create` counts as content: that costs a wait,
//! where the opposite would cost a refusal.

use super::GraphqlEffect;

/// Beginnings of the names of mutations that make something nobody is told of: git, builds,
/// settings.
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

/// What a mutation that begins with `add` makes, when that is something to read.
const ADDED_CONTENT: [&str; 5] = ["Comment", "Review", "Thread", "Reaction", "DraftIssue"];

/// Further mutations that make something people see.
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

/// What the mutation of this name does.
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
