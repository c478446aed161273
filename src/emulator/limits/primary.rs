//! The primary budgets: requests per window, account and resource (SPECIFICATION, "Primary rate
//! limits").
//!
//! A window begins with the first request that costs anything and has a fixed end; nothing carries
//! over.

use std::collections::BTreeMap;
use std::time::Duration;

use super::settings::Resource;
use super::sweeper::Sweeper;
use crate::clock::Timestamp;
use crate::emulator::accounts::AccountId;

/// From this many windows on, ended ones are swept periodically.
const SWEPT_FROM: usize = 20_000;

#[derive(Clone, Copy, Debug)]
struct Window {
    used: u32,
    reset: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub resource: Resource,
    pub limit: u32,
    pub used: u32,
    /// In whole seconds.
    pub reset: Timestamp,
}

impl View {
    pub fn remaining(&self) -> u32 {
        self.limit.saturating_sub(self.used)
    }
}

#[derive(Debug, Default)]
pub struct Primary {
    windows: BTreeMap<(AccountId, Resource), Window>,
    sweeper: Sweeper<SWEPT_FROM>,
}

impl Primary {
    /// An untouched budget shows the end of a window that begins now.
    pub fn view(
        &self,
        now: Timestamp,
        account: AccountId,
        resource: Resource,
        limit: u32,
        length: Duration,
    ) -> View {
        let window = self.windows.get(&(account, resource)).filter(|window| window.reset > now);
        let (used, reset) =
            window.map_or((0, end(now, length)), |window| (window.used, window.reset));
        View { resource, limit, used: used.min(limit), reset }
    }

    /// Charges `cost` to the budget and opens a window if none is open.
    pub fn spend(
        &mut self,
        now: Timestamp,
        account: AccountId,
        resource: Resource,
        cost: u32,
        length: Duration,
    ) {
        if cost == 0 {
            return;
        }
        self.sweeper.sweep(&mut self.windows, |window| window.reset <= now);
        let window = self
            .windows
            .entry((account, resource))
            .or_insert(Window { used: 0, reset: Timestamp::EPOCH });
        if window.reset <= now {
            *window = Window { used: 0, reset: end(now, length) };
        }
        window.used = window.used.saturating_add(cost);
    }

    pub fn windows(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (AccountId, Resource, u32, Timestamp)> {
        self.windows
            .iter()
            .filter(move |(_, window)| window.reset > now)
            .map(|((account, resource), window)| (*account, *resource, window.used, window.reset))
    }
}

/// `x-ratelimit-reset` has no fractions, so windows end on whole seconds.
fn end(now: Timestamp, length: Duration) -> Timestamp {
    Timestamp::from_secs((now + length).as_secs_ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const ACCOUNT: AccountId = AccountId::User(1);

    #[test]
    fn a_window_begins_with_its_first_use_and_ends_after_its_length() {
        let mut primary = Primary::default();
        let start = Timestamp::from_millis(1_000_500);
        primary.spend(start, ACCOUNT, Resource::CORE, 1, HOUR);
        let view = primary.view(start + Duration::from_secs(10), ACCOUNT, Resource::CORE, 50, HOUR);
        assert_eq!((view.used, view.remaining()), (1, 49));
        assert_eq!(view.reset, Timestamp::from_secs(1_001 + 3_600));
        assert_eq!(primary.view(view.reset, ACCOUNT, Resource::CORE, 50, HOUR).used, 0);
    }

    #[test]
    fn a_free_request_opens_no_window() {
        let mut primary = Primary::default();
        primary.spend(Timestamp::from_secs(1), ACCOUNT, Resource::CORE, 0, HOUR);
        assert_eq!(primary.windows(Timestamp::from_secs(1)).count(), 0);
    }

    #[test]
    fn each_resource_has_its_own_window() {
        let mut primary = Primary::default();
        let now = Timestamp::from_secs(1);
        primary.spend(now, ACCOUNT, Resource::SEARCH, 3, Duration::from_mins(1));
        assert_eq!(primary.view(now, ACCOUNT, Resource::CORE, 50, HOUR).used, 0);
        assert_eq!(primary.view(now, ACCOUNT, Resource::SEARCH, 30, HOUR).used, 3);
    }
}
