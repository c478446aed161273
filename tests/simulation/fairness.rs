//! Shares of waiting clients: within 5 % of their weights.

use weir::simulation::Workload;

use crate::kit::{minutes, played_without_refusal, reordered, with_points};

#[test]
fn four_clients_that_always_wait_are_served_by_their_weights() {
    // Points become free in bursts of 120, so the heaviest client needs more than 60 waiting
    // requests. The unequal start, when no request waits yet, loses its effect over a few hours.
    let mut plan = with_points(minutes(reordered(Workload::Shares), 110), 60);
    plan.bots = 20;
    let report = played_without_refusal(&plan, 1);
    let served: Vec<u64> = report.clients.iter().map(|client| client.served).collect();
    let all: u64 = served.iter().sum();
    for (served, weight) in served.iter().zip([1_u64, 1, 2, 4]) {
        // Within 5 % of the share by weight: 8 parts in all, in hundredths.
        let share = served * 800 / (all * weight);
        assert!((95..=105).contains(&share), "weight {weight} was served {share} % of its share");
    }
}
