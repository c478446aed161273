//! The recovery from a Redis that has lost its data: each replica adds its own writes and places
//! again, as they were. The order of a lane lasts, because nobody has a turn until all have done
//! so.
//!
//! A replica whose lease may have ended adds no write again, apart from outcomes: another replica
//! may have executed it.

use std::sync::Arc;
use std::time::Duration;

use super::own::Lost;
use super::text::{hex, millis};
use super::{Event, Inner, LEASE, PROGRESS, REQUEST, Said, scripts};
use crate::clock::timer_now;
use crate::state::WriteNews;
use crate::writes::{Progress, StoreError, WriteState};

/// The time without turns after a loss. Ours: replicas that miss the news find the loss within a
/// second by themselves.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// Ended writes that are added again at once. Ours: a tenth of a second.
const AT_ONCE: usize = 200;

impl Inner {
    /// Notes the age of all data in Redis; empty: there is none. Another begin than before: it has
    /// lost all.
    pub(super) fn seen(&self, age: &str) {
        let (born, micros) = age.split_once(' ').unwrap_or((age, "0"));
        let mut own = self.own.lock();
        let now = (!born.is_empty()).then(|| born.to_owned());
        if own.born == now {
            return;
        }
        let before = std::mem::replace(&mut own.born, now);
        if before.is_none() {
            drop(own);
            // A replica that starts just after a loss: the others add their writes.
            let age = Duration::from_micros(micros.parse().unwrap_or_default());
            return self.pause_for(PAUSE.saturating_sub(age));
        }
        own.lost_all();
        drop(own);
        self.pause();
        tracing::warn!("Redis has lost its data: the writes of this replica are added again");
        self.say(WriteNews::Forgotten);
    }

    /// Gives nobody a turn for a while: a replica adds writes again.
    pub(super) fn pause(&self) {
        self.pause_for(PAUSE);
    }

    fn pause_for(&self, time: Duration) {
        let until = timer_now() + time;
        let mut own = self.own.lock();
        own.turns_from = own.turns_from.max(Some(until));
    }

    pub(super) fn has_just_lost(&self) -> bool {
        self.own.lock().turns_from.is_some_and(|from| timer_now() < from)
    }

    /// Says that the turn of an own write has come, unless others may have to add theirs first. A
    /// later look at the lanes finds it again.
    pub(super) fn turn(&self, number: u64) {
        if !self.has_just_lost() {
            // The queue outlives its events only at the end of the process.
            let _ = self.events.send(Event::Turn(number));
        }
    }

    /// Adds ended writes again, the last ones first. What does not succeed is not tried again.
    pub(super) async fn add_ended_again(self: &Arc<Self>) -> Result<(), StoreError> {
        for _ in 0..AT_ONCE {
            let Some(number) = self.own.lock().ended_lost.pop() else { return Ok(()) };
            match self.add_again(number).await {
                Err(StoreError::Elsewhere) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Adds a write again that is gone from Redis, with its latest progress. `Elsewhere`: another
    /// replica may have it, or there is no copy.
    pub(super) async fn add_again(self: &Arc<Self>, number: u64) -> Result<(), StoreError> {
        let (lost, is_leased) = {
            let own = self.own.lock();
            let leased_at = own.leased_at;
            (own.lost(number), leased_at.is_some_and(|at| timer_now() - at < LEASE))
        };
        let Some(Lost { copy, lane, place, changes, ended_for }) = lost else {
            return Err(StoreError::Elsewhere);
        };
        let state = Progress::decode_state(&copy.progress).map(|progress| progress.state);
        let state = state.unwrap_or(WriteState::Queued);
        if !is_leased && !state.is_final() {
            return Err(StoreError::Elsewhere);
        }
        let ended_for = ended_for.unwrap_or_default();
        if ended_for >= self.retention && state.is_final() {
            return Err(StoreError::Elsewhere);
        }
        let kept_for = self.retention.saturating_sub(ended_for);
        let kept_for = state.is_final().then(|| millis(kept_for).to_string());
        let add = self
            .script(scripts::ADD_AGAIN, number)
            .arg(&*self.sealed(REQUEST, number, copy.request)?)
            .arg(&*self.sealed(PROGRESS, number, copy.progress)?)
            .arg(state.name())
            .arg(lane)
            .arg(copy.key)
            .arg(copy.meaning)
            .arg(millis(LEASE))
            .arg(changes)
            .arg(place)
            .arg(kept_for.unwrap_or_default())
            .to_owned();
        let (word, head) = self.run::<Said>(&add).await?;
        if word != "kept" {
            return Err(StoreError::Elsewhere);
        }
        tracing::info!(
            write = number,
            id = hex(number),
            "a write that Redis had lost is there again"
        );
        self.pass_on(&head);
        Ok(())
    }
}
