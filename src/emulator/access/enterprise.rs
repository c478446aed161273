//! Who may look at and change the teams of an enterprise (Document 2, Enterprise team organization
//! assignments).

use super::{REJECTED_APP, rejection};
use crate::api::TokenKind;
use crate::emulator::accounts::Level;
use crate::emulator::call::Call;
use crate::emulator::fault::Fault;

/// "`read:enterprise` for GET, `admin:enterprise` for all others".
pub(super) fn scope(level: Level) -> &'static str {
    if level == Level::Read { "read:enterprise" } else { "admin:enterprise" }
}

/// "Only classic personal access tokens; fine-grained personal access tokens and app tokens are not
/// accepted." Who among their bearers may is not shown: whoever belongs to the enterprise looks,
/// its owners change.
pub(super) fn admit(call: &Call<'_>, level: Level) -> Result<(), Fault> {
    if call.caller.app().is_some() {
        return Err(Fault::Forbidden(REJECTED_APP));
    }
    let token = call.caller.token().ok_or(Fault::RequiresAuthentication)?;
    if token.kind != TokenKind::Classic {
        return Err(Fault::Forbidden(rejection(token)));
    }
    if !token.has_scope(scope(level)) {
        return Err(Fault::Forbidden(
            "The token lacks a scope that this needs; see X-Accepted-OAuth-Scopes.",
        ));
    }
    let enterprise =
        call.world.enterprise_by_slug(call.params.get("enterprise")).ok_or(Fault::NotFound)?;
    let user = token
        .user
        .filter(|user| call.world.belongs_to_enterprise(*user, enterprise))
        .ok_or(Fault::NotFound)?;
    if level > Level::Read && !enterprise.owners.contains(&user) {
        return Err(Fault::Forbidden("Must be an enterprise owner."));
    }
    Ok(())
}
