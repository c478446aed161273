//! Authentication: from the `Authorization` header to the caller (SPECIFICATION, "Credentials").

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::jwt;
use super::pace::Pace;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::world::World;

/// The response is a 401, and the address it came from pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCredentials;

pub fn caller(
    world: &World,
    headers: &HeaderMap,
    peer: IpAddr,
    now: Timestamp,
    pace: Pace,
) -> Result<Caller, BadCredentials> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(Caller::anonymous(peer)) };
    if values.next().is_some() {
        return Err(BadCredentials);
    }
    let text = value.to_str().map_err(|_| BadCredentials)?;
    let (scheme, secret) = text.trim().split_once(' ').ok_or(BadCredentials)?;
    let secret = secret.trim();
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" if jwt::is_jwt(secret) => app(world, secret, now, pace),
        "bearer" => token(world, secret, now),
        // A JSON web token must use `Bearer`; the scheme `token` is for other credentials.
        "token" if !jwt::is_jwt(secret) => token(world, secret, now),
        "basic" => {
            let decoded = STANDARD.decode(secret).map_err(|_| BadCredentials)?;
            let text = String::from_utf8(decoded).map_err(|_| BadCredentials)?;
            let (user, password) = text.split_once(':').ok_or(BadCredentials)?;
            basic(world, user, password, now)
        }
        _ => Err(BadCredentials),
    }
}

fn app(world: &World, jwt: &str, now: Timestamp, pace: Pace) -> Result<Caller, BadCredentials> {
    let key_of = |id: u64| world.app(id).map(|app| app.public_key.as_slice());
    let app = jwt::app_of(jwt, now, key_of)
        .or_else(|_| jwt::app_of(jwt, pace.machine_time(now), key_of))?;
    Ok(Caller { account: AccountId::App(app), token: None })
}

fn token(world: &World, secret: &str, now: Timestamp) -> Result<Caller, BadCredentials> {
    let position = world.good_token(secret, now).ok_or(BadCredentials)?;
    let token = world.tokens.get(position).ok_or(BadCredentials)?;
    Ok(Caller { account: world.payer(token), token: Some((position, token.clone())) })
}

/// Many clients send a token as password or user name.
fn basic(
    world: &World,
    user: &str,
    password: &str,
    now: Timestamp,
) -> Result<Caller, BadCredentials> {
    let app =
        world.oauth_apps.iter().find(|app| app.client_id == user && app.client_secret == password);
    if let Some(app) = app {
        return Ok(Caller { account: AccountId::OauthApp(app.id), token: None });
    }
    token(world, password, now).or_else(|_| token(world, user, now))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const PACE: Pace = Pace { started: NOW, factor: 1.0 };

    fn authenticate(authorization: &str) -> Result<Caller, BadCredentials> {
        let mut headers = HeaderMap::new();
        headers
            .insert(AUTHORIZATION, HeaderValue::from_str(authorization).expect("a header value"));
        caller(&seed::world(&Options::default(), NOW), &headers, PEER, NOW, PACE)
    }

    fn basic(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }

    #[test]
    fn bearer_and_token_are_accepted_in_any_case() {
        for scheme in ["Bearer", "bearer", "token", "Token"] {
            let caller = authenticate(&format!("{scheme} emu_classic_ada_all_scopes"))
                .expect("a known token");
            assert_eq!(
                caller.token().map(|token| token.kind),
                Some(crate::api::TokenKind::Classic)
            );
        }
    }

    #[test]
    fn a_json_web_token_must_use_bearer() {
        assert_eq!(authenticate("token aaa.bbb.ccc").unwrap_err(), BadCredentials);
    }

    #[test]
    fn a_request_without_a_credential_is_anonymous() {
        let caller = caller(&World::default(), &HeaderMap::new(), PEER, NOW, PACE)
            .expect("anonymous is allowed");
        assert_eq!(caller.account, AccountId::Anonymous(PEER));
    }

    #[test]
    fn an_oauth_app_uses_client_id_and_secret_as_basic_credentials() {
        let caller = authenticate(&basic("emu_client_id", "emu_client_secret"))
            .expect("the app of the seed");
        assert!(matches!(caller.account, AccountId::OauthApp(_)));
        assert_eq!(authenticate(&basic("emu_client_id", "wrong")).unwrap_err(), BadCredentials);
    }

    #[test]
    fn a_token_may_be_the_password_or_the_user_of_basic() {
        assert!(authenticate(&basic("ada", "emu_classic_ada_all_scopes")).is_ok());
        assert!(authenticate(&basic("emu_classic_ada_all_scopes", "x-oauth-basic")).is_ok());
    }

    #[test]
    fn unknown_expired_and_malformed_credentials_are_bad() {
        for value in [
            "Bearer nobody",
            "Bearer emu_classic_expired",
            "Bearer emu_classic_revoked",
            "Negotiate x",
            "Bearer",
            "Basic !!!",
            &basic("a", "b"),
        ] {
            assert_eq!(authenticate(value).unwrap_err(), BadCredentials, "{value}");
        }
    }
}
