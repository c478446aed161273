//! Access to an enterprise's teams (SPECIFICATION, "Enterprise teams").

use super::access::{REJECTED_APP, rejection};
use crate::api::TokenKind;
use crate::emulator::accounts::Level;
use crate::emulator::http::ApiError;
use crate::emulator::routing::Call;
use crate::emulator::routing::need::enterprise_scope;

/// The users are undocumented: here members of the enterprise read and owners change.
pub(super) fn admit(call: &Call<'_>, level: Level) -> Result<(), ApiError> {
    if call.caller.app().is_some() {
        return Err(ApiError::Forbidden(REJECTED_APP));
    }
    let token = call.caller.token().ok_or(ApiError::RequiresAuthentication)?;
    if token.kind != TokenKind::Classic {
        return Err(ApiError::Forbidden(rejection(token)));
    }
    if !token.has_scope(enterprise_scope(level)) {
        return Err(ApiError::Forbidden(
            "The token lacks a scope that this needs; see X-Accepted-OAuth-Scopes.",
        ));
    }
    let enterprise =
        call.world.enterprise_by_slug(call.params.get("enterprise")).ok_or(ApiError::NotFound)?;
    let user = token
        .user
        .filter(|user| call.world.belongs_to_enterprise(*user, enterprise))
        .ok_or(ApiError::NotFound)?;
    if level > Level::Read && !enterprise.owners.contains(&user) {
        return Err(ApiError::Forbidden("Must be an enterprise owner."));
    }
    Ok(())
}
