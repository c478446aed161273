//! Far copies: answers that one replica has fetched, for all of them.
//!
//! A replica that lacks an answer looks there first, and so does one whose answer was changed: by a
//! write or an event, or as another replica has found. Without a copy it claims the fetch, and the
//! others wait for its answer, so that all replicas fetch it once. A copy that nobody has waited
//! for is only a reason to ask the upstream with a condition, which costs no budget: changes before
//! this replica came are unknown to it.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::answers::{self, Known};
use super::names::{Names, name_of_answer};
use crate::clock::{Timestamp, timer_now};
use crate::decision::TokenKey;
use crate::decision::cache::key::CacheKey;
use crate::decision::cache::settling::Trust;
use crate::gateway::address::path_of;
use crate::gateway::cache::lookup::CacheRequest;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::single_flight::FetchResult;
use crate::gateway::cache::store::Entry;
use crate::gateway::cache::validation::ValidationTimes;
use crate::gateway::dispatch::permissions::key_of;
use crate::state::FarNames;
use crate::state::{Content, Found, Replica};
use crate::telemetry::Fetch;

/// The time for which a copy is kept. Ours: what nobody has asked for in a day is fetched again.
const KEPT_FOR: Duration = Duration::from_hours(24);
/// The time for which others wait for a claimed fetch. The upstream executes no request for longer
/// (SPECIFICATION, "Limits in practice").
const CLAIMED_FOR: Duration = Duration::from_secs(10);
/// The distance of looks for the answer of another replica, which doubles up to the second value.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(80);
/// The distance of attempts to give up a claim.
const GIVEN_UP_EVERY: Duration = Duration::from_millis(500);
/// The largest copy, before its compression. Ours: a larger one costs Redis more than the upstream.
const BYTES_MAX: usize = 1024 * 1024;
/// The compression of copies: fast.
const LEVEL: i32 = 1;

#[derive(Serialize, Deserialize)]
struct Head {
    rules: String,
    tokens: Vec<String>,
}

/// The result of a look at the far copies.
pub enum Far {
    /// The answer that another replica has fetched meanwhile.
    Answer(FetchResult),
    /// A copy, to be confirmed.
    Copy(Arc<Entry>),
    /// Nothing: this replica is to fetch it.
    Claimed(Claim),
    /// Nothing, and nobody waits.
    Nothing,
}

/// Guard: the right to fetch an answer for all replicas, which it gives up unless that is over.
pub struct Claim {
    replica: Arc<Replica>,
    key: String,
    is_over: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (replica, key) = (Arc::clone(&self.replica), std::mem::take(&mut self.key));
        // Without a runtime the process is ending.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { give_up(&replica, &key).await });
        }
    }
}

/// Gives up a claim, also one that a Redis takes note of as soon as it is back.
async fn give_up(replica: &Replica, key: &str) {
    let begun = timer_now();
    // Then it has ended by itself.
    while begun.elapsed() < CLAIMED_FOR
        && replica.home().give_up(key, &holder(replica)).await.is_err()
    {
        sleep(GIVEN_UP_EVERY).await;
    }
}

fn holder(replica: &Replica) -> String {
    format!("{:016x}", replica.id().0)
}

impl ReadCache {
    /// Looks for an answer that this replica lacks, or of which it has an outdated one. Waits for
    /// one that another replica fetches.
    pub(in crate::gateway::cache) async fn find_far(
        &self,
        key: &CacheKey,
        cache_request: &CacheRequest,
        own: Option<&Entry>,
    ) -> Far {
        let Some(replica) = &self.env.replica else { return Far::Nothing };
        let directives = &cache_request.directives;
        let is_usual = cache_request.query.is_none()
            && cache_request.range.is_none()
            && !directives.no_store
            && !directives.no_cache;
        if !is_usual || self.is_out_of_touch(self.env.clock.now()) {
            return Far::Nothing;
        }
        let names = self.far_names(replica);
        let Some(place) = far_key(&names, key) else { return Far::Nothing };
        let newer_than = match own {
            None => None,
            Some(own) => match self.outdated_by(own, cache_request, &place) {
                None => return Far::Nothing,
                newer_than => newer_than,
            },
        };
        let far = self.look_far(replica, (key, &names, place), cache_request, newer_than).await;
        self.env.metrics.looked_far(match &far {
            Far::Answer(_) => "answer",
            Far::Copy(_) => "copy",
            Far::Claimed(_) | Far::Nothing => "nothing",
        });
        far
    }

    /// The time after which an answer must have been requested that is newer than this one; `None`:
    /// no other replica may have a newer one, or wait for it.
    fn outdated_by(
        &self,
        own: &Entry,
        cache_request: &CacheRequest,
        place: &str,
    ) -> Option<Timestamp> {
        if !own.status().is_success() || !has_size_of_copy(own) {
            return None;
        }
        let requested_at = own.requested_at();
        let has_newer = self.store.far.take_newer(place);
        // A silent replica is no reason: there may be no change at all.
        if self.known_trust(cache_request, Some(own), requested_at) == Trust::Invalidated {
            let path = path_of(&cache_request.job.request.target);
            let changed_at = self.store.log.last_change(path, requested_at);
            // The time of a purge is in no log.
            let changed_at = changed_at.filter(|at| *at >= requested_at);
            return Some(changed_at.unwrap_or_else(|| self.env.clock.now()));
        }
        has_newer.then_some(requested_at)
    }

    async fn look_far(
        &self,
        replica: &Arc<Replica>,
        (key, names, place): (&CacheKey, &FarNames, String),
        cache_request: &CacheRequest,
        newer_than: Option<Timestamp>,
    ) -> Far {
        let (begun, holder) = (self.env.clock.now(), holder(replica));
        // The rest of its patience is for a fetch of its own.
        let patience = cache_request.job.deadline.since(begun) / 2;
        let wait_until = begun + patience.min(CLAIMED_FOR);
        let (mut has_waited, mut pause) = (false, LOOK);
        // A question without an answer may be a claim, too.
        let mut claim = Claim { replica: Arc::clone(replica), key: place.clone(), is_over: false };
        loop {
            // Before the question, so that a late answer counts as older than it is.
            let asked_at = self.env.clock.now();
            // A thing that another replica has claimed is newer.
            let newer_than = newer_than.filter(|_| !has_waited);
            let age_max = newer_than.map_or(KEPT_FOR, |than| {
                asked_at.since(than).saturating_sub(Duration::from_millis(1))
            });
            match replica.home().find_or_claim(&place, &holder, CLAIMED_FOR, age_max).await {
                Ok(Found::Claimed) | Err(_) => return Far::Claimed(claim),
                Ok(Found::Busy) if self.env.clock.now() < wait_until => {
                    has_waited = true;
                    sleep(pause).await;
                    pause = (pause * 2).min(LOOK_MAX);
                }
                Ok(Found::Kept(copy, age)) => {
                    claim.is_over = true;
                    let requested_at = asked_at - age;
                    let Ok(copy) = replica.seal().open(&place, copy) else { return Far::Nothing };
                    let Some(entry) = self.far_entry(names, &copy, key) else {
                        return Far::Nothing;
                    };
                    if !has_waited || !entry.fits(cache_request.headers()) {
                        return Far::Copy(entry);
                    }
                    return self.answer_of_other(entry, key, cache_request, requested_at);
                }
                Ok(Found::Busy) => {
                    claim.is_over = true;
                    return Far::Nothing;
                }
            }
        }
    }

    /// The answer of another replica whose fetch began while this one heard of all changes.
    fn answer_of_other(
        &self,
        entry: Arc<Entry>,
        key: &CacheKey,
        cache_request: &CacheRequest,
        requested_at: Timestamp,
    ) -> Far {
        let mut entry = Arc::unwrap_or_clone(entry);
        entry.validation = ValidationTimes::new(requested_at, requested_at);
        let now = self.env.clock.now();
        let is_trusted = self.trust(cache_request, Some(&entry), requested_at).holds(now);
        let entry = Arc::new(entry);
        if !is_trusted || !self.store.is_confirmed(&entry) {
            return Far::Copy(entry);
        }
        self.store.put(key.clone(), Arc::clone(&entry));
        Far::Answer(FetchResult::Entry(entry, Fetch::OfReplica))
    }

    /// Ends a claim with the answer, which the others wait for.
    pub(in crate::gateway::cache) async fn fulfil(
        &self,
        claim: Claim,
        key: &CacheKey,
        result: &FetchResult,
    ) {
        let names = self.far_names(&claim.replica);
        let copy = match result {
            FetchResult::Entry(entry, _) => self.far_copy(&names, key, entry),
            _ => None,
        };
        let sealed = |(copy, at)| Some((claim.replica.seal().seal(&claim.key, copy).ok()?, at));
        let Some((copy, at)) = copy.and_then(sealed) else { return };
        let kept = claim.replica.home().keep(&claim.key, copy, at, KEPT_FOR).await;
        if kept.is_ok() {
            let mut claim = claim;
            claim.is_over = true;
            if matches!(result, FetchResult::Entry(_, Fetch::Changed { .. } | Fetch::Stored)) {
                let _ = claim.replica.tell(Content::Copied(claim.key.clone())).await;
            }
        }
    }

    /// Keeps an answer that has changed for the other replicas, beside the request.
    pub(in crate::gateway::cache) fn keep_far(&self, key: &CacheKey, result: &FetchResult) {
        let Some(replica) = &self.env.replica else { return };
        let FetchResult::Entry(entry, Fetch::Changed { .. } | Fetch::Stored) = result else {
            return;
        };
        let keeping = self.store.far.keeping();
        let names = self.far_names(replica);
        let (Some(keeping), Some(place)) = (keeping, far_key(&names, key)) else { return };
        let Some((copy, at)) = self.far_copy(&names, key, entry) else { return };
        let Ok(copy) = replica.seal().seal(&place, copy) else { return };
        let replica = Arc::clone(replica);
        tokio::spawn(async move {
            // Without it another replica pays for the answer once.
            if replica.home().keep(&place, copy, at, KEPT_FOR).await.is_ok() {
                let _ = replica.tell(Content::Copied(place)).await;
            }
            drop(keeping);
        });
    }

    /// The text of a copy and the moment of its request; `None` for an answer that no other replica
    /// may use.
    fn far_copy(
        &self,
        names: &FarNames,
        key: &CacheKey,
        entry: &Entry,
    ) -> Option<(Bytes, Instant)> {
        let age = self.env.clock.now().since(entry.requested_at());
        let requested_at = timer_now().checked_sub(age)?;
        let may_be_kept =
            self.may_return(key, entry, path_of(key.path_and_query())) && has_size_of_copy(entry);
        may_be_kept.then_some(())?;
        let tokens = std::cell::RefCell::new(Vec::new());
        let number = |token: TokenKey| {
            let name = names.names.get(&token)?;
            tokens.borrow_mut().push(name.clone());
            Some(tokens.borrow().len() as u64 - 1)
        };
        let mut answer = Vec::new();
        answers::push(&mut answer, key, entry, None, |_| Some(0), number).then_some(())?;
        let head = Head { rules: names.rules.clone(), tokens: tokens.into_inner() };
        let mut text = serde_json::to_vec(&head).ok()?;
        text.push(b'\n');
        text.append(&mut answer);
        let copy = zstd::encode_all(text.as_slice(), LEVEL).ok()?;
        Some((copy.into(), requested_at))
    }

    /// The entry of a copy for this key; `None` for one that this replica cannot use.
    fn far_entry(&self, names: &FarNames, copy: &[u8], key: &CacheKey) -> Option<Arc<Entry>> {
        let mut text = Vec::new();
        // With headers, a copy is a little larger than its body.
        let mut reader = zstd::Decoder::new(copy).ok()?.take(4 * BYTES_MAX as u64);
        reader.read_to_end(&mut text).ok()?;
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&text[..end]).ok()?;
        let tokens: Vec<_> =
            head.tokens.iter().map(|name| names.tokens.get(name).copied()).collect();
        let routes = self.env.config.cache.rules.iter().map(|rule| rule.route.to_string());
        let routes: Vec<_> = routes.filter(|_| head.rules == names.rules).collect();
        let known = Known {
            mode: self.env.mode,
            urls: &self.env.urls,
            shared_lines: &self.store.shared_lines,
            scopes: &[Some(key.scope())],
            tokens: &tokens,
            rules: &self.rules_of(&routes),
            restarted_at: self.env.clock.now(),
        };
        let mut rest = &text[end + 1..];
        let restored = answers::take(&mut rest, &known).ok()??;
        (restored.key == *key).then_some(restored.entry)
    }

    /// The names that all replicas share.
    pub(crate) fn far_names(&self, replica: &Replica) -> Arc<FarNames> {
        let names = || self.new_far_names(replica);
        self.store.far.names(timer_now(), &self.env.config, names)
    }

    fn new_far_names(&self, replica: &Replica) -> FarNames {
        let config = &self.env.config;
        let salt: [u8; 32] = std::array::from_fn({
            let digest = digest(&SHA256, replica.prefix().as_bytes());
            move |at| digest.as_ref()[at]
        });
        let all = Names::of(config, self.dispatcher.tokens(), self.env.mode, &salt);
        let rules = config.cache.rules.iter().map(|rule| rule.route.to_string());
        FarNames {
            salt,
            // With the upstream, so that two of them share nothing.
            scopes: all
                .scopes
                .into_iter()
                .map(|(scope, name)| (scope, format!("{}{name}", all.upstream)))
                .collect(),
            slots: all.slots.iter().map(|(slot, name)| (key_of(*slot), name.clone())).collect(),
            slot_of: all.slots.into_iter().map(|(slot, name)| (name, key_of(slot))).collect(),
            names: all.tokens.iter().cloned().collect(),
            tokens: all.tokens.into_iter().map(|(token, name)| (name, token)).collect(),
            rules: name_of_answer(&salt, "rules", rules.collect::<Vec<_>>().join("\n").as_bytes()),
        }
    }
}

fn has_size_of_copy(entry: &Entry) -> bool {
    entry.body.file().is_none() && entry.body.text().len() <= BYTES_MAX
}

/// The key of a copy; `None` for an answer of one client alone.
fn far_key(names: &FarNames, key: &CacheKey) -> Option<String> {
    Some(name_of_answer(&names.salt, names.scopes.get(&key.scope())?, key.text()))
}
