//! The addition of a write: in one step it takes its key, its place, and its first attempt if its
//! turn has come.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use redis::Cmd;

use super::again::PAUSE;
use super::ahead::Ahead;
use super::own::{Copied, Own};
use super::text::{digest_text, keyed, millis};
use super::{Inner, LEASE, PROGRESS, Place, REQUEST, SharedStore, scripts};
use crate::clock::timer_now;
use crate::writes::{StoreError, Stored, WriteState};

impl SharedStore {
    /// Adds a write. `sending` is the progress of its first attempt, if that may begin with its
    /// turn; a change to the same progress is then stored already.
    pub fn insert(
        &self,
        number: u64,
        stored: &Stored,
        place: &Place,
        sending: Option<Bytes>,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let this = Arc::clone(&self.0);
        if let Some(reason) = this.replica.home().away() {
            return Box::pin(std::future::ready(Err(StoreError::Away(reason))));
        }
        let insert = match this.insertion(number, stored, place, sending.clone()) {
            Ok(insert) => insert,
            Err(fault) => return Box::pin(std::future::ready(Err(fault))),
        };
        let queued = stored.progress.clone();
        self.0.spawn(async move {
            let since = timer_now();
            let inserted = this.run::<(String, String, String, String)>(&insert).await;
            let (word, rest, place, born) = inserted.map_err(full)?;
            if !born.is_empty() {
                this.seen(&born);
            }
            match &*word {
                "kept" | "ahead" => {
                    this.own.lock().placed(number, place);
                    if word == "ahead"
                        && let Some(sending) = sending
                    {
                        this.own.lock().went_ahead(number, Ahead { sending, queued, since });
                        this.watch_ahead(number);
                    }
                    this.placed(number, &rest);
                    Ok(())
                }
                "keyed" => {
                    this.own.lock().take(number);
                    Err(keyed(&rest).unwrap_or(StoreError::Failed("a damaged key".into())))
                }
                other => {
                    this.own.lock().take(number);
                    let reason = match other {
                        "taken" => "another write has its number",
                        _ => "it was removed before it was added",
                    };
                    Err(StoreError::Failed(reason.into()))
                }
            }
        })
    }
}

impl Inner {
    /// Notes a write of this replica, and returns the command that adds it.
    fn insertion(
        &self,
        number: u64,
        stored: &Stored,
        place: &Place,
        sending: Option<Bytes>,
    ) -> Result<Cmd, StoreError> {
        let meaning = digest_text(&place.meaning);
        let [request, progress, ahead] = self.sealed_parts(number, stored, sending)?;
        let mut own = self.own.lock();
        if let Some(room) = &mut own.room {
            let bytes = (request.len() + progress.len()) as u64;
            *room = room.checked_sub(bytes).ok_or_else(|| {
                StoreError::Full("what is left is for those that it has".to_owned())
            })?;
        }
        own.add(number, Own::write(place.lane.clone(), 0));
        let copied = Copied {
            request: stored.request.clone(),
            progress: stored.progress.clone(),
            key: place.key.clone(),
            meaning: meaning.clone(),
        };
        own.copy(number, copied);
        drop(own);
        let mut insert = self.script(scripts::INSERT, number);
        insert
            .arg(&*request)
            .arg(&*progress)
            .arg(WriteState::Queued.name())
            .arg(&place.lane)
            .arg(&place.key)
            .arg(meaning)
            .arg(millis(LEASE))
            .arg(&*ahead)
            .arg(PAUSE.as_micros().to_string());
        Ok(insert)
    }

    /// Request, progress, and the progress of the first attempt, sealed; the last one may be empty.
    fn sealed_parts(
        &self,
        number: u64,
        stored: &Stored,
        sending: Option<Bytes>,
    ) -> Result<[Bytes; 3], StoreError> {
        let Stored { request, progress } = stored.clone();
        let sending = sending.map(|sending| self.sealed(PROGRESS, number, sending));
        Ok([
            self.sealed(REQUEST, number, request)?,
            self.sealed(PROGRESS, number, progress)?,
            sending.transpose()?.unwrap_or_default(),
        ])
    }
}

/// The error of a write that was not added, because Redis has no memory.
fn full(fault: StoreError) -> StoreError {
    match fault {
        StoreError::Failed(reason) if reason.contains("OOM ") || reason.starts_with("OOM") => {
            StoreError::Full(reason)
        }
        other => other,
    }
}
