//! The state of an emulator, its reset and its transcript.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, header};
use parking_lot::Mutex;

use self::reset::Conditions;
use self::transcript::Transcript;
use crate::clock::Timestamp;
use crate::emulator::accounts::AccountId;
use crate::emulator::auth::pace::Pace;
use crate::emulator::faults::Faults;
use crate::emulator::faults::gates::Gates;
use crate::emulator::http::issued_dates::IssuedDates;
use crate::emulator::limits::secondary::Secondary;
use crate::emulator::limits::{Limits, Primary, RequestId, Resource, View};
use crate::emulator::replay::{Recording, Replayer};
use crate::emulator::routing::call::view;
use crate::emulator::seed;
use crate::emulator::seed::options::Options;
use crate::emulator::world::World;

pub mod reset;
pub mod transcript;

#[derive(Debug)]
pub struct State {
    pub options: Options,
    pub world: World,
    pub replayer: Option<Replayer>,
    pub limits: Limits,
    pub primary: Primary,
    pub secondary: Secondary,
    pub gates: Gates,
    pub faults: Faults,
    pub transcript: Transcript,
    pub denial_counts: DenialCounts,
    /// Restored by a reset, beside the seed.
    pub conditions: Conditions,
    pub issued_dates: Arc<Mutex<IssuedDates>>,
    pub pace: Pace,
    pub next_request: u64,
    /// Denials of a primary budget under way, and delivered ones with the end of the wait.
    pub announcing: BTreeMap<RequestId, (AccountId, Resource, Timestamp)>,
    pub announced: BTreeMap<(AccountId, Resource), Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenialCounts {
    pub denied_primary: u64,
    pub denied_secondary: u64,
    /// Requests sent although an earlier response had said to wait.
    pub sent_while_limited: u64,
}

impl State {
    pub fn new(options: Options, recording: Option<Recording>, now: Timestamp) -> Self {
        let world = seed::world(&options, now);
        Self {
            world,
            replayer: recording.map(Replayer::new),
            faults: Faults::new(options.seed, 0),
            options,
            limits: Limits::default(),
            primary: Primary::default(),
            secondary: Secondary::default(),
            gates: Gates::default(),
            transcript: Transcript::default(),
            denial_counts: DenialCounts::default(),
            conditions: Conditions::default(),
            issued_dates: Arc::default(),
            pace: Pace { started: now, factor: 1.0 },
            next_request: 0,
            announcing: BTreeMap::new(),
            announced: BTreeMap::new(),
        }
    }

    pub fn origin(&self, request: &Request<Bytes>) -> String {
        if !self.options.base_url.is_empty() {
            return self.options.base_url.clone();
        }
        let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
        let authority = host
            .or_else(|| request.uri().authority().map(http::uri::Authority::as_str))
            .unwrap_or("localhost");
        format!("http://{authority}")
    }

    pub fn view(&self, now: Timestamp, account: AccountId, resource: Resource) -> View {
        view(&self.world, &self.limits, &self.primary, now, account, resource)
    }

    /// Lists the accounts that know of an exhausted primary budget, and until when.
    pub fn announced(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (AccountId, Resource, Timestamp)> {
        self.announced
            .iter()
            .filter(move |(_, until)| **until > now)
            .map(|((account, resource), until)| (*account, *resource, *until))
    }
}
