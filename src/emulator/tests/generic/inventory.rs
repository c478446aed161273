//! Tests every row of the endpoint table in both dialects: it answers the right credential and no
//! other (SPECIFICATION, "Route inventory" and "Permissions").

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::walk::WALK;
use crate::api::{Endpoint, PermissionOwner, Source, Table, TokenKind};
use crate::emulator::auth::jwt;
use crate::emulator::tests::*;

pub const DIALECTS: [Dialect; 2] = [Dialect::Service, Dialect::Github];
pub const OAUTH_APP: &str = "basic";

/// Lists the table without the classes of unknown routes and without GraphQL, which has own tests.
pub fn routes(dialect: Dialect) -> impl Iterator<Item = &'static Endpoint> {
    Table::embedded(dialect)
        .endpoints()
        .iter()
        .filter(|endpoint| !endpoint.generic && endpoint.template != "/graphql")
}

/// Returns a path of this template to an object of the seed world, as far as the world has one.
pub fn walkable(endpoint: &Endpoint, repository: &str) -> String {
    let mut path = String::new();
    for segment in endpoint.template.split('/').skip(1) {
        let Some(param) = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'))
        else {
            path = format!("{path}/{segment}");
            continue;
        };
        let value = match param {
            "repo" => repository,
            // One step could be an item of a listed route; two are not.
            "*rest" => "unlisted/parts",
            other => {
                WALK.iter().find(|(name, _)| *name == other).map_or("4711", |(_, value)| value)
            }
        };
        path = format!("{path}/{value}");
    }
    if path.is_empty() { "/".to_owned() } else { path }
}

/// Builds a request with a token, the seed's OAuth app (`OAUTH_APP`) or its app's JWT (`jwt`).
pub fn request_with(
    upstream: &Upstream,
    method: &Method,
    credential: &str,
    path: &str,
    body: &Value,
) -> Request<Bytes> {
    let authorization = match credential {
        "" => return request(method.clone(), NOBODY, path, &[], body),
        OAUTH_APP => format!("Basic {}", STANDARD.encode("emu_client_id:emu_client_secret")),
        "jwt" => format!("Bearer {}", app_jwt(upstream)),
        token => format!("Bearer {token}"),
    };
    request(method.clone(), NOBODY, path, &[("authorization", &authorization)], body)
}

pub fn app_jwt(upstream: &Upstream) -> String {
    let now = upstream.now.as_secs();
    jwt::tests::signed(
        &json!({ "alg": "RS256", "typ": "JWT" }),
        &json!({ "iss": "301", "iat": now - 60, "exp": now + 540 }),
    )
}

fn fitting_credential(endpoint: &Endpoint) -> &'static str {
    if endpoint.tokens.accepts_app_jwt() == Some(true) {
        "jwt"
    } else if endpoint.template.starts_with("/installation/") {
        INSTALLATION
    } else if endpoint.template.starts_with("/applications/") {
        OAUTH_APP
    } else if endpoint.template.starts_with("/user/installations") && endpoint.method == Method::GET
    {
        "emu_app_user_ben"
    } else if endpoint.template.ends_with("/public_members/{username}")
        && endpoint.method != Method::GET
    {
        // The walk names Ben there, because members publicize and conceal only themselves.
        BEN
    } else {
        ADA
    }
}

pub fn unlimited(dialect: Dialect) -> Upstream {
    let mut upstream = Upstream::with(Options {
        dialect,
        base_url: "http://upstream.test".to_owned(),
        ..Options::default()
    });
    lift_limits(&mut upstream);
    upstream
}

pub fn lift_limits(upstream: &mut Upstream) {
    // Git LFS has limits by kind alone.
    for resource in crate::emulator::limits::settings::Resource::ALL
        .into_iter()
        .filter(|resource| *resource != crate::emulator::limits::settings::Resource::LFS)
    {
        upstream.set_limit(resource.name(), 1_000_000_000);
    }
    for name in [
        "lfs.anonymous",
        "lfs.authenticated",
        "cpu",
        "cpu.graphql",
        "cpu.burst",
        "oauth-tokens.hour",
        "points.rest",
        "points.graphql",
        "content.minute",
        "content.hour",
        "search.anonymous",
        "code_search.anonymous",
    ] {
        upstream.set_limit(name, 1_000_000_000);
    }
}

fn matched_endpoint(upstream: &mut Upstream) -> String {
    upstream
        .emulator
        .state
        .transcript
        .last()
        .map(|entry| entry.endpoint.clone())
        .unwrap_or_default()
}

/// Orders routes: reads first, then writes, at last deletions, the deepest first.
fn in_walking_order(dialect: Dialect) -> Vec<&'static Endpoint> {
    let mut routes: Vec<_> = routes(dialect).collect();
    let rank = |method: &Method| {
        [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE]
            .iter()
            .position(|known| known == method)
    };
    routes.sort_by_key(|endpoint| (rank(&endpoint.method), usize::MAX - endpoint.template.len()));
    routes
}

fn walk(
    repository: &str,
    credential: impl Fn(&Endpoint) -> Option<&'static str>,
    judge: impl Fn(&Endpoint, &Answer, &str),
) {
    for dialect in DIALECTS {
        let mut upstream = unlimited(dialect);
        for endpoint in in_walking_order(dialect) {
            let Some(credential) = credential(endpoint) else { continue };
            let path = walkable(endpoint, repository);
            let answer = upstream.send(&request_with(
                &upstream,
                &endpoint.method,
                credential,
                &path,
                &Value::Null,
            ));
            judge(
                endpoint,
                &answer,
                &format!(
                    "{} {path} by {credential:?} → {} {}",
                    endpoint.method, answer.status, answer.body
                ),
            );
            assert!(
                matched_endpoint(&mut upstream).ends_with(|last| last != ')'),
                "{} {path} is known",
                endpoint.method
            );
        }
    }
}

#[test]
fn every_route_of_the_table_answers_the_right_credential() {
    walk(
        "widgets",
        |endpoint| Some(fitting_credential(endpoint)),
        |_, answer, what| {
            assert!(
                (200..500).contains(&answer.status) && !matches!(answer.status, 401 | 403 | 405),
                "{what}"
            );
        },
    );
}

#[test]
fn without_a_credential_only_public_data_is_shown() {
    walk(
        "widgets",
        |_| Some(NOBODY),
        |endpoint, answer, what| match answer.status {
            401 | 404 => {}
            // Reads, and responses without anyone's data.
            200..=299 | 302 | 422 => {
                assert!(
                    endpoint.method == Method::GET
                        || matches!(endpoint.group.as_str(), "markdown" | "credentials" | "apps"),
                    "{what}"
                );
                assert!(
                    !endpoint.about_caller
                        || matches!(
                            endpoint.template.as_str(),
                            "/rate_limit" | "/feeds" | "/gists" | "/gists/starred"
                        ),
                    "{what}"
                );
            }
            _ => panic!("{what}"),
        },
    );
}

#[test]
fn a_private_repository_is_not_found_by_strangers() {
    // Routes that take a JWT refuse other credentials before they look at the path.
    let in_repository = |endpoint: &Endpoint| {
        endpoint.template.starts_with("/repos/{owner}/{repo}")
            && endpoint.tokens.accepts_app_jwt() != Some(true)
    };
    for stranger in [NOBODY, DAN, ADA_NO_SCOPES, ADA_NO_PERMISSIONS, WORKFLOW] {
        walk(
            "gadgets",
            |endpoint| in_repository(endpoint).then_some(stranger),
            |endpoint, answer, what| {
                let expected = if endpoint.template.ends_with("/notifications") {
                    401..=404
                } else {
                    404..=404
                };
                assert!(expected.contains(&answer.status), "{what}");
            },
        );
    }
}

#[test]
fn a_token_without_the_permission_is_refused() {
    let wants_permission = |endpoint: &Endpoint| {
        endpoint.permission.is_some()
            && endpoint.tokens.accepts(TokenKind::FineGrained) != Some(false)
    };
    walk(
        "widgets",
        |endpoint| wants_permission(endpoint).then_some(ADA_NO_PERMISSIONS),
        |endpoint, answer, what| {
            // Reading a public repository needs no permission (SPECIFICATION, "Permissions").
            let may_be_public =
                endpoint.method == Method::GET && !endpoint.template.contains("/teams/");
            assert!(
                answer.status == 403 || (may_be_public && matches!(answer.status, 200 | 302 | 404)),
                "{what}"
            );
        },
    );
}

#[test]
fn a_kind_of_token_that_a_route_rejects_is_refused() {
    let kinds = [
        (TokenKind::FineGrained, ADA_FINE),
        (TokenKind::Oauth, OAUTH),
        (TokenKind::AppUser, "emu_app_user_ben"),
        (TokenKind::Installation, INSTALLATION),
        (TokenKind::Workflow, WORKFLOW),
        (TokenKind::Classic, ADA),
    ];
    for (kind, token) in kinds {
        walk(
            "widgets",
            |endpoint| (endpoint.tokens.accepts(kind) == Some(false)).then_some(token),
            |_, answer, what| assert_eq!(answer.status, 403, "{what}"),
        );
    }
}

#[test]
fn a_route_for_app_user_tokens_only_refuses_installations() {
    let mut refused = 0;
    for endpoint in routes(Dialect::Service).filter(|endpoint| endpoint.uat_only) {
        let mut upstream = unlimited(Dialect::Service);
        let path = walkable(endpoint, "widgets");
        upstream
            .send(&request_with(&upstream, &endpoint.method, INSTALLATION, &path, &Value::Null))
            .assert_status(403);
        refused += 1;
    }
    assert_eq!(refused, 4, "PUT and DELETE public_members, GET and PATCH one's own membership");
}

#[test]
fn an_app_level_route_accepts_only_a_jwt() {
    for token in [ADA, ADA_FINE, OAUTH, "emu_app_user_ben", INSTALLATION, WORKFLOW] {
        walk(
            "widgets",
            |endpoint| (endpoint.tokens.accepts_app_jwt() == Some(true)).then_some(token),
            |_, answer, what| assert_eq!(answer.status, 403, "{what}"),
        );
    }
    walk(
        "widgets",
        |endpoint| (endpoint.tokens.accepts_app_jwt() == Some(true)).then_some(NOBODY),
        |_, answer, what| assert_eq!(answer.status, 401, "{what}"),
    );
}

#[test]
fn an_organisation_is_administered_only_by_its_owners() {
    let of_organization = |endpoint: &Endpoint| {
        let administers = endpoint.permission.as_ref().is_some_and(|one| {
            one.owner == PermissionOwner::Organization && one.name == "administration"
        });
        administers && endpoint.source == Source::Matrix
    };
    walk(
        "widgets",
        |endpoint| of_organization(endpoint).then_some(BEN),
        |_, answer, what| assert!(matches!(answer.status, 403 | 404), "{what}"),
    );
    walk(
        "widgets",
        |endpoint| of_organization(endpoint).then_some(DAN),
        |_, answer, what| assert_eq!(answer.status, 404, "{what}"),
    );
    walk(
        "widgets",
        |endpoint| of_organization(endpoint).then_some(ADA_NO_SCOPES),
        |_, answer, what| assert!(matches!(answer.status, 403 | 404), "{what}"),
    );
}

#[test]
fn every_answer_states_the_permissions_that_open_its_endpoint() {
    walk(
        "widgets",
        |endpoint| endpoint.permission.is_some().then_some(ADA),
        |endpoint, answer, what| {
            let header = ["x-accepted-service-permissions", "x-accepted-github-permissions"]
                .map(|name| answer.header(name))
                .concat();
            let Some(permission) = &endpoint.permission else { return };
            let level = permission.to_string().rsplit(':').next().unwrap_or("").to_owned();
            // The API's name ends with the documented one, with two exceptions.
            let name = permission.name.replace("webhooks", "hooks");
            assert!(
                header.contains(&format!("{name}={level}"))
                    || endpoint.template.starts_with("/enterprises/"),
                "{header:?} {what}"
            );
        },
    );
}

#[test]
fn every_answer_to_a_classic_token_states_an_accepted_scope() {
    walk(
        "widgets",
        |endpoint| (!endpoint.scopes.is_empty()).then_some(ADA),
        |endpoint, answer, what| {
            let header = answer.header("x-accepted-oauth-scopes");
            let stated: Vec<&str> = header.split(", ").collect();
            assert!(
                endpoint.scopes.iter().any(|scope| stated.contains(&scope.as_str())),
                "{header} {what}"
            );
        },
    );
}
