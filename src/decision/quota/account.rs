//! One account in the ledger: its primary windows, its secondary limits and its cooldown.
//!
//! All of them are checked together and settled together; each has a module of its own.

use http::StatusCode;

use super::account_choice::Offer;
use super::limits::block::{Block, both};
use super::limits::cooldown::{Cooldown, Named};
use super::limits::primary::{
    Charge, Headroom, ObservedAnswer, PrimaryWindow, Terms, WHOLE, WOBBLE, WindowDemand,
};
use super::limits::secondary::{Secondary, TICK, Weight};
use super::parts::Parts;
use super::ranking::{Availability, Sums};
use super::{FREE, Lease, OVERFLOW};
use crate::api::{RateHeaders, ResourceName, UpstreamLimit, UpstreamLimitKind};
use crate::clock::Timestamp;
use crate::decision::silence::Silence;
use crate::decision::types::{
    AccountSettings, ClientId, LeaseId, LimitDenied, LimitKind, Pace, Priority, WriteSpacing,
};

/// Primary windows of one account. Ours: four times the known resources; further resources share
/// the last window.
pub const WINDOWS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowIndex(u8);

const _: () = assert!(WINDOWS_MAX < u8::MAX as usize);

impl WindowIndex {
    pub fn of(index: usize) -> Self {
        Self(u8::try_from(index).unwrap_or(u8::MAX))
    }

    pub fn index(self) -> usize {
        self.0.into()
    }
}

#[derive(Debug)]
pub struct Account {
    pub settings: AccountSettings,
    pub terms: Terms,
    /// In the order of first use. Windows are never removed, so a lease can name its window by
    /// index.
    pub windows: Vec<(ResourceName, PrimaryWindow)>,
    pub secondary: Secondary,
    pub cooldown: Cooldown,
    /// All requests without the head of an answer.
    pub silence: Silence,
    /// What this replica holds of the account; `None` where it is the only one.
    pub parts: Option<Box<Parts>>,
}

impl Account {
    pub fn new(
        settings: AccountSettings,
        terms: Terms,
        secondary: Secondary,
        parts: Option<Box<Parts>>,
    ) -> Self {
        Self {
            parts,
            settings,
            terms,
            windows: Vec::new(),
            secondary,
            cooldown: Cooldown::default(),
            silence: Silence::default(),
        }
    }

    pub fn offer(
        &mut self,
        now: Timestamp,
        weight: Weight,
        wanted: WindowDemand,
        resource: &ResourceName,
    ) -> Result<Offer, Block> {
        let closed = self.cooldown.until(now).map(|until| Block::at(LimitKind::Cooldown, until));
        let primary = primary_headroom(now, wanted, self.terms, self.budget(resource));
        let is_plain_yes =
            closed.is_none() && primary.is_ok() && self.secondary.admits(now, weight);
        if !is_plain_yes
            && let Some(block) =
                both(both(closed, primary.err()), self.secondary.block(now, weight))
        {
            return Err(block);
        }
        if let Some(block) = self.block_by_part(now, weight, wanted, resource) {
            return Err(block);
        }
        Ok(self.offer_of(now, primary.map_or(0, |headroom| headroom.share)))
    }

    /// Returns true if neither the budget nor a pause after a refusal denies the request.
    pub fn has_budget(
        &self,
        now: Timestamp,
        wanted: WindowDemand,
        resource: &ResourceName,
    ) -> bool {
        let terms = Terms { pace: Pace::Burst, ..self.terms };
        self.cooldown.until(now).is_none()
            && primary_headroom(now, wanted, terms, self.budget(resource)).is_ok()
    }

    /// Returns true if a request waits for more than this replica's parts.
    pub fn is_short(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.is_short())
    }

    /// Block of a request that the account's limits admit, beyond this replica's part of them.
    fn block_by_part(
        &mut self,
        now: Timestamp,
        weight: Weight,
        wanted: WindowDemand,
        resource: &ResourceName,
    ) -> Option<Block> {
        // Usually there are no other replicas.
        self.parts.as_ref()?;
        let at = self.find_window(resource);
        let window = at.and_then(|at| self.windows.get(at.index())).map(|(_, window)| window);
        let parts = self.parts.as_mut()?;
        parts.block(now, weight, wanted, resource, &mut self.secondary, window)
    }

    fn offer_of(&self, now: Timestamp, share: u32) -> Offer {
        Offer { share, in_flight: self.secondary.slots.in_use(now) }
    }

    /// State for a resource, independent of a request's weight beyond one unit.
    pub fn availability(&self, now: Timestamp, resource: &ResourceName) -> Availability {
        let window = self.window(resource);
        let sums = self.sums(now, window, resource);
        // A window that ends changes the view, whatever else closes the account.
        let over =
            if sums.reset == Timestamp::FAR_FUTURE { sums.reset } else { sums.reset + WOBBLE };
        let (rank, until, wake) = match self.closure(now, window.filter(|_| is_counted(resource))) {
            Ok(headroom) => {
                let slot = self.secondary.slots.next_grace_end(now);
                let wake = headroom.until.into_iter().chain(slot).min();
                (self.offer_of(now, headroom.share).rank(), Timestamp::FAR_FUTURE, wake)
            }
            Err(block) => (0, block.end(), block.wake),
        };
        let wake = wake.unwrap_or(Timestamp::FAR_FUTURE).min(over).max(now + TICK);
        Availability { rank, until, wake, sums }
    }

    /// Headroom of a request of one unit in this window, as far as general limits are concerned.
    pub fn closure(
        &self,
        now: Timestamp,
        budget: Option<&PrimaryWindow>,
    ) -> Result<Headroom, Block> {
        let closed = self.cooldown.until(now).map(|until| Block::at(LimitKind::Cooldown, until));
        let full = self.secondary.slots.block(now);
        let wanted = WindowDemand { cost: 1, unproven: 0, priority: Priority::Normal };
        let primary = primary_headroom(now, wanted, self.terms, budget);
        match both(both(closed, full), primary.err()) {
            None => primary,
            Some(block) => Err(block),
        }
    }

    pub fn sums(
        &self,
        now: Timestamp,
        window: Option<&PrimaryWindow>,
        resource: &ResourceName,
    ) -> Sums {
        let figures = self.figures(now, window, resource);
        let held = figures.leased.saturating_add(self.settings.reserve);
        Sums {
            limit: figures.limit.into(),
            free: figures.remaining.saturating_sub(held).into(),
            reset: figures.reset.unwrap_or(Timestamp::FAR_FUTURE),
        }
    }

    /// Window that must have headroom for a request; `None` denies nothing.
    pub fn budget(&self, resource: &ResourceName) -> Option<&PrimaryWindow> {
        self.window(resource).filter(|_| is_counted(resource))
    }

    pub fn window(&self, resource: &ResourceName) -> Option<&PrimaryWindow> {
        self.windows.get(self.find_window(resource)?.index()).map(|(_, window)| window)
    }

    /// Returns true if the budget of some resource is used up.
    pub fn is_used_up(&self, now: Timestamp) -> bool {
        self.windows.iter().any(|(_, window)| window.is_used_up(now, self.terms))
    }

    /// Time since which requests wait for the answer that shows an unknown window; the earliest.
    pub fn probed_since(&self, now: Timestamp) -> Option<Timestamp> {
        self.windows.iter().filter_map(|(_, window)| window.probed_since(now)).min()
    }

    /// Index of a resource's window, or of the shared one, if it exists.
    fn find_window(&self, resource: &ResourceName) -> Option<WindowIndex> {
        let found = self.windows.iter().position(|(name, _)| name == resource);
        found
            .or_else(|| (self.windows.len() > WINDOWS_MAX).then_some(WINDOWS_MAX))
            .map(WindowIndex::of)
    }

    /// Index of a resource's window, created on first use.
    pub fn window_index(&mut self, resource: &ResourceName) -> WindowIndex {
        self.find_window(resource).unwrap_or_else(|| {
            let name = if self.windows.len() < WINDOWS_MAX {
                resource.clone()
            } else {
                ResourceName::new(OVERFLOW)
            };
            let mut window = PrimaryWindow::new(&name);
            window.has_replicas = self.parts.is_some();
            // Most accounts have one or two windows for good: no spare capacity.
            self.windows.reserve_exact(1);
            self.windows.push((name, window));
            WindowIndex::of(self.windows.len() - 1)
        })
    }

    pub(super) fn window_of(&mut self, lease: &Lease) -> Option<&mut PrimaryWindow> {
        lease.window.and_then(|place| self.window_at(place))
    }

    pub fn window_at(&mut self, place: WindowIndex) -> Option<&mut PrimaryWindow> {
        self.windows.get_mut(place.index()).map(|(_, window)| window)
    }

    pub fn resource_at(&self, place: WindowIndex) -> Option<&ResourceName> {
        self.windows.get(place.index()).map(|(resource, _)| resource)
    }

    /// Notes an answer to this request, or that the upstream took a piece of its body.
    pub(super) fn answered(&mut self, now: Timestamp, lease: &Lease) {
        self.silence.answered(now);
        self.secondary.answered(now, lease.weight);
        if let Some(window) = self.window_of(lease) {
            window.silence.answered(now);
        }
    }

    /// Notes that this request was given up without an answer.
    pub(super) fn lost(&mut self, now: Timestamp, lease: &Lease) {
        let sent_at = lease.admitted_at;
        self.silence.lost(now, sent_at);
        self.secondary.lost(now, sent_at, lease.weight);
        if let Some(window) = self.window_of(lease) {
            window.silence.lost(now, sent_at);
        }
    }

    /// Notes that this request waits no longer for the head of an answer.
    pub(super) fn heard(&mut self, lease: &Lease) {
        self.silence.ended();
        self.secondary.heard(lease.weight);
        if let Some(window) = self.window_of(lease) {
            window.silence.ended();
        }
    }

    /// Returns true if a request that waited since then, and was denied so, was held by requests
    /// that got no answer.
    pub(super) fn is_unanswered(
        &self,
        now: Timestamp,
        since: Timestamp,
        denied: &LimitDenied,
        client: ClientId,
        write: WriteSpacing,
    ) -> bool {
        match denied.limit {
            LimitKind::Spacing => self.secondary.writes_are_unanswered(now, since, write),
            LimitKind::Primary | LimitKind::BatchFloor => {
                let window = self.window(&denied.resource);
                window.is_some_and(|window| window.silence.is_unanswered(now, since))
            }
            LimitKind::Concurrency | LimitKind::ClientShare
                if self.secondary.slots.are_lost(now) =>
            {
                true
            }
            LimitKind::Cpu | LimitKind::GraphqlCpu
                if self.secondary.cpu_is_unanswered(now, since) =>
            {
                true
            }
            LimitKind::ClientShare => self.secondary.slots.are_unanswered(now, since, client),
            _ => self.silence.is_unanswered(now, since),
        }
    }

    /// Ends the lease in its primary window, and settles the answer in the window that it names.
    /// `is_refused`: nothing was executed. Returns the units that the request spent, where the
    /// headers show them.
    pub(super) fn settle_primary(
        &mut self,
        now: Timestamp,
        lease: LeaseId,
        ended: &Lease,
        status: StatusCode,
        rate: Option<&RateHeaders>,
        is_refused: bool,
    ) -> Option<u32> {
        let named = rate
            .and_then(|rate| rate.resource.as_ref())
            .map(|resource| self.window_index(resource))
            .or(ended.window);
        let window = self.window_of(ended)?;
        let Some(rate) = rate else {
            if is_refused {
                window.refund(lease, ended.cost);
            } else {
                window.charge(now, lease, ended.cost, charge_without_headers(status));
            }
            return None;
        };
        let cost = units_spent(status, is_refused, ended.cost);
        let is_own = named == ended.window;
        let mark = ended.mark.filter(|_| is_own);
        let measured = mark.and_then(|mark| window.measured(mark, rate));
        window.answered(lease, ended.cost, if is_own { cost } else { 0 });
        if let Some(window) = named.and_then(|place| self.window_at(place)) {
            window.observe(now, ObservedAnswer { rate, cost, mark });
        }
        measured
    }

    /// Closes the windows or the account for an upstream limit (SPECIFICATION D6).
    pub(super) fn apply_limit(
        &mut self,
        now: Timestamp,
        ended: &Lease,
        rate: Option<&RateHeaders>,
        refusal: Option<&UpstreamLimit>,
        jitter: f64,
    ) {
        let Some(refusal) = refusal else { return };
        let reset = refusal.reset.or(rate.map(|rate| rate.reset));
        match refusal.kind {
            UpstreamLimitKind::Primary => {
                let named = refusal
                    .resource
                    .as_ref()
                    .or(rate.and_then(|rate| rate.resource.as_ref()))
                    .map(|resource| self.window_index(resource));
                // A resource without numbers corrects nothing. The lease's own window closes too,
                // else the same request would be sent again at once.
                let own = ended.window.filter(|_| named.is_none() || rate.is_none());
                let closed = named.into_iter().chain(own.filter(|own| Some(*own) != named));
                for place in closed {
                    if let Some(window) = self.window_at(place) {
                        window.close(now, reset, refusal.retry_after);
                    }
                }
            }
            UpstreamLimitKind::Secondary => {
                let remaining = refusal.remaining.or(rate.map(|rate| rate.remaining));
                let named = Named {
                    pause: refusal.retry_after,
                    reset: reset.filter(|_| remaining == Some(0)),
                };
                self.cooldown.refused(now, ended.admitted_at, named, jitter);
            }
        }
    }
}

/// Free requests share no window with others.
fn is_counted(resource: &ResourceName) -> bool {
    resource.as_str() != FREE
}

fn primary_headroom(
    now: Timestamp,
    wanted: WindowDemand,
    terms: Terms,
    budget: Option<&PrimaryWindow>,
) -> Result<Headroom, Block> {
    match budget.filter(|_| wanted.cost > 0) {
        Some(window) => window.headroom(now, wanted, terms),
        None => Ok(Headroom { share: WHOLE, until: None }),
    }
}

/// Units that an answered request spent (SPECIFICATION, "Errors": a refusal and a 304 are free).
pub fn units_spent(status: StatusCode, is_refused: bool, cost: u32) -> u32 {
    if is_refused || status == StatusCode::NOT_MODIFIED { 0 } else { cost }
}

/// Charge of an answer without rate headers (SPECIFICATION, "Errors": a 304 costs nothing).
fn charge_without_headers(status: StatusCode) -> Charge {
    match status {
        StatusCode::NOT_MODIFIED => Charge::Free,
        // Such answers may come from anything on the way, and prove nothing.
        _ if status.is_server_error() || status == StatusCode::UNAUTHORIZED => Charge::Lost,
        _ => Charge::SpentWithoutHeaders,
    }
}
