//! The lease of a replica on its writes, and what is looked at with each renewal: messages may be
//! lost, and replicas may be gone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::text::{hex, millis, parsed};
use super::{Event, Inner, LEASE, Looked, StoreError, scripts};
use crate::clock::timer_now;
use crate::state::WriteNews;

/// The distance of renewals. Ours: a lost message costs no more.
const RENEWED_EVERY: Duration = Duration::from_secs(1);
/// The pause after a renewal that has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// Renewals between two looks at all own writes.
const LOOK_EVERY: u32 = 10;
/// Percent of Redis's memory above which it keeps no further copies of answers. Ours: writes have
/// the rest.
const FOR_COPIES: u64 = 75;
/// Percent of it above which it takes no further writes. Ours: those that it has need room to end.
const FOR_WRITES: u64 = 90;
/// The writes or lanes of one script. Ours: a millisecond.
const AT_ONCE: usize = 200;
/// Numbers that a replica reserves at once: enough for a year of eight writes a second.
const RESERVED: u64 = 1 << 28;

/// Renews the lease for as long as the store lives, and hears what the others say.
pub(super) async fn keep(store: Weak<Inner>) {
    let Some(mut news) = store.upgrade().map(|store| store.replica.write_news.subscribe()) else {
        return;
    };
    let mut renewals = Renewals { unbroken_since: None, last: None, count: 0 };
    let mut next = timer_now();
    loop {
        let heard = tokio::select! {
            heard = news.recv() => Some(heard),
            () = sleep_until(next) => None,
        };
        let Some(store) = store.upgrade() else { return };
        match heard {
            Some(Ok(WriteNews::Forgotten)) => {
                store.pause();
                next = timer_now();
            }
            Some(Ok(news)) => store.hear(news),
            // The next renewal finds what was missed.
            Some(Err(RecvError::Lagged(_))) => {}
            Some(Err(RecvError::Closed)) => return,
            None => {
                if store.own.lock().has_ended {
                    return;
                }
                next = timer_now() + RENEWED_EVERY;
                let renewed = renewals.renew(&store).await;
                if !store.own.lock().ended_lost.is_empty() {
                    next = timer_now();
                }
                if let Err(fault) = renewed {
                    tracing::debug!(error = %fault, "the lease of writes could not be renewed");
                    renewals.unbroken_since = None;
                    next = timer_now() + PAUSE;
                }
            }
        }
    }
}

struct Renewals {
    /// The first of the renewals that have succeeded one after the other.
    unbroken_since: Option<Instant>,
    last: Option<Instant>,
    count: u32,
}

impl Renewals {
    async fn renew(&mut self, store: &Arc<Inner>) -> Result<(), StoreError> {
        // The machine may have stood still, and the others with it.
        if self.last.is_some_and(|last| timer_now() - last > LEASE / 2) {
            self.unbroken_since = None;
        }
        let was_away = self.unbroken_since.is_none();
        if store.own.lock().numbers.is_empty() {
            store.reserve().await?;
        }
        let renew = store.command(scripts::RENEW).arg(millis(LEASE)).to_owned();
        let begun = timer_now();
        let (born, gone) = store.run::<(String, Vec<(String, u8)>)>(&renew).await?;
        store.seen(&born);
        // An unbroken lease goes on; a broken one begins when nothing of it is with others.
        {
            let mut own = store.own.lock();
            own.leased_at = own.leased_at.filter(|at| begun - *at < LEASE).map(|_| begun);
        }
        let now = timer_now();
        self.last = Some(now);
        let unbroken_since = *self.unbroken_since.get_or_insert(now);
        self.count += 1;
        let must_look = std::mem::take(&mut store.own.lock().must_look) || was_away;
        if must_look || self.count.is_multiple_of(LOOK_EVERY) {
            store.look_for_lost().await?;
            store.look_for_forgotten().await?;
            store.look_for_room().await;
        }
        store.own.lock().leased_at = Some(begun);
        store.finish_begun(must_look).await?;
        store.add_ended_again().await?;
        // After an outage of Redis the others need the time to renew their leases.
        let may_adopt = now - unbroken_since >= LEASE;
        for (owner, has_left) in gone {
            if may_adopt || has_left == 1 {
                store.adopt_all(&owner).await?;
            }
        }
        store.look_at_heads().await
    }
}

impl Inner {
    /// Notes how much memory Redis has for further writes. A user without the right to ask knows no
    /// room.
    async fn look_for_room(&self) {
        let mut look = redis::cmd("EVAL");
        look.arg(scripts::MEMORY).arg(1).arg(&self.base);
        let Ok((used, limit, machine)) = self.run::<(u64, u64, u64)>(&look).await else { return };
        let all = if limit == 0 { machine } else { limit };
        let left = |share: u64| (all / 100 * share).saturating_sub(used);
        self.own.lock().room = (all > 0).then(|| left(FOR_WRITES));
        self.replica.connection().set_short(all > 0 && left(FOR_COPIES) == 0);
    }

    fn hear(&self, news: WriteNews) {
        let is_own = |number| self.own.lock().has(number);
        match news {
            WriteNews::Turn(number) if is_own(number) => self.turn(number),
            WriteNews::Joined(number) if is_own(number) => {
                // The queue outlives its events only at the end of the process.
                let _ = self.events.send(Event::Joined(number));
            }
            WriteNews::Ended(number) if self.own.lock().take(number).is_some() => {
                let _ = self.events.send(Event::Lost(number));
            }
            _ => {}
        }
    }

    async fn reserve(&self) -> Result<(), StoreError> {
        let mut reserve = redis::cmd("EVAL");
        let last = format!("{}ranges", self.base);
        reserve.arg(scripts::RESERVE).arg(1).arg(last);
        let range = self.run::<u64>(&reserve).await?.saturating_mul(RESERVED);
        self.own.lock().numbers = range..range.saturating_add(RESERVED);
        Ok(())
    }

    /// Repeats what has failed: places to be taken or left, and writes to be removed.
    async fn finish_begun(&self, with_kept: bool) -> Result<(), StoreError> {
        let (places, leaving, removing) = {
            let own = self.own.lock();
            (own.places(with_kept), own.leaving(), own.removing.clone())
        };
        for number in removing {
            self.remove(number).await?;
        }
        for number in leaving {
            self.leave(number).await?;
        }
        for number in places {
            self.enter(number).await?;
        }
        Ok(())
    }

    /// Adds the writes again that are gone. Gives up those that another replica has taken.
    async fn look_for_lost(self: &Arc<Self>) -> Result<(), StoreError> {
        let kept = self.own.lock().kept_writes();
        let mut is_adding = false;
        for some in kept.chunks(AT_ONCE) {
            if std::mem::take(&mut is_adding) {
                // The others wait for the rest.
                self.say(WriteNews::Forgotten);
            }
            let mut look = self.command(scripts::LOST);
            for number in some {
                look.arg(hex(*number));
            }
            for (lost, is_elsewhere) in self.run::<Vec<(String, u8)>>(&look).await? {
                let Ok(number) = u64::from_str_radix(&lost, 16) else { continue };
                if is_elsewhere == 1 {
                    self.lost(number, true);
                    continue;
                }
                match self.add_again(number).await {
                    Err(StoreError::Elsewhere) => self.lost(number, false),
                    other => other?,
                }
                is_adding = true;
            }
        }
        Ok(())
    }

    /// Takes up writes of this replica of which it does not know: the answer was lost.
    async fn look_for_forgotten(self: &Arc<Self>) -> Result<(), StoreError> {
        let mine = self.run::<Vec<String>>(&self.command(scripts::MINE)).await?;
        let mine = mine.iter().filter_map(|number| u64::from_str_radix(number, 16).ok());
        let forgotten: Vec<u64> = {
            let own = self.own.lock();
            mine.filter(|number| !own.has(*number) && !own.removing.contains(number)).collect()
        };
        for number in forgotten {
            if self.own.lock().has_ended_here(number) {
                // Redis has come back with older data.
                match self.add_again(number).await {
                    Ok(()) | Err(StoreError::Elsewhere) => continue,
                    Err(fault) => return Err(fault),
                }
            }
            let look = self.script(scripts::LOOK, number);
            let (_, changes, lane) = self.run::<Looked>(&look).await?;
            let Some(lane) = lane else { continue };
            self.own.lock().adopt(number, lane, changes.unwrap_or_default());
            let _ = self.events.send(Event::Adopted(vec![number]));
        }
        Ok(())
    }

    /// False if a write of this replica cannot be opened with the keys of this one.
    async fn can_read_writes_of(&self, owner: &str) -> Result<bool, StoreError> {
        let one = self.command(scripts::ONE).arg(owner).to_owned();
        let number = self.run::<Option<String>>(&one).await?;
        let Some(number) = number.and_then(|number| u64::from_str_radix(&number, 16).ok()) else {
            return Ok(true);
        };
        match self.load(number).await {
            Err(StoreError::Sealed) => {
                if self.own.lock().unreadable.insert(owner.to_owned()) {
                    tracing::error!(
                        replica = owner,
                        "queued writes of a replica that is gone cannot be read, and are left to others: state.encrypt_key is not the key that they were sealed with"
                    );
                }
                Ok(false)
            }
            other => other.map(|_| true),
        }
    }

    /// Takes all writes of a replica that is gone.
    async fn adopt_all(&self, owner: &str) -> Result<(), StoreError> {
        loop {
            if !self.can_read_writes_of(owner).await? {
                return Ok(());
            }
            let adopt = self.command(scripts::ADOPT).arg(owner).arg(AT_ONCE).to_owned();
            let taken = self.run::<Vec<(String, String, u64)>>(&adopt).await?;
            if taken.is_empty() {
                return Ok(());
            }
            let mut numbers = Vec::with_capacity(taken.len());
            for (number, lane, changes) in taken {
                if let Ok(number) = u64::from_str_radix(&number, 16) {
                    self.own.lock().adopt(number, lane, changes);
                    numbers.push(number);
                }
            }
            tracing::info!(
                replica = owner,
                writes = numbers.len(),
                "queued writes of a replica that is gone go on here"
            );
            let _ = self.events.send(Event::Adopted(numbers));
        }
    }

    /// Finds turns that have come without a message.
    async fn look_at_heads(&self) -> Result<(), StoreError> {
        let lanes: Vec<String> = self.own.lock().waiting_lanes().into_iter().collect();
        for some in lanes.chunks(AT_ONCE) {
            let mut look = self.command(scripts::HEADS);
            for lane in some {
                look.arg(lane);
            }
            for head in self.run::<Vec<String>>(&look).await? {
                if let Some((owner, number)) = parsed(&head)
                    && owner == self.me
                {
                    self.turn(number);
                }
            }
        }
        Ok(())
    }
}
