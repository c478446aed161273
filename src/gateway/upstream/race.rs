//! Attempts at several addresses, of which the first that connects wins (RFC 8305).
//!
//! Left out: the addresses of a name (`resolve`), and the time for all attempts together
//! (`connect`).

use std::collections::VecDeque;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

/// The head start of an attempt before the next (RFC 8305 §8, "Connection Attempt Delay").
pub const HEAD_START: Duration = Duration::from_millis(250);

/// Orders the addresses of a name: families in turn, IPv6 first (RFC 8305 §4). The address that
/// was connected to the last time comes before all, so that a dead one costs its delay only once.
pub fn ordered(addresses: &[IpAddr], last: Option<IpAddr>) -> Vec<IpAddr> {
    let of = |is_v6: bool| addresses.iter().filter(move |address| address.is_ipv6() == is_v6);
    let (mut first, mut second) = (of(true), of(false));
    let mut ordered = Vec::with_capacity(addresses.len());
    loop {
        let (one, other) = (first.next(), second.next());
        if one.is_none() && other.is_none() {
            break;
        }
        ordered.extend(one.into_iter().chain(other));
    }
    if let Some(index) = ordered.iter().position(|address| Some(*address) == last) {
        ordered[..=index].rotate_right(1);
    }
    ordered
}

/// The end of a race that somebody won.
pub struct Won<T> {
    pub address: SocketAddr,
    pub connection: T,
    /// The addresses that were not tried, or not to their end.
    pub left: Vec<SocketAddr>,
}

/// An address and the reason why there is no connection to it.
pub type Failed = (SocketAddr, String);

/// Tries the addresses in their order. The next attempt begins [`HEAD_START`] after the one before,
/// or at once when one fails; the first to connect ends all others. Failures are added to `failed`.
/// `None`: all failed.
pub async fn race<T, F>(
    addresses: Vec<SocketAddr>,
    failed: &mut Vec<Failed>,
    connect: impl Fn(SocketAddr) -> F,
) -> Option<Won<T>>
where
    F: Future<Output = Result<T, String>>,
{
    let mut waiting = VecDeque::from(addresses);
    let mut running = FuturesUnordered::new();
    let mut tried = Vec::new();
    loop {
        if let Some(address) = waiting.pop_front() {
            tried.push(address);
            let attempt = connect(address);
            running.push(async move { (address, attempt.await) });
        }
        let ended = if waiting.is_empty() {
            running.next().await
        } else {
            match select(running.next(), pin!(sleep(HEAD_START))).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => continue,
            }
        };
        match ended {
            Some((address, Ok(connection))) => {
                tried.retain(|other| {
                    *other != address && failed.iter().all(|(gone, _)| gone != other)
                });
                let left = tried.into_iter().chain(waiting).collect();
                return Some(Won { address, connection, left });
            }
            Some((address, Err(problem))) => failed.push((address, problem)),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_and_ipv6_is_first() {
        let addresses = ips(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2"]);
        assert_eq!(
            ordered(&addresses, None),
            ips(&["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2", "192.0.2.3"])
        );
        assert_eq!(ordered(&[], None), [] as [IpAddr; 0]);
    }

    #[test]
    fn the_address_of_the_last_connection_is_first() {
        let addresses = ips(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        for (last, expected) in [
            ("192.0.2.2", ips(&["192.0.2.2", "2001:db8::1", "192.0.2.1"])),
            ("2001:db8::1", ips(&["2001:db8::1", "192.0.2.1", "192.0.2.2"])),
            ("203.0.113.9", ips(&["2001:db8::1", "192.0.2.1", "192.0.2.2"])),
        ] {
            assert_eq!(ordered(&addresses, Some(last.parse().unwrap())), expected, "{last}");
        }
    }

    /// An attempt in virtual time, by the port of its address.
    async fn played(address: SocketAddr) -> Result<u16, String> {
        match address.port() {
            1 => pending().await,
            2 => return Err("refused".to_owned()),
            3 => {
                let _ = timeout(Duration::from_millis(400), pending::<()>()).await;
            }
            _ => {}
        }
        Ok(address.port())
    }

    /// A race in ports: the winner, all attempts, the number of failures, and the addresses left.
    type Raced = (Option<u16>, Vec<u16>, usize, Vec<u16>);

    /// Races these ports; `None` if that is not over within so many milliseconds.
    async fn raced(ports: &[u16], within: u64) -> Option<Raced> {
        let addresses = ports.iter().map(|port| SocketAddr::from(([192, 0, 2, 1], *port)));
        let (starts, mut failed) = (RefCell::<Vec<_>>::default(), Vec::new());
        let race = race(addresses.collect(), &mut failed, |address| {
            starts.borrow_mut().push(address.port());
            played(address)
        });
        let won = timeout(Duration::from_millis(within), race).await.ok()?;
        let left = won.as_ref().map_or_else(Vec::new, |won| won.left.clone());
        let left = left.iter().map(SocketAddr::port).collect();
        Some((won.map(|won| won.connection), starts.take(), failed.len(), left))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_next_by_250_ms() {
        assert_eq!(raced(&[1, 9, 8], 249).await, None);
        assert_eq!(raced(&[1, 9, 8], 252).await, Some((Some(9), vec![1, 9], 0, vec![1, 8])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_starts_the_next_attempt_at_once() {
        assert_eq!(raced(&[2, 9], 1).await, Some((Some(9), vec![2, 9], 1, vec![])));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_to_connect_wins_though_it_began_earlier() {
        assert_eq!(raced(&[3, 1], 402).await, Some((Some(3), vec![3, 1], 0, vec![1])));
    }

    #[tokio::test(start_paused = true)]
    async fn all_failures_are_reported() {
        assert_eq!(raced(&[2, 2], 1).await, Some((None, vec![2, 2], 2, vec![])));
        assert_eq!(raced(&[], 1).await, Some((None, vec![], 0, vec![])));
    }
}
