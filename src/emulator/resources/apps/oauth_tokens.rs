//! Management of issued tokens by an OAuth app, with its client id and secret (SPECIFICATION,
//! "Credentials").
//!
//! The upstream limits these requests without documenting the routes; they are the real service's.
//! The flows that issue the first token are left out.

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::emulator::accounts::{AccountId, Token};
use crate::emulator::http::{ApiError, Fields, Reply, hex};
use crate::emulator::routing::{Call, Need, Outcome, Route};
use crate::emulator::world::OauthApp;

pub const ROUTES: &[Route] = &[
    Route::post("/applications/{client_id}/token", Need::OauthApp, check).about_tokens(),
    Route::patch("/applications/{client_id}/token", Need::OauthApp, reset).about_tokens(),
    Route::delete("/applications/{client_id}/token", Need::OauthApp, delete).about_tokens(),
    Route::delete("/applications/{client_id}/grant", Need::OauthApp, delete_grant).about_tokens(),
];

/// The part of a token that may be shown for identification.
const LAST_CHARACTERS: usize = 8;

fn app<'a>(call: &'a Call<'_>) -> Result<&'a OauthApp, ApiError> {
    let named =
        call.world.oauth_apps.iter().find(|app| app.client_id == call.params.get("client_id"));
    named.filter(|app| call.caller.account == AccountId::OauthApp(app.id)).ok_or(ApiError::NotFound)
}

/// Returns the position of the body's `access_token`, if it is valid and was issued by the caller.
fn issued(call: &Call<'_>) -> Result<usize, ApiError> {
    let id = app(call)?.id;
    let mut fields = Fields::parse("Application", call.body)?;
    let secret = fields.required_string("access_token");
    fields.check()?;
    let position = call.world.good_token(&secret, call.now).ok_or(ApiError::NotFound)?;
    let token = call.world.tokens.get(position).filter(|token| token.oauth_app == Some(id));
    token.map(|_| position).ok_or(ApiError::NotFound)
}

fn check(call: &mut Call<'_>) -> Outcome {
    let position = issued(call)?;
    Ok(Reply::ok(render(call, position)?))
}

/// Replaces the secret of a grant; the old one becomes invalid.
fn reset(call: &mut Call<'_>) -> Outcome {
    let position = issued(call)?;
    let old = call.world.tokens.get(position).cloned().ok_or(ApiError::NotFound)?;
    let value = format!("emu_oauth_reset_{}", call.world.next_id());
    call.world.replace_token(position, Token { value, ..(*old).clone() });
    Ok(Reply::ok(render(call, position)?))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let position = issued(call)?;
    call.world.revoke(position);
    Ok(Reply::no_content())
}

/// Revokes all tokens of the token's user for this app.
fn delete_grant(call: &mut Call<'_>) -> Outcome {
    let position = issued(call)?;
    let of = |token: &Token| (token.oauth_app, token.user);
    let grant = call.world.tokens.get(position).map(|token| of(token)).ok_or(ApiError::NotFound)?;
    for position in 0..call.world.tokens.len() {
        if call.world.tokens.get(position).is_some_and(|token| of(token) == grant) {
            call.world.revoke(position);
        }
    }
    Ok(Reply::no_content())
}

fn render(call: &Call<'_>, position: usize) -> Result<Value, ApiError> {
    let token = call.world.tokens.get(position).ok_or(ApiError::NotFound)?;
    let app = app(call)?;
    let hidden = token.value.chars().count().saturating_sub(LAST_CHARACTERS);
    let last: String = token.value.chars().skip(hidden).collect();
    Ok(json!({
        "id": position,
        "url": format!("{}/authorizations/{position}", call.urls.api),
        "scopes": token.scopes,
        "token": token.value,
        "token_last_eight": last,
        "hashed_token": hex(digest(&SHA256, token.value.as_bytes()).as_ref()),
        "app": { "client_id": app.client_id, "name": app.client_id, "url": format!("{}/applications/{}", call.urls.api, app.client_id) },
        "note": null,
        "note_url": null,
        "fingerprint": null,
        "expires_at": null,
        "user": token.user.map(|user| call.renderer().user_summary(user)),
    }))
}
