//! Shares between clients that wait (issue: "shares within 5 % of the weights").

use weir::simulation::Workload;

use crate::kit::{minutes, played_without_refusal, reordered, with_points};

#[test]
fn four_clients_that_always_wait_are_served_by_their_weights() {
    // Points come free in bursts of 120: the heaviest must have more waiting than its half of that.
    // Until all have asked nobody waits, and whoever comes is served: that is forgotten over a few
    // hours.
    let mut plan = with_points(minutes(reordered(Workload::Shares), 110), 60);
    plan.bots = 20;
    let report = played_without_refusal(&plan, 1);
    let served: Vec<u64> = report.clients.iter().map(|client| client.served).collect();
    let all: u64 = served.iter().sum();
    for (served, weight) in served.iter().zip([1_u64, 1, 2, 4]) {
        // Within 5 % of the weight's share: 8 parts in all, in hundredths of it.
        let share = served * 800 / (all * weight);
        assert!((95..=105).contains(&share), "weight {weight} was served {share} % of its share");
    }
}
