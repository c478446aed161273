//! The reach of app tokens: the installation's organisation and chosen repositories, and the
//! token's own narrowing. An app that acts for a user reaches what its installations reach.
//! `access` checks the user's own rights.

use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Token};
use crate::emulator::world::{Owner, Repository, World};

/// False for merely public access. A user token of an app is limited to the app's installations, a
/// workflow token to one repository.
pub fn reaches_repository(world: &World, token: &Token, repository: &Repository) -> bool {
    let is_chosen =
        token.repositories.as_ref().is_none_or(|chosen| chosen.contains(&repository.id));
    is_chosen
        && match token.kind {
            TokenKind::Workflow => token.workflow_of == Some(repository.id),
            TokenKind::AppUser | TokenKind::Installation => {
                installation_covers(world, token, repository)
            }
            TokenKind::Classic | TokenKind::FineGrained | TokenKind::Oauth | TokenKind::Basic => {
                true
            }
        }
}

pub fn reaches_organization(world: &World, token: &Token, organization: u64) -> bool {
    !matches!(token.kind, TokenKind::AppUser | TokenKind::Installation)
        || installation_of(world, token, organization).is_some()
}

fn installation_covers(world: &World, token: &Token, repository: &Repository) -> bool {
    // Apps are installed on organisations only.
    let Owner::Organization(owner) = repository.owner else { return false };
    installation_of(world, token, owner)
        .is_some_and(|installation| covers(world, installation, repository.id))
}

pub fn covers(world: &World, installation: u64, repository: u64) -> bool {
    world
        .installation_grant(installation)
        .repositories
        .as_ref()
        .is_none_or(|chosen| chosen.contains(&repository))
}

fn installation_of(world: &World, token: &Token, organization: u64) -> Option<u64> {
    match token.account {
        AccountId::Installation(id) => (token.installed_on == Some(organization)).then_some(id),
        _ => world.installation_on(token.app?, organization),
    }
}
