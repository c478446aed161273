//! Cache: reads by their cost, and the room that the answers take.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{Look, table, words};

/// Kinds of reads, with the cache labels of the metrics.
const KINDS: [(&str, &str, &[&str]); 5] = [
    ("Hit", "a stored answer, no request upstream", &["hit"]),
    (
        "Free",
        "confirmed by a 304, or shared with another request",
        &["revalidated", "empty_list", "collapsed"],
    ),
    (
        "Stale",
        "an older answer, because there was no budget, or the upstream failed",
        &["stale_if_limited", "stale_if_error", "stale_while_revalidate"],
    ),
    ("Paid", "fetched for units of a budget", &["changed", "stored", "not_stored"]),
    ("Past the cache", "writes, streams, and answers of the gateway", &["bypass", "none"]),
];

pub fn show(look: &Look) -> Markup {
    let metrics = &look.gateway.env.metrics;
    let answers: BTreeMap<&str, u64> = metrics.answers_by_cache();
    let counts = KINDS
        .map(|(_, _, labels)| labels.iter().filter_map(|label| answers.get(label)).sum::<u64>());
    let all: u64 = counts.iter().sum();
    let rows = html! {
        @for ((name, meaning, _), count) in KINDS.iter().zip(counts) {
            tr {
                th scope="row" { (name) }
                td.number { (words::number(count)) }
                td.number { (share(count, all)) }
                td.dim.words { (meaning) }
            }
        }
    };
    let (entries, bytes) = look.gateway.cache.store().size();
    let max = look.gateway.env.config.cache.max_size;
    html! {
        (table("cache", "Requests since the start", &["Answer", "Requests", "Share", "Meaning"], &rows))
        p {
            (words::count(entries, "answer is", "answers are")) " stored in " (words::bytes(bytes)) " of "
            (words::bytes(max)) "; evicted for room since the start: "
            (words::number(metrics.evictions())) "."
        }
    }
}

fn share(count: u64, all: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is shown in percent")]
    let part = count as f64 / all.max(1) as f64;
    if all == 0 { "–".to_owned() } else { words::percent(part) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{CacheOutcome, Fetch};

    #[test]
    fn every_outcome_at_the_cache_is_of_one_kind() {
        let fetched = [
            Fetch::Revalidated,
            Fetch::Changed { status: 200 },
            Fetch::Stored,
            Fetch::NotStored,
            Fetch::EmptyList { is_stored: true },
            Fetch::OfReplica,
            Fetch::TooLarge,
        ];
        let outcomes = fetched.map(CacheOutcome::Fetched).into_iter().chain([
            CacheOutcome::Hit,
            CacheOutcome::Collapsed(Fetch::Stored),
            CacheOutcome::StaleIfLimited,
            CacheOutcome::StaleIfError,
            CacheOutcome::StaleWhileRevalidate,
            CacheOutcome::Bypass,
            CacheOutcome::None,
        ]);
        for outcome in outcomes {
            let label = outcome.label();
            let kinds = KINDS.iter().filter(|(_, _, labels)| labels.contains(&label));
            assert_eq!(kinds.count(), 1, "{label}");
        }
    }
}
