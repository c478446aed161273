//! Memory of the long texts that are being sent. The cache may have dropped such a text, or never
//! had it: then its readers alone keep it.
//!
//! A text counts once, however many clients read it. If all do not fit, the client that has the
//! most loses the one that it has read longest. A client that takes its answer at once loses none,
//! unless they take twice the memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::clock::timer_now;

/// Shorter texts do not count: their answers are buffered as a whole.
pub const SHORT_BYTES_MAX: usize = 64 * 1024;
/// The time for which a text is safe. Chosen here: a client nearby takes megabytes in it.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct LongTexts {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By address and length. Its readers keep each text in place.
    texts: HashMap<(usize, usize), Arc<LongText>>,
    bytes: u64,
    /// True while a task cuts readers off until all fit.
    is_watched: bool,
}

struct LongText {
    key: (usize, usize),
    /// Index of its first reader in the config.
    client: u32,
    since: Instant,
    /// Closed once its readers are cut off.
    cut: Semaphore,
}

/// Guard: a client is sent the text.
pub struct Reading {
    texts: Arc<LongTexts>,
    text: Arc<LongText>,
}

impl LongTexts {
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, state: Mutex::default() })
    }

    /// Begins to send a text to a client; `None` if it is short.
    pub fn read(self: &Arc<Self>, text: &[u8], client: u32) -> Option<Reading> {
        if text.len() <= SHORT_BYTES_MAX {
            return None;
        }
        let now = timer_now();
        let mut state = self.state.lock();
        let text = state.begin((text.as_ptr().addr(), text.len()), client, now);
        if !state.fit(self.bytes_max, now) && !state.is_watched {
            state.is_watched = true;
            tokio::spawn(Arc::clone(self).watch());
        }
        Some(Reading { texts: Arc::clone(self), text })
    }

    async fn watch(self: Arc<Self>) {
        loop {
            sleep(PATIENCE).await;
            let mut state = self.state.lock();
            if state.fit(self.bytes_max, timer_now()) {
                state.is_watched = false;
                return;
            }
        }
    }
}

impl State {
    fn begin(&mut self, key: (usize, usize), client: u32, since: Instant) -> Arc<LongText> {
        let text = self.texts.entry(key).or_insert_with(|| {
            self.bytes += key.1 as u64;
            Arc::new(LongText { key, client, since, cut: Semaphore::new(0) })
        });
        Arc::clone(text)
    }

    fn end(&mut self, text: &Arc<LongText>) {
        // It has another one with the same text once its readers were cut off.
        if self.texts.get(&text.key).is_some_and(|counted| Arc::ptr_eq(counted, text)) {
            self.texts.remove(&text.key);
            self.bytes -= text.key.1 as u64;
        }
    }

    /// Cuts readers off until all texts fit. Returns false if those left are too new for that.
    fn fit(&mut self, bytes_max: u64, now: Instant) -> bool {
        while self.bytes > bytes_max {
            let patience = if self.bytes > 2 * bytes_max { Duration::ZERO } else { PATIENCE };
            let Some(slowest) = self.slowest(now, patience) else { return false };
            self.end(&slowest);
            slowest.cut.close();
        }
        true
    }

    fn slowest(&self, now: Instant, patience: Duration) -> Option<Arc<LongText>> {
        let mut by_client: HashMap<u32, usize> = HashMap::new();
        for text in self.texts.values() {
            *by_client.entry(text.client).or_default() += text.key.1;
        }
        let slow = self.texts.values().filter(|text| now >= text.since + patience);
        slow.max_by_key(|text| (by_client[&text.client], Reverse(text.since))).map(Arc::clone)
    }
}

impl Reading {
    /// Ends when the reader is cut off.
    pub async fn cut_off(&self) {
        // No permit is ever added.
        let _ = self.text.cut.acquire().await;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.texts.state.lock();
        // The other one is that of the map.
        if Arc::strong_count(&self.text) <= 2 {
            state.end(&self.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// The numbers of the texts that were cut off. Each began as given: client, MiB, and age in
    /// milliseconds.
    fn cut_off(texts: &[(u32, usize, u64)], mib_max: u64) -> (Vec<usize>, bool) {
        let now = timer_now() + Duration::from_mins(1);
        let mut state = State::default();
        let begun: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(number, (client, mib, age))| {
                state.begin((number, mib * MIB), *client, now - Duration::from_millis(*age))
            })
            .collect();
        let fits = state.fit(mib_max << 20, now);
        let counted: usize = state.texts.values().map(|text| text.key.1).sum();
        assert_eq!(state.bytes, counted as u64);
        let lost = begun.iter().enumerate().filter(|(_, text)| text.cut.is_closed());
        (lost.map(|(number, _)| number).collect(), fits)
    }

    #[test]
    fn the_client_with_most_loses_what_it_has_read_longest() {
        let texts = [(1, 2, 9_000), (2, 2, 1_500), (2, 2, 3_000), (2, 2, 2_000)];
        assert_eq!(cut_off(&texts, 8), (vec![], true));
        assert_eq!(cut_off(&texts, 7), (vec![2], true));
        assert_eq!(cut_off(&texts, 4), (vec![2, 3], true));
        assert_eq!(cut_off(&texts, 0), (vec![0, 1, 2, 3], true));
    }

    #[test]
    fn a_text_that_was_just_begun_is_not_cut_off() {
        let texts = [(1, 2, 999), (1, 2, 0), (2, 1, 1_000)];
        assert_eq!(cut_off(&texts, 3), (vec![2], false));
    }

    #[test]
    fn texts_of_any_age_never_take_twice_the_memory() {
        let texts = [(1, 2, 999), (1, 2, 0), (2, 2, 500), (2, 1, 0)];
        assert_eq!(cut_off(&texts, 2), (vec![0, 2], false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_counts_once_and_while_it_is_read() {
        let texts = LongTexts::new(3 * MIB as u64);
        let [one, other] = [vec![0; 2 * MIB], vec![0; 2 * MIB]];
        assert!(texts.read(&one[..SHORT_BYTES_MAX], 1).is_none());
        let readers: Vec<_> = (0..3).map(|client| texts.read(&one, client).unwrap()).collect();
        assert_eq!(texts.state.lock().bytes, 2 * MIB as u64);
        advance(Duration::from_millis(1)).await;
        let second = texts.read(&other, 1).unwrap();
        // The older text goes once it is slow, and counts anew for a new reader.
        readers[0].cut_off().await;
        let again = texts.read(&one, 1).unwrap();
        second.cut_off().await;
        drop(readers);
        assert_eq!(texts.state.lock().bytes, 2 * MIB as u64);
        drop((second, again));
        let state = texts.state.lock();
        assert_eq!((state.bytes, state.texts.len()), (0, 0));
    }
}
