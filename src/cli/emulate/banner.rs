//! The greeting of `weir emulate`: its address, its tokens, and further help.

use std::fmt::Write as _;

use crate::emulator::Handle;

/// Formats the address and the tokens by kind. The tokens open only this emulator, so they may be
/// shown.
pub fn banner(handle: &Handle) -> String {
    let address = format!("http://{}", handle.addr());
    // Writing to a string cannot fail.
    let mut text = format!("listening on {address}\n");
    let (tokens, recorded, apps) = handle.with_emulator(|emulator| {
        (emulator.tokens(), emulator.recorded_exchanges(), emulator.app_ids())
    });
    if let Some(recorded) = recorded {
        let _ = writeln!(text, "replaying {recorded} recorded exchanges; any token is accepted");
    } else {
        text.push_str("tokens, for `Authorization: Bearer TOKEN`:\n");
        for token in tokens {
            let _ = writeln!(
                text,
                "  {:<13} {:<38} {} ({})",
                token.kind, token.token, token.account, token.note
            );
        }
        for (position, app) in apps.iter().enumerate() {
            let _ = writeln!(
                text,
                "app {app} signs its JWTs with: curl -s {address}/_emulator/world | jq -r '.apps[{position}].private_key'"
            );
        }
        let _ = writeln!(text, "everything else in its world: {address}/_emulator/world");
    }
    let _ = writeln!(
        text,
        "what was asked, and what it cost: {address}/_emulator/transcript, {address}/_emulator/books"
    );
    let _ = writeln!(
        text,
        "limits, faults and gates for tests: {address}/_emulator/limits, …/faults, …/gates; another world: …/seed, …/reset"
    );
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;
    use crate::clock::Clock;
    use crate::emulator::{Emulator, Options, Recording, Server};

    async fn shown(make: fn(&Clock) -> Emulator) -> (String, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let clock = Clock::system();
        let handle = Server::start(listener, make(&clock), clock, Duration::ZERO);
        let (text, address) = (banner(&handle), handle.addr().to_string());
        handle.shutdown().await;
        (text, address)
    }

    #[tokio::test]
    async fn the_banner_shows_the_address_and_the_tokens_by_kind() {
        let (text, address) = shown(|clock| Emulator::new(Options::default(), clock.now())).await;
        assert!(text.starts_with(&format!("listening on http://{address}")));
        for kind in
            ["classic", "fine-grained", "oauth", "app-user", "installation", "workflow", "basic"]
        {
            assert!(text.contains(&format!("  {kind}")), "{kind}");
        }
        assert!(text.contains("app 301 signs its JWTs with: curl "), "{text}");
        assert!(text.contains(&format!("http://{address}/_emulator/world\n")), "{text}");
    }

    #[tokio::test]
    async fn the_banner_of_a_replay_shows_no_tokens() {
        let (text, _) = shown(|clock| {
            Emulator::replaying(Options::default(), Recording::default(), clock.now())
        })
        .await;
        assert!(
            text.contains("replaying 0 recorded exchanges") && !text.contains("tokens,"),
            "{text}"
        );
    }
}
