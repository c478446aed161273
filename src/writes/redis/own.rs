//! The writes and the places of this replica, as far as the store itself needs them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::ahead::Ahead;
use crate::clock::timer_now;

/// Bytes of writes of which this replica has copies, for a Redis that loses them. Ours: a thousand
/// writes of 64 KiB.
const COPIED_MAX: usize = 64 * 1024 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    /// Numbers that only this replica uses.
    pub numbers: Range<u64>,
    own: HashMap<u64, Own>,
    /// The lanes of places to be left.
    leaving: BTreeMap<u64, String>,
    /// Writes to be removed.
    pub removing: BTreeSet<u64>,
    /// Replicas whose writes cannot be read here.
    pub unreadable: BTreeSet<String>,
    /// Bytes of all copies.
    copied: usize,
    /// Writes of this replica that have ended, and have copies.
    ended: HashMap<u64, Ended>,
    /// Their numbers, the last end last.
    in_order: VecDeque<u64>,
    /// Those of them that Redis may have lost, the last end last.
    pub ended_lost: Vec<u64>,
    /// Bytes of further writes that Redis has room for; `None`: it does not say.
    pub room: Option<u64>,
    /// The age of all data in Redis; `None` before it was seen.
    pub born: Option<String>,
    /// The time before which nobody has a turn.
    pub turns_from: Option<Instant>,
    /// The last time at which no other replica could have taken its writes.
    pub leased_at: Option<Instant>,
    /// Redis lacks something of this replica, or has a write that is not here.
    pub must_look: bool,
    /// The replica takes no more writes.
    pub has_ended: bool,
}

/// A write that has not ended, or a place in a lane.
#[derive(Debug)]
pub(super) struct Own {
    lane: String,
    /// The changes of its progress so far; `None`: a place.
    changes: Option<u64>,
    /// Redis may have it.
    is_tried: bool,
    /// Redis has it.
    is_placed: bool,
    /// Its turn has come.
    is_called: bool,
    /// Its place in the lane, as Redis has said it.
    place: String,
    /// The write, unless there was no room for it.
    copy: Option<Copied>,
    /// Redis has the progress of the first attempt already.
    ahead: Option<Ahead>,
}

/// A write, to be added again when Redis has lost it.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    /// The request, not sealed.
    pub request: Bytes,
    /// The latest progress, not sealed.
    pub progress: Bytes,
    /// As in [`Place`](super::Place), the digest in hex.
    pub key: String,
    pub meaning: String,
}

#[derive(Debug)]
struct Ended {
    write: Own,
    at: Instant,
}

/// A lost write with all that is needed to add it again.
pub(super) struct Lost {
    pub copy: Copied,
    pub lane: String,
    pub place: String,
    pub changes: u64,
    /// The time since its end; `None`: it has not ended.
    pub ended_for: Option<Duration>,
}

impl Copied {
    fn len(&self) -> usize {
        self.request.len() + self.progress.len()
    }
}

impl Own {
    /// A write after so many changes.
    pub fn write(lane: String, changes: u64) -> Self {
        Self { changes: Some(changes), is_tried: true, is_placed: changes > 0, ..Self::place(lane) }
    }

    /// A place that is not taken yet.
    pub fn place(lane: String) -> Self {
        Self {
            lane,
            changes: None,
            is_tried: false,
            is_placed: false,
            is_called: false,
            place: "0".into(),
            copy: None,
            ahead: None,
        }
    }
}

impl OwnWrites {
    pub fn add(&mut self, number: u64, own: Own) {
        self.take(number);
        self.forget_ended(number);
        self.own.insert(number, own);
    }

    /// Adds a write of another replica.
    pub fn adopt(&mut self, number: u64, lane: String, changes: u64) {
        self.add(number, Own { is_placed: true, ..Own::write(lane, changes) });
    }

    pub fn take(&mut self, number: u64) -> Option<Own> {
        let own = self.own.remove(&number)?;
        self.copied -= own.copy.as_ref().map_or(0, Copied::len);
        Some(own)
    }

    pub fn has(&self, number: u64) -> bool {
        self.own.contains_key(&number)
    }

    /// Keeps a copy of a write, if there is room beside those that have not ended.
    pub fn copy(&mut self, number: u64, copy: Copied) {
        let Some(own) = self.own.get_mut(&number) else { return };
        self.copied -= own.copy.take().map_or(0, |before| before.len());
        while self.copied + copy.len() > COPIED_MAX {
            let Some(oldest) = self.in_order.pop_front() else { return };
            let ended = self.ended.remove(&oldest);
            self.copied -= ended.and_then(|ended| ended.write.copy).map_or(0, |copy| copy.len());
        }
        if let Some(own) = self.own.get_mut(&number) {
            self.copied += copy.len();
            own.copy = Some(copy);
        }
    }

    /// Notes the end of a write. Its copy stays while there is room.
    pub fn ended(&mut self, number: u64) {
        let Some(write) = self.take(number) else { return };
        if let Some(copy) = &write.copy {
            self.copied += copy.len();
            self.in_order.push_back(number);
            self.ended.insert(number, Ended { write, at: timer_now() });
        }
    }

    fn forget_ended(&mut self, number: u64) {
        if let Some(ended) = self.ended.remove(&number) {
            self.copied -= ended.write.copy.map_or(0, |copy| copy.len());
            self.in_order.retain(|other| *other != number);
        }
    }

    /// True if a write has ended here, as a copy shows.
    pub fn has_ended_here(&self, number: u64) -> bool {
        self.ended.contains_key(&number)
    }

    /// Notes that Redis has lost all.
    pub fn lost_all(&mut self) {
        self.must_look = true;
        self.ended_lost = self.in_order.iter().copied().collect();
    }

    pub fn copy_of(&self, number: u64) -> Option<&Copied> {
        self.own.get(&number)?.copy.as_ref()
    }

    /// A write that Redis has lost; `None` without a copy.
    pub fn lost(&self, number: u64) -> Option<Lost> {
        let ended = self.ended.get(&number);
        let own = self.own.get(&number).or_else(|| Some(&ended?.write))?;
        Some(Lost {
            copy: own.copy.clone()?,
            lane: own.lane.clone(),
            place: own.place.clone(),
            changes: own.changes?,
            ended_for: ended.map(|ended| timer_now() - ended.at),
        })
    }

    pub fn placed(&mut self, number: u64, place: String) {
        if let Some(own) = self.own.get_mut(&number) {
            own.is_placed = true;
            own.place = place;
        }
    }

    /// Notes that Redis has the progress of a write's first attempt.
    pub fn went_ahead(&mut self, number: u64, ahead: Ahead) {
        let sending = ahead.sending.clone();
        if self.next_change(number, &sending).is_some()
            && let Some(own) = self.own.get_mut(&number)
        {
            own.ahead = Some(ahead);
        }
    }

    pub fn take_ahead(&mut self, number: u64) -> Option<Ahead> {
        self.own.get_mut(&number)?.ahead.take()
    }

    /// The writes with an [`Ahead`].
    pub fn ahead(&self) -> Vec<u64> {
        let ahead = self.own.iter().filter(|(_, own)| own.ahead.is_some());
        ahead.map(|(number, _)| *number).collect()
    }

    pub fn called(&mut self, number: u64) {
        if let Some(own) = self.own.get_mut(&number) {
            own.is_called = true;
        }
    }

    /// The lane of a place to be taken, and where it was before.
    pub fn try_place(&mut self, number: u64) -> Option<(String, String)> {
        let own = self.own.get_mut(&number)?;
        own.is_tried = true;
        Some((own.lane.clone(), own.place.clone()))
    }

    /// Gives a place up. True if Redis may have it.
    pub fn leave(&mut self, number: u64) -> bool {
        let Some(own) = self.take(number) else { return false };
        if own.is_tried {
            self.leaving.insert(number, own.lane);
        }
        own.is_tried
    }

    pub fn left_lane(&self, number: u64) -> Option<String> {
        self.leaving.get(&number).cloned()
    }

    pub fn has_left(&mut self, number: u64) {
        self.leaving.remove(&number);
    }

    pub fn leaving(&self) -> Vec<u64> {
        self.leaving.keys().copied().collect()
    }

    /// Gives up those of these writes that have not ended.
    pub fn remove(&mut self, numbers: &[u64]) -> Vec<u64> {
        let own = numbers.iter().copied().filter(|number| self.take(*number).is_some());
        let own: Vec<u64> = own.collect();
        self.removing.extend(&own);
        own
    }

    /// Notes the end of a removal; `is_kept`: the write stays.
    pub fn removed(&mut self, number: u64, is_kept: bool) {
        self.removing.remove(&number);
        self.must_look |= is_kept;
    }

    /// The number of a write's next change, whose progress this is.
    pub fn next_change(&mut self, number: u64, progress: &Bytes) -> Option<u64> {
        let own = self.own.get_mut(&number)?;
        let changes = own.changes.as_mut()?;
        *changes += 1;
        let changes = *changes;
        if let Some(copy) = own.copy.clone() {
            self.copy(number, Copied { progress: progress.clone(), ..copy });
        }
        Some(changes)
    }

    /// The lanes in which something waits.
    pub fn waiting_lanes(&self) -> BTreeSet<String> {
        let waiting = self.own.values().filter(|own| own.is_placed && !own.is_called);
        waiting.filter(|own| !own.lane.is_empty()).map(|own| own.lane.clone()).collect()
    }

    /// The writes that Redis has, in the order of their places.
    pub fn kept_writes(&self) -> Vec<u64> {
        let kept = self.own.iter().filter(|(_, own)| own.changes.is_some() && own.is_placed);
        let mut kept: Vec<_> =
            kept.map(|(number, own)| (own.place.parse::<u64>().unwrap_or(0), *number)).collect();
        kept.sort_unstable();
        kept.into_iter().map(|(_, number)| number).collect()
    }

    /// The places that Redis lacks, or all of them.
    pub fn places(&self, with_kept: bool) -> Vec<u64> {
        let places = self
            .own
            .iter()
            .filter(|(_, own)| own.changes.is_none() && (with_kept || !own.is_placed));
        places.map(|(number, _)| *number).collect()
    }
}
