//! Teams of an organisation: members, child teams and repository rights. Data and look-ups only;
//! the access rules are in `resources/teams`.

use std::collections::{BTreeMap, BTreeSet};

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::people::Organization;
use crate::clock::Timestamp;

#[derive(Debug)]
pub struct Team {
    pub id: u64,
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
    pub privacy: Privacy,
    pub parent: Option<u64>,
    /// Direct members only; those of child teams are not included.
    pub people: BTreeMap<u64, TeamRole>,
    /// The default right in a repository.
    pub permission: RepositoryRole,
    /// Set when an identity provider controls the membership.
    pub synchronised: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A role in a team; the upstream documents these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum TeamRole {
    Member,
    Maintainer,
}

/// The visibility of a team. Undocumented; the values are the running service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Privacy {
    /// Organisation owners and its own members.
    Secret,
    /// Every member of the organisation.
    Closed,
}

/// A team's right in a repository; each includes the ones before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum RepositoryRole {
    Pull,
    Triage,
    Push,
    Maintain,
    Admin,
}

impl RepositoryRole {
    /// The rights pull and push map to the roles read and write (SPECIFICATION, "Team membership").
    pub fn role_name(self) -> &'static str {
        match self {
            Self::Pull => "read",
            Self::Push => "write",
            Self::Triage | Self::Maintain | Self::Admin => self.into_str(),
        }
    }
}

impl Organization {
    /// Finds a team by its slug, case-insensitively.
    pub fn team_by_slug(&self, slug: &str) -> Option<&Team> {
        let slug = slug.to_lowercase();
        self.teams.values().find(|team| team.slug == slug)
    }

    /// Returns the ids of all descendants, without the team itself.
    pub fn teams_below(&self, id: u64) -> BTreeSet<u64> {
        let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for team in self.teams.values() {
            if let Some(parent) = team.parent {
                children.entry(parent).or_default().push(team.id);
            }
        }
        let mut below = BTreeSet::new();
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let children = children.remove(&id).unwrap_or_default();
            next.extend(children.into_iter().filter(|child| below.insert(*child)));
        }
        below
    }

    /// Returns the ids of the team and its ancestors.
    pub fn team_and_above(&self, id: u64) -> BTreeSet<u64> {
        let mut above = BTreeSet::new();
        let mut next = self.teams.get(&id);
        while let Some(team) = next.filter(|team| above.insert(team.id)) {
            next = team.parent.and_then(|parent| self.teams.get(&parent));
        }
        above
    }

    /// Members of child teams are plain members here, organisation owners maintainers.
    pub fn everyone_in_team(&self, team: &Team) -> BTreeMap<u64, TeamRole> {
        let children = self.teams_below(team.id).into_iter().filter_map(|id| self.teams.get(&id));
        let mut everyone: BTreeMap<u64, TeamRole> = children
            .flat_map(|child| child.people.keys())
            .map(|user| (*user, TeamRole::Member))
            .collect();
        everyone.extend(&team.people);
        for (user, role) in &mut everyone {
            *role = self.shown_role(*user, *role);
        }
        everyone
    }

    /// Organisation owners appear as maintainers (SPECIFICATION, "Team membership").
    pub fn shown_role(&self, user: u64, role: TeamRole) -> TeamRole {
        if self.owners.contains(&user) { TeamRole::Maintainer } else { role }
    }

    /// Lists the team's repositories and rights, those inherited from its ancestors included.
    pub fn team_repositories(&self, team: u64) -> BTreeMap<u64, RepositoryRole> {
        let above = self.team_and_above(team);
        let strongest = |teams: &BTreeMap<u64, RepositoryRole>| {
            above.iter().filter_map(|id| teams.get(id)).max().copied()
        };
        let grants = self.people.grants.iter();
        grants.filter_map(|(repository, teams)| Some((*repository, strongest(teams)?))).collect()
    }

    /// Checks admin rights only, because all members have lesser rights anyway.
    pub fn administers_by_team(&self, user: u64, repository: u64) -> bool {
        let is_in =
            |team: u64| self.teams.get(&team).is_some_and(|team| team.people.contains_key(&user));
        let gives = |team: u64| is_in(team) || self.teams_below(team).into_iter().any(is_in);
        let grants = self.people.grants.get(&repository).into_iter().flatten();
        grants.into_iter().any(|(team, role)| *role == RepositoryRole::Admin && gives(*team))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    #[test]
    fn a_cycle_of_nested_teams_ends_the_walk() {
        let mut world = seed::world(&Options::default(), Timestamp::from_secs(1_800_000_000));
        let acme = world
            .organizations
            .values_mut()
            .find(|organization| organization.login == "acme")
            .expect("it is in the seed");
        acme.teams.get_mut(&401).expect("platform").parent = Some(402);
        assert_eq!(acme.teams_below(401), BTreeSet::from([401, 402]));
        assert_eq!(acme.team_and_above(401), BTreeSet::from([401, 402]));
    }

    #[test]
    fn pull_and_push_map_to_the_read_and_write_roles() {
        assert_eq!(
            (RepositoryRole::Pull.role_name(), RepositoryRole::Push.role_name()),
            ("read", "write")
        );
    }
}
