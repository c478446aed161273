//! Access for simulations without control requests: extra callers and the state of all budgets.
//!
//! No method here changes how a request is answered.

use super::emulator::Emulator;
use crate::clock::Timestamp;
use crate::emulator::seed::{people, tokens};
use crate::emulator::state::transcript::Entry;
use crate::emulator::world::User;

/// A window of a primary budget in the upstream's own state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetWindow {
    /// The name of the account that pays.
    pub account: String,
    /// The resource of the budget.
    pub resource: &'static str,
    /// Units used.
    pub used: u32,
    /// Units the window allows.
    pub limit: u32,
    /// The end of the window.
    pub reset: Timestamp,
}

impl Emulator {
    /// Adds a user, an owner of the seed world's first organisation, with this many classic tokens
    /// of all scopes. All share its one budget.
    pub fn enrol(&mut self, login: &str, tokens: usize, now: Timestamp) -> Vec<String> {
        let world = &mut self.state.world;
        let id = world.next_id();
        world.add_user(User::new(id, login.to_owned(), login.to_owned(), now));
        if let Some(organization) = world.organizations.get_mut(&people::ACME) {
            organization.members.insert(id);
            organization.owners.insert(id);
        }
        let value = |number: usize| format!("emu_enrolled_{id}_{number}");
        let values: Vec<String> = (0..tokens).map(value).collect();
        for value in &values {
            world.add_token(tokens::all_scopes(value, id).noted("of a simulated account"));
        }
        values
    }

    /// Limits the transcript to this many of the latest requests.
    pub fn keep_transcript(&mut self, entries: usize) {
        self.state.transcript.keep(entries);
    }

    /// Returns the latest request of the transcript.
    #[must_use]
    pub fn latest(&self) -> Option<&Entry> {
        self.state.transcript.last()
    }

    /// Lists the windows of primary budgets that were open at `at`.
    #[must_use]
    pub fn budget_windows(&self, at: Timestamp) -> Vec<BudgetWindow> {
        let state = &self.state;
        let of = |(account, resource, used, reset)| BudgetWindow {
            account: state.world.account_name(account),
            resource: crate::emulator::limits::settings::Resource::name(resource),
            used,
            limit: state.view(at, account, resource).limit,
            reset,
        };
        state.primary.windows(at).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use bytes::Bytes;
    use http::{Request, StatusCode};

    use super::*;
    use crate::emulator::seed::options::Options;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn tokens_of_an_enrolled_user_share_one_budget() {
        let mut emulator = Emulator::new(Options::default(), NOW);
        emulator.keep_transcript(1);
        for token in emulator.enrol("a-bot", 2, NOW) {
            let request = Request::get("/repos/acme/widgets")
                .header("authorization", format!("Bearer {token}"))
                .body(Bytes::new());
            let answer = emulator.respond(
                NOW,
                &request.expect("a request"),
                IpAddr::V4(Ipv4Addr::LOCALHOST),
            );
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(
                emulator.latest().map(|entry| (entry.account.as_str(), entry.cost)),
                Some(("a-bot", 1))
            );
        }
        let windows = emulator.budget_windows(NOW);
        assert_eq!(
            windows
                .iter()
                .map(|window| (window.account.as_str(), window.used, window.limit))
                .collect::<Vec<_>>(),
            [("a-bot", 2, 5_000)]
        );
        assert_eq!(emulator.transcript(0).len(), 1, "only the last is kept");
    }
}
