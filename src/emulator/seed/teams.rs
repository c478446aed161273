//! Teams, invitations and the enterprise of the seed world. Independent of the seed.

use std::collections::{BTreeMap, BTreeSet};

use super::DAY;
use super::people::{ACME, ADA, BEN, BUILD_BOT, CLEO, DAN, GLOBEX, GWEN, HUGO, SCAN_BOT, WIDGETS};
use crate::clock::Timestamp;
use crate::emulator::world::{
    Enterprise, EnterpriseTeam, Invitation, InvitationFailure, InvitationRole, Invitee, People,
    Privacy, Purpose, RepositoryRole, Team, TeamRole, World,
};

const PLATFORM: u64 = 401;
const BOTS: u64 = 403;

pub fn add(world: &mut World, now: Timestamp) {
    let joined = now - DAY * 390;
    if let Some(acme) = world.organizations.get_mut(&ACME) {
        acme.teams = acme_teams(joined);
        acme.people = acme_people(now);
    }
    if let Some(globex) = world.organizations.get_mut(&GLOBEX) {
        // Gwen is in the organisation and not in its team, for tests of a denied addition.
        globex.teams =
            by_id([Team { synchronised: true, ..team(411, "staff", None, DAN, &[], joined) }]);
    }
    if let Some(gadgets) = world.repositories.get_mut(&(WIDGETS + 1)) {
        gadgets.collaborators.insert(GWEN, RepositoryRole::Push);
    }
    world.enterprises.insert(501, initech(joined));
}

fn team(
    id: u64,
    slug: &str,
    parent: Option<u64>,
    maintainer: u64,
    members: &[u64],
    created_at: Timestamp,
) -> Team {
    let members = members.iter().map(|member| (*member, TeamRole::Member));
    Team {
        id,
        slug: slug.to_owned(),
        name: slug.to_owned(),
        description: None,
        privacy: Privacy::Closed,
        parent,
        people: members.chain([(maintainer, TeamRole::Maintainer)]).collect(),
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
    let incident_response = team(404, "incident-response", None, CLEO, &[SCAN_BOT], created_at);
    by_id([
        team(PLATFORM, "platform", None, BEN, &[CLEO], created_at),
        team(402, "platform-core", Some(PLATFORM), BEN, &[CLEO, BUILD_BOT], created_at),
        team(BOTS, "bots", None, BEN, &[BUILD_BOT, SCAN_BOT], created_at),
        Team { privacy: Privacy::Secret, ..incident_response },
    ])
}

/// Has a pending and a failed invitation (SPECIFICATION, "Emulator").
fn acme_people(now: Timestamp) -> People {
    let invitation = |id, invitee, team, purpose, created_at| Invitation {
        id,
        invitee,
        role: InvitationRole::DirectMember,
        teams: BTreeMap::from([(team, TeamRole::Member)]),
        purpose,
        inviter: ADA,
        created_at,
        failure: None,
    };
    let pending = invitation(421, Invitee::User(HUGO), PLATFORM, Purpose::Teams, now - DAY * 2);
    let nobody = Invitee::Address("nobody@example.org".to_owned());
    let failed = Invitation {
        failure: Some(InvitationFailure {
            at: now - DAY * 23,
            reason: "The invitation expired".to_owned(),
        }),
        ..invitation(422, nobody, BOTS, Purpose::Organization, now - DAY * 30)
    };
    People {
        invitations: BTreeMap::from([(pending.id, pending), (failed.id, failed)]),
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
