//! How far the tokens of apps reach: an installation's organisation and chosen repositories, what a
//! token was narrowed to, and, for an app that acts for a user, the places where the app is
//! installed. What the user may do there is judged apart (`access`).

use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Token};
use crate::emulator::world::{Owner, Repository, World};

/// Whether the token may do more with the repository than everybody may. Document 1: an app user
/// token is "limited by the app's permissions", which an app has where it is installed; a workflow
/// token is of one repository.
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

/// Whether the token reaches the organisation at all.
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

/// Whether an installation was granted a repository of its organisation.
pub fn covers(world: &World, installation: u64, repository: u64) -> bool {
    world
        .installation_grant(installation)
        .repositories
        .as_ref()
        .is_none_or(|chosen| chosen.contains(&repository))
}

/// The installation on this organisation through which the token acts.
fn installation_of(world: &World, token: &Token, organization: u64) -> Option<u64> {
    match token.account {
        AccountId::Installation(id) => (token.installed_on == Some(organization)).then_some(id),
        _ => world.installation_on(token.app?, organization),
    }
}
