//! The state of an emulator, its reset and its transcript.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, header};
use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::emulator::accounts::AccountId;
use crate::emulator::faults::Faults;
use crate::emulator::faults::gates::Gates;
use crate::emulator::http::dated::Dated;
use crate::emulator::limits::primary::{Primary, View};
use crate::emulator::limits::request_id::RequestId;
use crate::emulator::limits::secondary::Secondary;
use crate::emulator::limits::settings::{Limits, Resource};
use crate::emulator::replay::{Recording, Replayer};
use crate::emulator::routing::call::view;
use crate::emulator::seed;
use crate::emulator::seed::options::Options;
use crate::emulator::state::reset::Conditions;
use crate::emulator::state::transcript::Transcript;
use crate::emulator::world::World;

pub mod reset;
pub mod transcript;

/// All that an emulator is.
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
    pub tally: Tally,
    /// What a reset goes back to beside the seed.
    pub conditions: Conditions,
    pub dated: Arc<Mutex<Dated>>,
    pub next_request: u64,
    /// Refusals of a primary budget under way, and those that callers know of: nothing may be sent
    /// before then.
    pub telling: BTreeMap<RequestId, (AccountId, Resource, Timestamp)>,
    pub told: BTreeMap<(AccountId, Resource), Timestamp>,
}

/// What went wrong between callers and limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub refused_primary: u64,
    pub refused_secondary: u64,
    /// Requests sent although an earlier answer had said to wait.
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
            tally: Tally::default(),
            conditions: Conditions::default(),
            dated: Arc::default(),
            next_request: 0,
            telling: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Scheme and authority that answers name.
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

    /// Whom an answer has told that a primary budget is exhausted, and until when.
    pub fn told(&self, now: Timestamp) -> impl Iterator<Item = (AccountId, Resource, Timestamp)> {
        self.told
            .iter()
            .filter(move |(_, until)| **until > now)
            .map(|((account, resource), until)| (*account, *resource, *until))
    }
}
