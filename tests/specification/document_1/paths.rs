//! Concrete paths for the documents' templates in the seed world.

use serde_json::Value;

use crate::kit::Upstream;
use crate::template::fill;

pub const ORGANIZATION: &str = "acme";
/// A public repository with issues, comments and a workflow.
pub const PUBLIC: &str = "/repos/acme/widgets";

/// A path whose parameters name resources of acme, which exist where the seed world has them.
pub fn path(upstream: &mut Upstream, template: &str) -> String {
    let world = upstream.first_world();
    let repository = private_repository_of(&world);
    let team = team_of(&world);
    fill(template, |name| match name {
        "org" => ORGANIZATION.to_owned(),
        "org_id" => organization_of(&world)["id"].to_string(),
        "owner" => repository.split('/').next().unwrap_or_default().to_owned(),
        "repo" => repository.split('/').nth(1).unwrap_or_default().to_owned(),
        "team_slug" => team["slug"].as_str().unwrap_or_default().to_owned(),
        "team_id" => team["id"].to_string(),
        "username" => "cleo".to_owned(),
        "enterprise" => enterprise_of(&world),
        "branch" => "main".to_owned(),
        "basehead" => "main...main".to_owned(),
        "ref" => "heads".to_owned(),
        "archive_format" => "zip".to_owned(),
        "security_product" => "dependency_graph".to_owned(),
        "enablement" => "enable_all".to_owned(),
        "environment_name" | "name" => "production".to_owned(),
        _ => "1".to_owned(),
    })
}

pub fn organization_of(world: &Value) -> &Value {
    let organizations = world["organizations"].as_array().map(Vec::as_slice).unwrap_or_default();
    organizations
        .iter()
        .find(|organization| organization["login"] == ORGANIZATION)
        .expect("the world has acme")
}

/// A team of acme that is not synchronized.
pub fn team_of(world: &Value) -> &Value {
    let teams = organization_of(world)["teams"].as_array().map(Vec::as_slice).unwrap_or_default();
    teams.iter().find(|team| team["synchronised"] != true).expect("acme has a team")
}

/// The full name of a private repository of acme.
pub fn private_repository_of(world: &Value) -> String {
    let repositories = world["repositories"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names = repositories
        .iter()
        .filter(|repository| repository["private"] == true)
        .filter_map(|found| found["full_name"].as_str());
    names.find(|name| name.starts_with("acme/")).expect("acme has a private repository").to_owned()
}

/// The slug of the first enterprise.
pub fn enterprise_of(world: &Value) -> String {
    world["enterprises"][0]["slug"].as_str().unwrap_or("none").to_owned()
}
