//! The response shape of an endpoint in the table: a list, an item of it, settings, an action…
//!
//! The upstream does not document these shapes. A rule derives them from the nesting of templates
//! and their methods. The lists here name its exceptions, with the running service's statuses and
//! member names. Templates are those of the neutral dialect; an endpoint has the same index in
//! both.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::{Endpoint, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Objects created by POST, under numbers or names of their own.
    List,
    Item,
    /// A selection of existing objects: GET lists it, PUT replaces it.
    Choice,
    /// A selected object: PUT adds it, DELETE removes it.
    Chosen,
    /// A set of names: POST adds, PUT replaces, DELETE removes some or all.
    Names,
    /// Exists from the start, empty: GET shows it, PUT and PATCH set it, DELETE clears it.
    Settings,
    /// Absent until PUT or POST creates it.
    Switch,
    /// A switch with a status only: 204 or 404.
    Check,
    /// An operation on the object in the path.
    Action(StatusCode),
    /// A read-only object.
    View,
    /// Redirects to a file.
    Download,
    /// Routes below an undocumented prefix; each path decides its own shape.
    Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapping {
    Bare,
    /// In this member of an object, beside `total_count`.
    Member(&'static str),
}

impl Wrapping {
    pub fn wrap(self, items: Vec<Value>, total: usize) -> Value {
        match self {
            Self::Bare => Value::Array(items),
            Self::Member(member) => json!({ "total_count": total, member: items }),
        }
    }
}

pub type Methods<'t> = BTreeMap<&'t str, Vec<&'t Method>>;

pub fn methods(table: &Table) -> Methods<'_> {
    let mut methods = Methods::new();
    for endpoint in
        table.endpoints().iter().filter(|endpoint| !endpoint.family && !endpoint.generic)
    {
        methods.entry(endpoint.template.as_str()).or_default().push(&endpoint.method);
    }
    methods
}

pub fn shape(endpoint: &Endpoint, methods: &Methods<'_>) -> Shape {
    let template = endpoint.template.as_str();
    if endpoint.family {
        return Shape::Family;
    }
    if let Some((_, status)) = ACTIONS
        .iter()
        .find(|(suffix, _)| endpoint.method != Method::GET && template.ends_with(suffix))
    {
        return Shape::Action(status_of(*status));
    }
    if let Some((_, shape)) = EXCEPTIONS.iter().find(|(suffix, _)| template.ends_with(suffix)) {
        return *shape;
    }
    let has = |method: Method| methods.get(template).is_some_and(|known| known.contains(&&method));
    let changes = has(Method::PUT) || has(Method::PATCH) || has(Method::DELETE);
    if template.ends_with('}') {
        // An object with PUT and DELETE, but without GET and PATCH, exists already.
        let is_chosen = has(Method::PUT) && !has(Method::GET) && !has(Method::PATCH);
        return if is_chosen { Shape::Chosen } else { Shape::Item };
    }
    let has_items = methods
        .keys()
        .any(|other| other.strip_prefix(template).is_some_and(|rest| rest.starts_with("/{")));
    match (has(Method::GET), has(Method::POST)) {
        (true, false) if has_items && has(Method::PUT) => Shape::Choice,
        _ if has_items => Shape::List,
        (true, true) => Shape::List,
        (true, false) if changes => Shape::Settings,
        (true, false) if template.ends_with('s') => Shape::List,
        (true, false) => Shape::View,
        (false, _) => Shape::Action(usual_status(&endpoint.method)),
    }
}

pub fn usual_status(method: &Method) -> StatusCode {
    match *method {
        Method::POST => StatusCode::ACCEPTED,
        Method::PATCH => StatusCode::OK,
        _ => StatusCode::NO_CONTENT,
    }
}

fn status_of(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::ACCEPTED)
}

/// Writes that are actions, by the end of their template, with their status.
const ACTIONS: &[(&str, u16)] = &[
    ("/access_tokens", 201),
    ("/approve", 201),
    ("/archive", 204),
    ("/attach", 202),
    ("/autofix", 202),
    ("/autofix/commits", 201),
    ("/cancel", 202),
    ("/configurations/{configuration_id}/defaults", 200),
    ("/conversions", 201),
    ("/default-level", 204),
    ("/dismissals", 200),
    ("/dispatches", 204),
    ("/force-cancel", 202),
    ("/generate", 201),
    ("/generate-jitconfig", 201),
    ("/generate-notes", 200),
    ("/grant", 204),
    ("/import", 201),
    ("/logs", 204),
    ("/merge-upstream", 200),
    ("/organizations/add", 200),
    ("/organizations/remove", 204),
    ("/pending_deployments", 200),
    ("/pings", 204),
    ("/preferences", 200),
    ("/registration-token", 201),
    ("/remove-token", 201),
    ("/replies", 201),
    ("/rerequest", 201),
    ("/rerun", 201),
    ("/rerun-failed-jobs", 201),
    ("/reviews/{review_id}/events", 200),
    ("/revoke", 202),
    ("/selected_teams", 200),
    ("/selected_users", 200),
    ("/snapshots", 201),
    ("/sub_issue", 200),
    ("/tests", 204),
    ("/installation/token", 204),
    ("/token", 200),
    ("/token/scoped", 200),
    ("/transfer", 202),
    ("/update-branch", 202),
    ("/{enablement}", 204),
];

/// Exceptions to the rule, by the end of the template.
const EXCEPTIONS: &[(&str, Shape)] = &[
    ("/autofix", Shape::View),
    ("/{archive_format}", Shape::Download),
    ("/archive", Shape::Download),
    ("/logs", Shape::Download),
    ("/tarball", Shape::Download),
    ("/tarball/{*ref}", Shape::Download),
    ("/zipball", Shape::Download),
    ("/zipball/{*ref}", Shape::Download),
    ("/readme/{*dir}", Shape::View),
    ("/compare/{basehead}", Shape::View),
    ("/hosted-runners/limits", Shape::View),
    ("/traffic/clones", Shape::View),
    ("/traffic/views", Shape::View),
    ("/codeowners/errors", Shape::View),
    ("/members/{username}/assistant", Shape::View),
    ("/usage-by-repository", Shape::List),
    ("/images/github-owned", Shape::List),
    ("/images/partner", Shape::List),
    ("/stats/code_frequency", Shape::List),
    ("/stats/commit_activity", Shape::List),
    ("/stats/punch_card", Shape::List),
    ("/timeline", Shape::List),
    ("/activity", Shape::List),
    ("/following", Shape::List),
    ("/audit-log", Shape::List),
    ("/events/public", Shape::List),
    ("/received_events/public", Shape::List),
    ("/events/orgs/{org}", Shape::List),
    ("/dependencies/blocking", Shape::List),
    ("/rules/branches/{branch}", Shape::List),
    ("/runners/{runner_id}/labels", Shape::Names),
    ("/user/emails", Shape::Names),
    ("/user/following/{username}", Shape::Check),
    ("/following/{target_user}", Shape::Check),
    ("/members/{username}", Shape::Check),
    ("/public_members/{username}", Shape::Check),
    ("/vulnerability-alerts", Shape::Check),
    ("/teams/{team_slug}/repos/{owner}/{repo}", Shape::Check),
    ("/teams/{team_id}/repos/{owner}/{repo}", Shape::Check),
    ("/suspended", Shape::Check),
    ("/pages", Shape::Switch),
    ("/parent", Shape::Switch),
    ("/pages/builds/latest", Shape::Switch),
    ("/memberships/{username}", Shape::Switch),
    ("/memberships/orgs/{org}", Shape::Settings),
];

/// Lists inside an object, by the end of their template, with their member's name.
const WRAPPED: &[(&str, &str)] = &[
    ("/actions/artifacts", "artifacts"),
    ("/runs/{run_id}/artifacts", "artifacts"),
    ("/actions/caches", "actions_caches"),
    ("/actions/runs", "workflow_runs"),
    ("/workflows/{workflow_id}/runs", "workflow_runs"),
    ("/actions/workflows", "workflows"),
    ("/runs/{run_id}/jobs", "jobs"),
    ("/attempts/{attempt_number}/jobs", "jobs"),
    ("/usage-by-repository", "repository_cache_usages"),
    ("/actions/hosted-runners", "runners"),
    ("/images/github-owned", "images"),
    ("/images/partner", "images"),
    ("/machine-sizes", "machine_specs"),
    ("/platforms", "platforms"),
    ("/permissions/repositories", "repositories"),
    ("/self-hosted-runners/repositories", "repositories"),
    ("/immutable-releases/repositories", "repositories"),
    ("/actions/runner-groups", "runner_groups"),
    ("/{runner_group_id}/hosted-runners", "runners"),
    ("/{runner_group_id}/repositories", "repositories"),
    ("/{runner_group_id}/runners", "runners"),
    ("/actions/runners", "runners"),
    ("/runners/{runner_id}/labels", "labels"),
    ("secrets", "secrets"),
    ("variables", "variables"),
    ("/billing/budgets", "budgets"),
    ("/assistant/billing/seats", "seats"),
    ("/check-runs", "check_runs"),
    ("/check-suites", "check_suites"),
    ("/codespaces", "codespaces"),
    ("/codespaces/devcontainers", "devcontainers"),
    ("/codespaces/machines", "machines"),
    ("/environments", "environments"),
    ("/deployment-branch-policies", "branch_policies"),
    ("/deployment_protection_rules", "custom_deployment_protection_rules"),
    ("/orgs/{org}/installations", "installations"),
    ("/user/installations", "installations"),
    ("/installation/repositories", "repositories"),
    ("/user/installations/{installation_id}/repositories", "repositories"),
];

pub fn wrapping(template: &str) -> Wrapping {
    WRAPPED
        .iter()
        .find(|(suffix, _)| template.ends_with(suffix))
        .map_or(Wrapping::Bare, |(_, member)| Wrapping::Member(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Dialect;

    fn of(method: &Method, path: &str) -> Shape {
        let table = Table::embedded(Dialect::Service);
        shape(table.classify(method, path).endpoint, &methods(table))
    }

    #[test]
    fn a_shape_follows_from_nested_templates_and_methods() {
        for (method, path, expected) in [
            (Method::GET, "/orgs/o/code-security/configurations", Shape::List),
            (Method::PATCH, "/orgs/o/code-security/configurations/5", Shape::Item),
            (Method::GET, "/orgs/o/actions/permissions", Shape::Settings),
            (Method::PUT, "/orgs/o/actions/permissions/workflow", Shape::Settings),
            (Method::PUT, "/orgs/o/actions/permissions/repositories", Shape::Choice),
            (Method::DELETE, "/orgs/o/actions/permissions/repositories/5", Shape::Chosen),
            (Method::PUT, "/user/installations/5/repositories/7", Shape::Chosen),
            (Method::PUT, "/orgs/o/security-managers/teams/t", Shape::Chosen),
            (Method::GET, "/repos/o/r/deployments/5/statuses", Shape::List),
            (Method::PUT, "/repos/o/r/actions/secrets/S", Shape::Item),
            (Method::POST, "/repos/o/r/actions/runs/5/rerun", Shape::Action(StatusCode::CREATED)),
            (
                Method::PUT,
                "/repos/o/r/actions/workflows/5/enable",
                Shape::Action(StatusCode::NO_CONTENT),
            ),
            (
                Method::POST,
                "/orgs/o/dependabot_alerts/enable_all",
                Shape::Action(StatusCode::NO_CONTENT),
            ),
            (Method::GET, "/repos/o/r/actions/runs/5/logs", Shape::Download),
            (
                Method::DELETE,
                "/repos/o/r/actions/runs/5/logs",
                Shape::Action(StatusCode::NO_CONTENT),
            ),
            (Method::GET, "/organizations/o/settings/billing/usage", Shape::View),
            (Method::GET, "/repos/o/r/stats/contributors", Shape::List),
            (Method::GET, "/users/u/events", Shape::List),
            (Method::DELETE, "/repos/o/r/actions/runs/5/unheard/of", Shape::Family),
        ] {
            assert_eq!(of(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn every_listed_suffix_belongs_to_a_template() {
        let known = |suffix: &str| {
            Table::embedded(Dialect::Service)
                .endpoints()
                .iter()
                .any(|one| one.template.ends_with(suffix))
        };
        let listed = ACTIONS
            .iter()
            .map(|(suffix, _)| suffix)
            .chain(EXCEPTIONS.iter().map(|(suffix, _)| suffix));
        for suffix in listed.chain(WRAPPED.iter().map(|(suffix, _)| suffix)) {
            assert!(known(suffix), "{suffix}");
        }
    }
}
