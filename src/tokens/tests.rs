//! The choice of a credential for a request, and the health of all credentials.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method};
use secrecy::SecretString;

use super::bench::PAUSE_MIN;
use super::*;
use crate::api::{Dialect, Table};
use crate::config;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const BOT: AccountId = AccountId(0);
const INSTALLED: AccountId = AccountId(1);
const ANONYMOUS: AccountId = AccountId(2);
const APP: AccountId = AccountId(3);

/// A user with tokens of several kinds, an installation, an anonymous account, and the app's own.
const CONFIG: &str = r#"
[upstream]
url = "https://api.example.com"
[[accounts]]
name = "bot"
kind = "user"
[[accounts]]
name = "installed"
kind = "installation"
[[accounts]]
name = "nobody"
kind = "anonymous"
[[tokens]]
account = "bot"
kind = "app-user"
secret = { value = "s3cret-of-an-app" }
[[tokens]]
account = "bot"
kind = "classic"
secret = { value = "s3cret-classic" }
[[tokens]]
account = "bot"
kind = "fine-grained"
secret = { value = "s3cret-fine" }
[[apps]]
app_id = 301
private_key = { env = "KEY" }
installations = [{ id = 311, account = "installed" }]
[[clients]]
name = "ci"
key_sha256 = "0000000000000000000000000000000000000000000000000000000000000001"
"#;

impl Tokens {
    /// Takes the first usable credential in order, for a request that can be repeated.
    fn pick(
        &self,
        account: AccountId,
        accepted: TokenKinds,
        preferred: Option<TokenId>,
        now: Timestamp,
    ) -> Option<Credential> {
        self.pick_for(account, accepted, preferred, ProbeReadiness::Willing, now)
    }

    fn pick_for(
        &self,
        account: AccountId,
        accepted: TokenKinds,
        preferred: Option<TokenId>,
        readiness: ProbeReadiness,
        now: Timestamp,
    ) -> Option<Credential> {
        let order = self.order(account, accepted, preferred, readiness, now);
        order.into_iter().find_map(|slot| self.take(slot, now))
    }

    fn has_kind(&self, account: AccountId, accepted: TokenKinds) -> bool {
        self.fitting(account, accepted).next().is_some()
    }
}

/// Reads a config on a machine where every variable but those of proxies and of OpenTelemetry holds
/// a key.
fn parsed(text: &str) -> config::Config {
    let is_key =
        |name: &str| !name.to_ascii_lowercase().ends_with("_proxy") && !name.starts_with("OTEL_");
    let key = include_str!("../emulator/seed/app_key.pem");
    let key = |name: &str| is_key(name).then(|| key.to_owned());
    config::parse(text, "test", &key, Path::new(".")).unwrap_or_else(|faults| panic!("{faults}"))
}

fn tokens() -> Tokens {
    Tokens::new(&parsed(CONFIG))
}

fn only(kinds: &str) -> TokenKinds {
    TokenKinds::parse(kinds).expect("kinds")
}

fn picked(
    tokens: &Tokens,
    account: AccountId,
    kinds: TokenKinds,
    now: Timestamp,
) -> Option<Source> {
    tokens.pick(account, kinds, None, now).map(|credential| credential.source)
}

fn configured(position: usize) -> Source {
    Source::Configured(position)
}

fn reject(tokens: &Tokens, credential: &Credential, now: Timestamp) -> Rejection {
    tokens.rejected(credential, now, &HeaderMap::new(), "401 Bad credentials")
}

fn mint(tokens: &Tokens, secret: &str, expires: Timestamp) -> Result<(), &'static str> {
    let minting = tokens.begin_due(NOW).pop().expect("a mint is due");
    tokens.minted(minting, &SecretString::from(secret.to_owned()), expires, NOW, 0.5)
}

#[test]
fn a_users_own_tokens_go_before_those_of_apps() {
    let tokens = tokens();
    assert_eq!(picked(&tokens, BOT, TokenKinds::UNKNOWN, NOW), Some(configured(1)));
    assert_eq!(
        picked(&tokens, BOT, only("app-user,!classic,!fine-grained"), NOW),
        Some(configured(0))
    );
    let preferred = tokens
        .pick(BOT, TokenKinds::UNKNOWN, Some(TokenId(2)), NOW)
        .map(|credential| credential.token);
    assert_eq!(preferred, Some(TokenId(2)), "whose validators are there");
}

#[test]
fn a_refused_token_is_probed_by_one_request_after_its_pause() {
    let tokens = tokens();
    let refused = tokens.pick(BOT, TokenKinds::UNKNOWN, None, NOW).expect("a token");
    assert_eq!(reject(&tokens, &refused, NOW), Rejection::Benched);
    assert_eq!(picked(&tokens, BOT, TokenKinds::UNKNOWN, NOW), Some(configured(2)));
    let later = NOW + PAUSE_MIN;
    let reluctant = tokens
        .pick_for(BOT, TokenKinds::UNKNOWN, None, ProbeReadiness::Reluctant, later)
        .expect("a token");
    assert_eq!(reluctant.source, configured(2), "its body cannot be sent again");
    let probe = tokens.pick(BOT, TokenKinds::UNKNOWN, None, later).expect("a token");
    assert_eq!(probe.source, configured(1));
    assert_eq!(
        picked(&tokens, BOT, TokenKinds::UNKNOWN, later),
        Some(configured(2)),
        "the others keep away"
    );
    tokens.accepted(&probe);
    assert_eq!(picked(&tokens, BOT, TokenKinds::UNKNOWN, later), Some(configured(1)));
}

#[test]
fn an_apps_jwt_serves_the_routes_that_take_it_and_no_others() {
    let tokens = tokens();
    assert!(tokens.has_kind(APP, only("jwt,!*")) && !tokens.has_kind(APP, TokenKinds::UNKNOWN));
    assert!(!tokens.has_kind(BOT, only("jwt,!*")) && !tokens.has_kind(ANONYMOUS, only("jwt,!*")));
    assert_eq!(picked(&tokens, APP, only("jwt,!*"), NOW), Some(Source::App(301)));
}

#[test]
fn the_anonymous_account_reads_only_public_data() {
    let tokens = tokens();
    let credential =
        tokens.pick(ANONYMOUS, TokenKinds::UNKNOWN, None, NOW).expect("nothing is needed");
    assert!(credential.authorization.is_none());
    assert_eq!(tokens.account_of(credential.token), Some(ANONYMOUS), "validators may be its own");
    let table = Table::embedded(Dialect::Service);
    let may_carry = |method: Method, path: &str| {
        tokens.may_carry(ANONYMOUS, Wanted::by(table.classify(&method, path).endpoint))
    };
    for path in [
        "/repos/acme/widgets",
        "/repos/acme/widgets/issues",
        "/users/ada",
        "/search/issues",
        "/meta",
    ] {
        assert!(may_carry(Method::GET, path), "{path}");
    }
    for path in ["/user", "/notifications", "/app", "/orgs/acme/actions/runners"] {
        assert!(!may_carry(Method::GET, path), "{path}");
    }
    assert!(
        !may_carry(Method::POST, "/repos/acme/widgets/issues")
            && !may_carry(Method::POST, "/graphql")
    );
    assert!(tokens.may_carry(
        BOT,
        Wanted::by(table.classify(&Method::POST, "/repos/acme/widgets/issues").endpoint)
    ));
}

#[test]
fn a_renewed_token_has_a_new_id_and_the_old_id_is_unknown() {
    let tokens = tokens();
    assert!(
        !tokens.is_usable(INSTALLED, TokenKinds::UNKNOWN, NOW)
            && tokens.has_kind(INSTALLED, TokenKinds::UNKNOWN)
    );
    mint(&tokens, "s3cret-minted", NOW + Duration::from_hours(1)).expect("it is good");
    let first = tokens.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).expect("minted");
    assert_eq!(tokens.account_of(first.token), Some(INSTALLED));
    assert_eq!(reject(&tokens, &first, NOW), Rejection::Replaced);
    assert_eq!(reject(&tokens, &first, NOW), Rejection::Old);
    mint(&tokens, "s3cret-again", NOW + Duration::from_hours(1)).expect("it is good");
    let second = tokens.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).expect("minted anew");
    assert_ne!(first.token, second.token);
    assert_eq!(
        (tokens.account_of(first.token), tokens.account_of(second.token)),
        (None, Some(INSTALLED))
    );
}

#[test]
fn a_minted_token_that_cannot_be_used_is_an_error() {
    for (secret, expires) in [("", NOW + PAUSE_MIN), ("a\nb", NOW + PAUSE_MIN), ("good", NOW)] {
        let tokens = tokens();
        mint(&tokens, secret, expires).expect_err("it cannot be used");
        assert!(!tokens.is_usable(INSTALLED, TokenKinds::UNKNOWN, NOW));
        assert!(tokens.lack(&[INSTALLED], TokenKinds::UNKNOWN, NOW).is_some_and(|lack| lack.cause
            == Cause::Passing
            && lack.reason.contains("the minted token")));
    }
}

#[test]
fn the_end_of_a_token_is_read_by_the_upstreams_clock() {
    let tokens = tokens();
    let mut headers = HeaderMap::new();
    // An hour behind our clock: 1,800,000,000 is Fri, 15 Jan 2027 08:00:00.
    headers.insert(http::header::DATE, HeaderValue::from_static("Fri, 15 Jan 2027 07:00:00 GMT"));
    (0..2).for_each(|_| tokens.observe(&mut headers, NOW, Duration::ZERO));
    mint(&tokens, "s3cret", NOW).expect("it has an hour to go there");
    assert!(tokens.is_usable(INSTALLED, TokenKinds::UNKNOWN, NOW + Duration::from_mins(59)));
    assert!(!tokens.is_usable(INSTALLED, TokenKinds::UNKNOWN, NOW + Duration::from_mins(61)));
}

#[test]
fn a_refused_app_stops_the_minting_for_its_installations() {
    let tokens = tokens();
    let jwt = tokens.pick(APP, only("jwt,!*"), None, NOW).expect("a JWT");
    assert_eq!(reject(&tokens, &jwt, NOW), Rejection::Benched);
    assert!(tokens.begin_due(NOW).is_empty() && tokens.next_due(NOW) == Some(NOW + PAUSE_MIN));
    assert!(!tokens.want(&[INSTALLED], TokenKinds::UNKNOWN, NOW, NOW + Duration::from_secs(30)));
    let lack = tokens.lack(&[INSTALLED], TokenKinds::UNKNOWN, NOW).expect("a reason");
    assert_eq!(
        lack.reason,
        "installation 311: the upstream does not accept app 301: 401 Bad credentials"
    );
    assert_eq!(lack.cause, Cause::Refused);
}

#[test]
fn health_names_every_credential_and_shows_no_secret() {
    let tokens = tokens();
    mint(&tokens, "s3cret-minted", NOW + Duration::from_hours(1)).expect("it is good");
    let refused = tokens.pick(BOT, TokenKinds::UNKNOWN, None, NOW).expect("a token");
    reject(&tokens, &refused, NOW);
    let health = tokens.health(NOW);
    let shown: Vec<_> = health
        .iter()
        .map(|token| format!("{} {} {}", token.account.0, token.token, token.state.name()))
        .collect();
    assert_eq!(
        shown,
        [
            "0 1 benched",
            "0 2 healthy",
            "0 0 healthy",
            "1 installation 311 healthy",
            "2 anonymous healthy",
            "3 app 301 healthy"
        ]
    );
    assert_eq!(health[0].message.as_deref(), Some("401 Bad credentials"));
    let credentials: Vec<_> = [BOT, INSTALLED]
        .into_iter()
        .map(|account| tokens.pick(account, TokenKinds::UNKNOWN, None, NOW))
        .collect();
    assert!(!format!("{health:?}{credentials:?}").contains("s3cret"));
}

#[test]
fn a_renewed_token_keeps_its_slot() {
    let tokens = tokens();
    let minted = || {
        mint(&tokens, "s3cret-minted", NOW + Duration::from_hours(1)).expect("it is good");
        tokens.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).expect("minted")
    };
    let first = minted();
    reject(&tokens, &first, NOW);
    let second = minted();
    assert_ne!(first.token, second.token);
    assert_eq!(first.token.slot(), second.token.slot(), "what was learned of its rights stays");
    assert_eq!(
        tokens.fitting(INSTALLED, TokenKinds::UNKNOWN).collect::<Vec<_>>(),
        [first.token.slot()]
    );
}

#[test]
fn an_account_is_unhealthy_while_a_token_is_unusable() {
    let tokens = tokens();
    assert_eq!(tokens.unhealthy_accounts(NOW), [INSTALLED], "which has no token yet");
    mint(&tokens, "s3cret-minted", NOW + Duration::from_hours(1)).expect("it is good");
    assert!(tokens.unhealthy_accounts(NOW).is_empty());
    let refused = tokens.pick(BOT, TokenKinds::UNKNOWN, None, NOW).expect("a token");
    reject(&tokens, &refused, NOW);
    assert_eq!(tokens.unhealthy_accounts(NOW), [BOT]);
    let due = NOW + PAUSE_MIN;
    assert!(tokens.unhealthy_accounts(due).is_empty(), "it may be tried");
    let probe = tokens.pick(BOT, TokenKinds::UNKNOWN, None, due).expect("a token");
    assert_eq!(tokens.unhealthy_accounts(due), [BOT], "by one");
    drop(probe);
    assert!(tokens.unhealthy_accounts(due).is_empty(), "it brought no verdict");
    let probe = tokens.pick(BOT, TokenKinds::UNKNOWN, None, due).expect("a token");
    tokens.accepted(&probe);
    assert!(tokens.unhealthy_accounts(due).is_empty());
    assert_eq!(
        tokens.unhealthy_accounts(NOW + Duration::from_hours(1)),
        [INSTALLED],
        "whose token has ended"
    );
}

#[test]
fn a_token_without_enough_time_left_is_a_failed_mint() {
    let tokens = tokens();
    assert!(mint(&tokens, "s3cret", NOW + Duration::from_secs(3)).is_err());
    assert!(tokens.want(&[INSTALLED], TokenKinds::UNKNOWN, NOW, NOW + Duration::from_mins(1)));
    assert!(tokens.begin_due(NOW).is_empty(), "or it would be minted without a pause");
}

#[test]
fn a_shorter_lived_renewal_is_unhealthy_at_its_own_end() {
    let tokens = tokens();
    mint(&tokens, "s3cret", NOW + Duration::from_hours(1)).expect("taken");
    assert!(
        tokens.unhealthy_accounts(NOW).is_empty()
            && tokens.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).is_some()
    );
    let later = NOW + Duration::from_mins(52);
    let renewal = tokens.begin_due(later).pop().expect("its renewal is due");
    let end = later + Duration::from_mins(1);
    tokens
        .minted(renewal, &SecretString::from("s3cret-short".to_owned()), end, later, 0.5)
        .expect("taken");
    assert!(tokens.unhealthy_accounts(later).is_empty());
    assert_eq!(tokens.unhealthy_accounts(end), [INSTALLED]);
}

#[test]
fn every_end_of_an_apps_probe_wakes_the_minting_task() {
    type End = fn(&Tokens, Credential, Timestamp);
    let later = NOW + PAUSE_MIN;
    let ends: [End; 3] = [
        |_, probe, _| drop(probe),
        |tokens, probe, now| drop((reject(tokens, &probe, now), probe)),
        |tokens, probe, _| tokens.accepted(&probe),
    ];
    for end in ends {
        let tokens = tokens();
        let as_app = |now| tokens.pick(APP, only("jwt,!*"), None, now).expect("a JWT");
        reject(&tokens, &as_app(NOW), NOW);
        let probe = as_app(later);
        let notified = tokens.due_changed();
        assert_eq!(tokens.next_due(later), None, "while it is tried nobody knows");
        end(&tokens, probe, later);
        assert!(notified.now_or_never().is_some());
    }
}

#[test]
fn a_reload_keeps_credential_states_and_reuses_no_slot() {
    let old = parsed(CONFIG);
    let before = Tokens::new(&old);
    let classic = before.pick(BOT, TokenKinds::UNKNOWN, None, NOW).expect("a token");
    reject(&before, &classic, NOW);
    mint(&before, "s3cret-minted", NOW + Duration::from_hours(1)).expect("it can be used");
    let minted = before.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).expect("a token").token;
    // The first token goes, so that the others change position; the last one is replaced.
    let first = "[[tokens]]\naccount = \"bot\"\nkind = \"app-user\"\nsecret = { value = \"s3cret-of-an-app\" }\n";
    let new = parsed(&CONFIG.replace(first, "").replace("s3cret-fine", "s3cret-other"))
        .reloaded_over(&old)
        .config;
    let after = before.with_config(&old, &new);
    let other = after.pick(BOT, TokenKinds::UNKNOWN, None, NOW).expect("a token");
    assert_eq!(
        (other.source, other.token.slot().0 >= 3),
        (configured(1), true),
        "the classic one still rests, and this one is new"
    );
    assert_eq!(after.account_of(TokenId(0)), None, "what is gone is nobody's");
    assert_eq!(
        after.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).map(|credential| credential.token),
        Some(minted)
    );
    assert_eq!(after.unhealthy_accounts(NOW), [BOT]);
    let installed = before.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).expect("a token");
    reject(&before, &installed, NOW);
    assert_eq!(
        after.unhealthy_accounts(NOW),
        [BOT, INSTALLED],
        "also of what an earlier request is told"
    );
    assert!(after.pick(INSTALLED, TokenKinds::UNKNOWN, None, NOW).is_none());
    assert_eq!(
        after
            .pick(ANONYMOUS, TokenKinds::UNKNOWN, None, NOW)
            .and_then(|none| before.account_of(none.token)),
        Some(ANONYMOUS)
    );
    // Requests of both configs share the state.
    let probe = before
        .pick(BOT, only("classic,!fine-grained,!app-user"), None, NOW + PAUSE_MIN)
        .expect("a trial");
    before.accepted(&probe);
    assert_eq!(
        after
            .pick(BOT, TokenKinds::UNKNOWN, None, NOW + PAUSE_MIN)
            .map(|credential| credential.source),
        Some(configured(0))
    );
}
