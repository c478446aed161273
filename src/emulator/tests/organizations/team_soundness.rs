//! Tests that random requests about teams and people keep the world consistent. The requests derive
//! from a seed, which a failure prints.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cases::cases;
use crate::emulator::resources::PEOPLE;
use crate::emulator::routing::{Route, Verb};
use crate::emulator::tests::*;
use crate::emulator::world::{Invitee, Organization, Privacy, World};
use crate::random::Rng;

const REQUESTS: u32 = 15_000;
/// Mostly tokens with write access.
const TOKENS: [&str; 8] = [
    ADA,
    ADA,
    BEN,
    DAN,
    INSTALLATION,
    "emu_classic_cleo_all_scopes",
    "emu_classic_hugo_org_scopes",
    "emu_classic_finn_org_scopes",
];

fn any<'a>(dice: &mut Rng, from: &[&'a str]) -> &'a str {
    dice.pick(from).copied().unwrap_or("")
}

fn parameter(dice: &mut Rng, name: &str, world: &World) -> String {
    let any_id = |dice: &mut Rng, ids: Vec<u64>| {
        dice.pick(&ids).map_or_else(|| "0".to_owned(), u64::to_string)
    };
    let team_ids = || {
        world
            .organizations
            .values()
            .flat_map(|organization| organization.teams.keys().copied())
            .collect()
    };
    match name {
        "{org}" => any(dice, &["acme", "acme", "globex", "vandelay"]).to_owned(),
        "{org_id}" => any(dice, &["201", "202", "231"]).to_owned(),
        "{team_slug}" => {
            any(dice, &["platform", "bots", "new-team", "x", "staff", "ent:architects", "ent:new"])
                .to_owned()
        }
        "{team_id}" => any_id(dice, team_ids()),
        "{username}" => any(
            dice,
            &["ada", "ben", "cleo", "dan", "finn", "gwen", "hugo", "triage-bot", "globex"],
        )
        .to_owned(),
        "{invitation_id}" => {
            let invitations = world
                .organizations
                .values()
                .flat_map(|organization| organization.people.invitations.keys().copied());
            any_id(dice, invitations.collect())
        }
        "{role_id}" => any(dice, &["601", "602", "603"]).to_owned(),
        "{enterprise}" => "initech".to_owned(),
        "{enterprise-team}" => any(dice, &["511", "512", "ent:new"]).to_owned(),
        "{owner}" => any(dice, &["acme", "globex", "ada"]).to_owned(),
        _ => any(dice, &["widgets", "gadgets", "portal", "dotfiles"]).to_owned(),
    }
}

fn body(dice: &mut Rng, world: &World) -> Value {
    let team = |dice: &mut Rng| parameter(dice, "{team_id}", world).parse::<u64>().unwrap_or(0);
    let mut body = json!({});
    for _ in 0..dice.below(4) {
        let (name, value) = match dice.below(12) {
            0 => ("name", json!(any(dice, &["New team", "x", "Platform", "New"]))),
            1 => ("role", json!(any(dice, &["member", "maintainer", "admin", "direct_member"]))),
            2 => {
                ("parent_team_id", if dice.below(3) == 0 { Value::Null } else { json!(team(dice)) })
            }
            3 => ("privacy", json!(any(dice, &["secret", "closed"]))),
            4 => (
                "invitee_id",
                json!([131, 132, 133, 101, 104][usize::try_from(dice.below(5)).unwrap_or(0)]),
            ),
            5 => ("team_ids", json!([team(dice), team(dice)])),
            6 => ("email", json!(any(dice, &["a@example.net", "finn@example.com"]))),
            7 => ("state", json!("active")),
            8 => ("organization_slugs", json!([any(dice, &["acme", "globex", "vandelay"])])),
            9 => ("usernames", json!([parameter(dice, "{username}", world)])),
            10 => ("permission", json!(any(dice, &["pull", "push", "admin"]))),
            _ => ("maintainers", json!([parameter(dice, "{username}", world)])),
        };
        body[name] = value;
    }
    if body == json!({}) { Value::Null } else { body }
}

fn assert_sound(organization: &Organization, world: &World, context: &str) {
    let members = &organization.members;
    assert!(!organization.owners.is_empty(), "{context}: an owner is left");
    assert!(organization.owners.is_subset(members), "{context}: owners are members");
    assert!(
        organization.people.public.is_subset(members),
        "{context}: a public member is a member"
    );
    assert!(
        organization.roles.values().all(|users| users.is_subset(members)),
        "{context}: a holder of a role is a member"
    );
    let slugs: BTreeSet<&str> =
        organization.teams.values().map(|team| team.slug.as_str()).collect();
    assert_eq!(slugs.len(), organization.teams.len(), "{context}: slugs are unique");
    for team in organization.teams.values() {
        assert!(
            team.people.keys().all(|user| members.contains(user)),
            "{context}: people of {} are members",
            team.slug
        );
        assert!(
            team.parent.is_none_or(|parent| organization.teams.contains_key(&parent)),
            "{context}: {} has its parent",
            team.slug
        );
        assert!(
            !organization.teams_below(team.id).contains(&team.id),
            "{context}: {} is not below itself",
            team.slug
        );
        assert!(
            team.parent.is_none() || team.privacy == Privacy::Closed,
            "{context}: {} is nested and not secret",
            team.slug
        );
    }
    let mut invited = BTreeSet::new();
    for invitation in
        organization.people.invitations.values().filter(|invitation| invitation.failure.is_none())
    {
        assert!(
            invitation.teams.keys().all(|team| organization.teams.contains_key(team)),
            "{context}: invited to teams that are there"
        );
        if let Invitee::User(user) = invitation.invitee {
            assert!(
                !members.contains(&user) && invited.insert(user),
                "{context}: {} is invited once",
                world.login(user)
            );
        }
    }
    for teams in organization.people.grants.values() {
        assert!(
            teams.keys().all(|team| organization.teams.contains_key(team)),
            "{context}: grants are of teams that are there"
        );
    }
}

#[test]
fn random_requests_keep_people_and_teams_consistent() {
    let seed = 77;
    let mut dice = Rng::new(seed);
    let mut upstream = Upstream::new();
    let routes: Vec<&Route> = PEOPLE.iter().copied().flatten().collect();
    let mut by_class = [0_u32; 6];
    for turn in 0..cases(REQUESTS) {
        if turn % 200 == 0 {
            upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
            for name in ["core", "points.rest", "content.minute", "content.hour"] {
                upstream.set_limit(name, 1_000_000_000);
            }
        }
        let Some(route) = dice.pick(&routes).copied() else { continue };
        let world = &upstream.emulator.state.world;
        let segments = route.template.split('/');
        let segments: Vec<String> = segments
            .map(|segment| {
                if segment.starts_with('{') {
                    parameter(&mut dice, segment, world)
                } else {
                    segment.to_owned()
                }
            })
            .collect();
        let path = segments.join("/");
        let body = if route.verb == Verb::Get { Value::Null } else { body(&mut dice, world) };
        let method = Method::from_bytes(route.verb.name().as_bytes()).expect("a method");
        let token = any(&mut dice, &TOKENS);
        let context = format!("seed {seed}, turn {turn}: {method} {path} {body} by {token}");
        let answer = upstream.send(&request(method, token, &path, &[], &body));
        by_class[usize::from(answer.status / 100)] += 1;
        assert!(answer.status < 500 && answer.status != 429, "{context} → {}", answer.status);
        let world = &upstream.emulator.state.world;
        for organization in world.organizations.values() {
            assert_sound(organization, world, &context);
        }
    }
    assert!(by_class[2] > cases(REQUESTS) / 7, "it reaches answers: {by_class:?}");
}
