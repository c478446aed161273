//! Resources of the seed world: the paths of its teams and their members.

use serde_json::Value;

use crate::kit::Upstream;

/// The three paths of a team (SPECIFICATION, "Team membership").
#[derive(Debug)]
pub struct Team {
    /// `/orgs/{org}/teams/{team_slug}`.
    pub by_slug: String,
    /// `/organizations/{org_id}/team/{team_id}`, the alternate route.
    pub by_ids: String,
    /// `/teams/{team_id}`, closing down.
    pub legacy: String,
    /// Its entry in the world.
    pub view: Value,
}

impl Team {
    /// The path by slug and the alternate one.
    pub fn addresses(&self) -> [&str; 2] {
        [&self.by_slug, &self.by_ids]
    }

    pub fn id(&self) -> u64 {
        self.view["id"].as_u64().expect("a team has an id")
    }
}

/// The entry of an organization in the world.
pub fn organization(upstream: &mut Upstream, login: &str) -> Value {
    named(&upstream.world()["organizations"], "login", login)
}

/// A team of an organization.
pub fn team(upstream: &mut Upstream, login: &str, slug: &str) -> Team {
    let organization = organization(upstream, login);
    let view = named(&organization["teams"], "slug", slug);
    Team {
        by_slug: format!("/orgs/{login}/teams/{slug}"),
        by_ids: format!("/organizations/{}/team/{}", organization["id"], view["id"]),
        legacy: format!("/teams/{}", view["id"]),
        view,
    }
}

/// A team of the enterprise, addressed as this organization's.
pub fn enterprise_team(upstream: &mut Upstream, login: &str, slug: &str) -> Team {
    let organization = organization(upstream, login);
    let view = named(&upstream.world()["enterprises"][0]["teams"], "slug", slug);
    Team {
        by_slug: format!("/orgs/{login}/teams/{slug}"),
        by_ids: format!("/organizations/{}/team/{}", organization["id"], view["id"]),
        legacy: format!("/teams/{}", view["id"]),
        view,
    }
}

/// The item of a list whose `key` is `value`.
#[track_caller]
pub fn named(list: &Value, key: &str, value: &str) -> Value {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .find(|item| item[key] == value)
        .cloned()
        .unwrap_or_else(|| panic!("nothing whose {key} is {value} in {list}"))
}

/// The text under `key` of every item, in order.
pub fn texts(list: &Value, key: &str) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item[key].as_str()).map(str::to_owned).collect()
}

/// An app user token with this permission, of acme's owner or else of any member.
pub fn app_user_with(upstream: &Upstream, permission: &str) -> String {
    let has = |view: &weir::emulator::TokenView| {
        view.kind == "app-user"
            && (view.permissions.contains_key(permission) || view.permissions.contains_key("*"))
    };
    let of_ada = upstream.token_where(|view| has(view) && view.user.as_deref() == Some("ada"));
    of_ada.or_else(|| upstream.token_where(has)).unwrap_or_else(|| {
        panic!("the world has no app user token with the permission {permission}")
    })
}

/// A classic token of this person with the one scope and without the other.
pub fn classic_with(upstream: &Upstream, person: &str, scope: &str, without: &str) -> String {
    let fitting = upstream.token_where(|view| {
        let has = |scope: &str| view.scopes.contains(&scope);
        view.kind == "classic"
            && view.user.as_deref() == Some(person)
            && has(scope)
            && !has(without)
    });
    fitting.unwrap_or_else(|| {
        panic!("the world has no classic token of {person} with {scope} and without {without}")
    })
}
