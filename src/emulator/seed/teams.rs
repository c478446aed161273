//! Teams, invitations and the enterprise of the seed world, and the users that only they need.
//! Independent of the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::people::{
    ACME, ADA, APP, BEN, BUILD_BOT, CLEO, DAN, GLOBEX, OAUTH_APP, SCAN_BOT, WIDGETS, personal,
};
use crate::api::TokenKind;
use crate::clock::Timestamp;
use crate::emulator::accounts::{Level, Permissions, Token};
use crate::emulator::world::{
    Enterprise, EnterpriseTeam, Invitation, InvitationFailure, InvitationRole, Invitee,
    Organization, People, Privacy, Purpose, RepositoryRole, Team, TeamRole, User, World,
};

/// An outsider to acme, globex and initech; owner of vandelay.
const FINN: u64 = 131;
/// An outside collaborator of acme and a member of globex.
const GWEN: u64 = 132;
/// Invited to acme, into platform.
const HUGO: u64 = 133;
const VANDELAY: u64 = 231;
const PLATFORM: u64 = 401;
const BOTS: u64 = 403;
const DAY: Duration = Duration::from_hours(24);

pub fn add(world: &mut World, now: Timestamp) {
    let joined = now - DAY * 390;
    add_people(world, joined);
    world.add_organization(vandelay(joined));
    if let Some(acme) = world.organizations.get_mut(&ACME) {
        acme.teams = acme_teams(joined);
        acme.people = acme_people(now);
    }
    if let Some(globex) = world.organizations.get_mut(&GLOBEX) {
        // In the organisation and not in its team, for tests of a refused addition.
        globex.members.insert(GWEN);
        globex.teams = by_id([Team {
            synchronised: true,
            ..team(411, "staff", None, &[(DAN, TeamRole::Maintainer)], joined)
        }]);
    }
    if let Some(gadgets) = world.repositories.get_mut(&(WIDGETS + 1)) {
        gadgets.collaborators.insert(GWEN);
    }
    world.enterprises.insert(501, initech(joined));
}

fn add_people(world: &mut World, joined: Timestamp) {
    for (id, login, name) in [
        (FINN, "finn", "Finn, owner of vandelay"),
        (GWEN, "gwen", "Gwen, from outside"),
        (HUGO, "hugo", "Hugo, invited"),
    ] {
        world.add_user(User {
            id,
            login: login.to_owned(),
            name: name.to_owned(),
            created_at: joined,
            updated_at: joined + DAY,
            watching: BTreeSet::new(),
        });
    }
    for token in tokens() {
        world.add_token(token);
    }
}

fn tokens() -> Vec<Token> {
    let classic = |value, user, scopes: &[&'static str], note| {
        personal(value, TokenKind::Classic, user, scopes, Permissions::NotApplicable, note)
    };
    let members =
        |level| Permissions::Only(BTreeMap::from([("metadata", Level::Read), ("members", level)]));
    let through_app = |value, user, level, note| Token {
        app: Some(APP),
        ..personal(value, TokenKind::AppUser, user, &[], members(level), note)
    };
    let of_organizations = ["admin:org", "admin:enterprise"];
    let all = Permissions::All;
    vec![
        classic(
            "emu_classic_finn_org_scopes",
            FINN,
            &of_organizations,
            "a stranger to acme and initech",
        ),
        classic("emu_classic_hugo_org_scopes", HUGO, &of_organizations, "invited to acme"),
        Token {
            oauth_app: Some(OAUTH_APP),
            ..personal(
                "emu_oauth_ada_org_scopes",
                TokenKind::Oauth,
                ADA,
                &of_organizations,
                Permissions::NotApplicable,
                "owner of acme and initech through the OAuth app",
            )
        },
        personal(
            "emu_fine_grained_gwen",
            TokenKind::FineGrained,
            GWEN,
            &[],
            all,
            "outside collaborator of acme, member of globex",
        ),
        classic(
            "emu_classic_ada_read_only",
            ADA,
            &["read:org", "read:enterprise"],
            "owner of acme and initech, reading scopes only",
        ),
        through_app(
            "emu_app_user_ada_members",
            ADA,
            Level::Write,
            "owner of acme through the app, permission Members",
        ),
        through_app(
            "emu_app_user_ben_members_read",
            BEN,
            Level::Read,
            "member of acme through the app, permission Members to read",
        ),
        through_app(
            "emu_app_user_hugo_members",
            HUGO,
            Level::Write,
            "invited to acme, through the app, permission Members",
        ),
    ]
}

fn vandelay(created_at: Timestamp) -> Organization {
    Organization {
        id: VANDELAY,
        login: "vandelay".to_owned(),
        description: "In no enterprise".to_owned(),
        created_at,
        updated_at: created_at,
        owners: BTreeSet::from([FINN]),
        members: BTreeSet::from([FINN]),
        teams: BTreeMap::new(),
        people: People::default(),
        roles: BTreeMap::new(),
        hooks: BTreeMap::new(),
    }
}

fn team(
    id: u64,
    slug: &str,
    parent: Option<u64>,
    people: &[(u64, TeamRole)],
    created_at: Timestamp,
) -> Team {
    Team {
        id,
        slug: slug.to_owned(),
        name: slug.to_owned(),
        description: None,
        privacy: Privacy::Closed,
        parent,
        people: people.iter().copied().collect(),
        permission: RepositoryRole::Pull,
        synchronised: false,
        created_at,
        updated_at: created_at,
    }
}

fn by_id(teams: impl IntoIterator<Item = Team>) -> BTreeMap<u64, Team> {
    teams.into_iter().map(|team| (team.id, team)).collect()
}

fn acme_teams(created_at: Timestamp) -> BTreeMap<u64, Team> {
    let (lead, member) = (TeamRole::Maintainer, TeamRole::Member);
    by_id([
        team(PLATFORM, "platform", None, &[(BEN, lead), (CLEO, member)], created_at),
        team(
            402,
            "platform-core",
            Some(PLATFORM),
            &[(BEN, lead), (CLEO, member), (BUILD_BOT, member)],
            created_at,
        ),
        team(
            BOTS,
            "bots",
            None,
            &[(BEN, lead), (BUILD_BOT, member), (SCAN_BOT, member)],
            created_at,
        ),
        Team {
            privacy: Privacy::Secret,
            ..team(404, "incident-response", None, &[(CLEO, lead), (SCAN_BOT, member)], created_at)
        },
    ])
}

/// Has a pending and a failed invitation (SPECIFICATION, "Emulator").
fn acme_people(now: Timestamp) -> People {
    let pending = Invitation {
        id: 421,
        invitee: Invitee::User(HUGO),
        role: InvitationRole::DirectMember,
        teams: BTreeMap::from([(PLATFORM, TeamRole::Member)]),
        purpose: Purpose::Teams,
        inviter: ADA,
        created_at: now - DAY * 2,
        failure: None,
    };
    let failed = Invitation {
        id: 422,
        invitee: Invitee::Address("nobody@example.org".to_owned()),
        role: InvitationRole::DirectMember,
        teams: BTreeMap::from([(BOTS, TeamRole::Member)]),
        purpose: Purpose::Organization,
        inviter: ADA,
        created_at: now - DAY * 30,
        failure: Some(InvitationFailure {
            at: now - DAY * 23,
            reason: "The invitation expired".to_owned(),
        }),
    };
    People {
        invitations: [pending, failed]
            .into_iter()
            .map(|invitation| (invitation.id, invitation))
            .collect(),
        public: BTreeSet::from([ADA, BEN]),
        team_roles: BTreeMap::new(),
        grants: BTreeMap::from([
            (
                WIDGETS,
                BTreeMap::from([(PLATFORM, RepositoryRole::Push), (BOTS, RepositoryRole::Pull)]),
            ),
            (WIDGETS + 1, BTreeMap::from([(PLATFORM, RepositoryRole::Push)])),
        ]),
    }
}

/// acme and globex are its organisations; only acme has teams of it.
fn initech(created_at: Timestamp) -> Enterprise {
    let team = |id, name: &str, members: &[u64], organizations: &[u64]| EnterpriseTeam {
        id,
        slug: format!("ent:{}", name.to_lowercase()),
        name: name.to_owned(),
        description: None,
        members: members.iter().copied().collect(),
        organizations: organizations.iter().copied().collect(),
        created_at,
        updated_at: created_at,
    };
    let teams =
        [team(511, "Architects", &[ADA, CLEO, DAN], &[ACME]), team(512, "Auditors", &[DAN], &[])];
    Enterprise {
        id: 501,
        slug: "initech".to_owned(),
        name: "Initech".to_owned(),
        owners: BTreeSet::from([ADA]),
        organizations: BTreeSet::from([ACME, GLOBEX]),
        teams: teams.into_iter().map(|team| (team.id, team)).collect(),
    }
}
