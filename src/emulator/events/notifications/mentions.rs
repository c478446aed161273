//! Mentions in a text: `@login` and `@organisation/team`.

use std::collections::BTreeSet;

use crate::emulator::world::notifications::thread::Mentions;
use crate::emulator::world::{Team, World};

/// The most `@` examined in one text.
const MENTIONS_MAX: usize = 1_000;

/// Finds the mentions of a text. An `@` within a word, as in an e-mail address, is no mention.
pub fn find(world: &World, text: &str) -> Mentions {
    let mut found = Mentions::default();
    for (at, _) in text.match_indices('@').take(MENTIONS_MAX) {
        let joined = text[..at]
            .chars()
            .next_back()
            .is_some_and(|before| before.is_alphanumeric() || matches!(before, '_' | '-' | '.'));
        if joined {
            continue;
        }
        let (login, rest) = name(&text[at + 1..]);
        match rest.strip_prefix('/').map(|rest| name(rest).0).filter(|slug| !slug.is_empty()) {
            Some(slug) => found.of_teams.extend(team_members(world, login, slug)),
            None => found.users.extend(world.user_by_login(login).map(|user| user.id)),
        }
    }
    found
}

/// Lists the members of a team and of the teams nested in it.
pub fn team_members(world: &World, organization: &str, slug: &str) -> BTreeSet<u64> {
    let Some(organization) = world.organization_by_login(organization) else {
        return BTreeSet::new();
    };
    let teams = &organization.teams;
    let ids = |is_it: &dyn Fn(&Team) -> bool| -> BTreeSet<u64> {
        teams.values().filter(|team| is_it(team)).map(|team| team.id).collect()
    };
    let mut within = ids(&|team| team.slug.eq_ignore_ascii_case(slug));
    loop {
        let nested = ids(&|team| team.parent.is_some_and(|id| within.contains(&id)));
        if nested.is_subset(&within) {
            break;
        }
        within.extend(nested);
    }
    let members = teams.values().filter(|team| within.contains(&team.id));
    members.flat_map(|team| team.people.keys()).copied().collect()
}

/// Splits a text after the login or slug it begins with.
fn name(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    fn named(text: &str) -> (Vec<String>, usize) {
        let world = seed::world(&Options::default(), Timestamp::from_secs(1_800_000_000));
        let found = find(&world, text);
        (found.users.iter().map(|id| world.login(*id).to_owned()).collect(), found.of_teams.len())
    }

    #[test]
    fn a_login_after_an_at_sign_is_a_mention() {
        for text in ["@ada", "see @ada.", "(@ADA)", "@ada, @nobody", "🦀@ada", "@@ada", "@ada/"] {
            assert_eq!(named(text), (vec!["ada".to_owned()], 0), "{text}");
        }
        assert_eq!(named("@ben and @ada").0, ["ada", "ben"]);
    }

    #[test]
    fn an_at_sign_within_a_word_is_no_mention() {
        for text in ["x@ada", "first.last@ada", "@", "@ ada", "@adabcd", "", "@acme"] {
            assert_eq!(named(text), (Vec::new(), 0), "{text}");
        }
    }

    #[test]
    fn a_team_mention_includes_members_of_nested_teams() {
        assert_eq!(
            named("@acme/platform-core please"),
            (Vec::new(), 3),
            "Cleo, the build bot, and Ben who maintains it"
        );
        assert_eq!(named("@ACME/Bots!").1, 3);
        assert_eq!(named("@acme/nothing @nobody/platform"), (Vec::new(), 0));
    }
}
