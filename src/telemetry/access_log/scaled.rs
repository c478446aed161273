//! A log as it would be with more clients of the same kind.

use std::sync::Arc;
use std::time::Duration;

use super::{Recorded, Trace};

/// Most by which a copy comes later than its original. Ours: bots that do the same do it at about
/// the same time, not in the same millisecond.
const LATER_MAX_MILLIS: u64 = 60_000;
/// Clients of which a part would not do for all. Ours: a tenth is one of these.
const FEW_CLIENTS: usize = 10;

impl Trace {
    /// Returns the log with so many times the requests, 0.01 to 100. Each further copy is of other
    /// clients, which ask for other things of the same kind: no copy is answered by the fetch of
    /// another. Fewer requests than once are those of a part of the clients. With few clients they
    /// are a part of the requests.
    #[must_use]
    pub fn scaled(&self, times: f64) -> Self {
        let mut scaled = Self { requests: Vec::new(), clients: Vec::new(), ..self.clone() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let whole = times as u32;
        let rest = times - f64::from(whole);
        for copy in 0..=whole {
            let part = if copy < whole { 1.0 } else { rest };
            if part <= 0.0 {
                continue;
            }
            let by_client = self.clients.len() >= FEW_CLIENTS;
            let (of_clients, of_requests) = if by_client { (part, 1.0) } else { (1.0, part) };
            let (chosen, places) = self.clients_of(of_clients, copy, &mut scaled.clients);
            let requests = self.requests.iter().enumerate();
            let requests = requests
                .filter(|(number, request)| chosen[request.client] && is_in(of_requests, *number));
            scaled.requests.extend(requests.map(|(number, request)| Recorded {
                after: request.after + later(copy, number),
                client: places[request.client],
                path: renamed(&request.path, copy),
                ..request.clone()
            }));
        }
        scaled.requests.sort_by_key(|request| request.after);
        scaled
    }

    /// Adds the clients of a copy. Returns those that are in it, and their new places.
    fn clients_of(
        &self,
        part: f64,
        copy: u32,
        clients: &mut Vec<Arc<str>>,
    ) -> (Vec<bool>, Vec<usize>) {
        let chosen: Vec<bool> = (0..self.clients.len()).map(|place| is_in(part, place)).collect();
        let mut places = vec![0; self.clients.len()];
        for (place, name) in self.clients.iter().enumerate().filter(|(place, _)| chosen[*place]) {
            places[place] = clients.len();
            clients.push(if copy == 0 {
                Arc::clone(name)
            } else {
                format!("{name} ({})", copy + 1).into()
            });
        }
        (chosen, places)
    }
}

/// The delay of a copy's request, the same in every run.
fn later(copy: u32, number: usize) -> Duration {
    if copy == 0 {
        return Duration::ZERO;
    }
    // A multiplicative hash (Knuth) spreads numbers that are near.
    let mixed = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(copy) << 32;
    Duration::from_millis((mixed >> 16) % LATER_MAX_MILLIS)
}

/// The path of a copy: that of another owner's repository, or with another query.
fn renamed(path: &str, copy: u32) -> String {
    if copy == 0 {
        return path.to_owned();
    }
    let number = copy + 1;
    for prefix in ["/repos/", "/orgs/", "/users/"] {
        if let Some(rest) = path.strip_prefix(prefix) {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            return format!("{prefix}{}-{number}{}", &rest[..end], &rest[end..]);
        }
    }
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}copy={number}")
}

/// True if the thing at this place is in this part of all: every n-th is, whatever their order.
#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52 of them")]
fn is_in(part: f64, place: usize) -> bool {
    ((place + 1) as f64 * part).floor() > (place as f64 * part).floor()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn log(clients: usize, requests: usize) -> Trace {
        use std::fmt::Write as _;
        let mut text = String::from("time,client,method,path\n");
        for number in 0..requests {
            let client = number % clients;
            writeln!(
                text,
                "{},bot-{client},GET,/repos/acme/thing-{number}",
                1_782_900_000 + number
            )
            .unwrap();
        }
        Trace::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn three_times_as_many_ask_for_other_things() {
        let trace = log(5, 100).scaled(3.0);
        assert_eq!((trace.requests.len(), trace.clients.len()), (300, 15));
        let paths: HashSet<&str> = trace.requests.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths.len(), 300, "none is another's");
        assert!(paths.contains("/repos/acme-3/thing-99"));
        assert!(trace.requests.is_sorted_by_key(|one| one.after));
        let used: HashSet<usize> = trace.requests.iter().map(|one| one.client).collect();
        assert_eq!(used.len(), 15);
    }

    #[test]
    fn a_part_is_that_of_a_part_of_the_clients() {
        for (times, requests, clients) in [(0.4, 40, 4), (1.0, 100, 10), (1.6, 160, 16)] {
            let trace = log(10, 100).scaled(times);
            assert_eq!((trace.requests.len(), trace.clients.len()), (requests, clients), "{times}");
        }
    }

    #[test]
    fn a_part_of_one_client_is_a_part_of_its_requests() {
        for (times, requests, clients) in [(0.5, 50, 1), (1.0, 100, 1), (2.25, 225, 3)] {
            let trace = log(1, 100).scaled(times);
            assert_eq!((trace.requests.len(), trace.clients.len()), (requests, clients), "{times}");
        }
    }

    #[test]
    fn a_copy_keeps_the_route() {
        for (path, copy) in [
            ("/repos/acme/widgets/issues?page=2", "/repos/acme-2/widgets/issues?page=2"),
            ("/orgs/acme", "/orgs/acme-2"),
            ("/user", "/user?copy=2"),
            ("/search/code?q=a", "/search/code?q=a&copy=2"),
        ] {
            assert_eq!(renamed(path, 1), copy);
        }
    }
}
