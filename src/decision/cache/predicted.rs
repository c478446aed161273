//! The `ETag` that a token would receive for an answer which another token fetched: what it should
//! be, and on which routes that has proved right.
//!
//! Its form was observed and is documented nowhere (UPSTREAM.md, Conditional requests). So nothing
//! is believed of it: a route is *proved* when answers of it have had the predicted `ETag` several
//! times in a row, some of its answers go on being checked, and a single one that differs closes it
//! for hours. Left out: which answers there are, and what a 304 to a prediction is taken for
//! (`gateway/predicted.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use ring::digest::{Context, SHA256};

use crate::api::EndpointId;
use crate::clock::Timestamp;

/// Larger bodies are neither checked nor asked about with a prediction. Ours: hashing this much
/// takes half a millisecond where the processor has no instructions for it; answers of the API's
/// lists are smaller, files may not be.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// So many answers of a route in a row must have had the predicted `ETag`. Ours: one could not be
/// chance, but answers of one route may be made in more than one way.
const RIGHTS_MIN: u8 = 5;
/// One of so many answers of a proved route is checked. Ours: what is wrong costs a full answer
/// each time it is sent, and is found out then at the latest.
const CHECKED_ONE_IN: u8 = 16;
/// How long a route is closed. Ours: the form changes with the upstream's own releases, which are
/// days apart.
const CLOSED_FOR: Duration = Duration::from_hours(6);

/// The `ETag` of `body` in an answer to a request with these headers, in its strong form: SHA-256
/// over each that is present, followed by a colon, and over the body before compression. `Cookie`
/// belongs to it as well and is never sent.
pub fn predict(
    accept: Option<&HeaderValue>,
    authorization: Option<&HeaderValue>,
    body: &[u8],
) -> Option<HeaderValue> {
    let mut digest = Context::new(&SHA256);
    for value in [accept, authorization].into_iter().flatten() {
        digest.update(value.as_bytes());
        digest.update(b":");
    }
    digest.update(body);
    let digest = digest.finish();
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    let digits = digest.as_ref().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
    let etag: Vec<u8> = std::iter::once(b'"').chain(digits).chain([b'"']).collect();
    HeaderValue::from_maybe_shared(Bytes::from(etag)).ok()
}

/// What an answer says about the predictions of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It has the predicted `ETag`.
    Right,
    /// It has another one, or was sent although it is what the prediction was made of.
    Wrong,
    /// The prediction brought a whole answer that a date alone would have spared: the accounts of a
    /// pool see different bodies of the same date. No fault of the form.
    Dearer,
}

/// What a piece of evidence has changed for its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is proved from now on.
    Proved,
    /// It is closed, and was not before.
    Closed,
}

/// How the predictions of each route have done; at most as many as the endpoint table has.
#[derive(Debug, Default)]
pub struct Predictions {
    routes: BTreeMap<EndpointId, Route>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Route {
    /// Right predictions in a row, up to [`RIGHTS_MIN`].
    rights: u8,
    /// Answers since the last one that was checked.
    unchecked: u8,
    closed_until: Timestamp,
    /// Where there is a date, it is left to that.
    dates_until: Timestamp,
}

impl Predictions {
    /// Whether a prediction may be sent; beside a date it takes the place of that (RFC 9110
    /// §13.1.3).
    pub fn may_be_sent(&self, route: EndpointId, beside_date: bool, now: Timestamp) -> bool {
        self.routes
            .get(&route)
            .is_some_and(|route| route.is_proved() && !(beside_date && now < route.dates_until))
    }

    /// Whether an answer of this route is to be checked. A closed route is left alone, every answer
    /// of one that is not proved counts.
    pub fn wants_check(&mut self, route: EndpointId, now: Timestamp) -> bool {
        let route = self.routes.entry(route).or_default();
        if now < route.closed_until {
            return false;
        }
        route.unchecked = route.unchecked.saturating_add(1);
        !route.is_proved() || route.unchecked >= CHECKED_ONE_IN
    }

    /// Takes an answer's word.
    pub fn note(&mut self, route: EndpointId, evidence: Evidence, now: Timestamp) -> Option<Turn> {
        let route = self.routes.entry(route).or_default();
        let was_closed = now < route.closed_until;
        match evidence {
            // Of an answer that was on its way when another one closed it.
            Evidence::Right if was_closed => None,
            Evidence::Right => {
                let was_proved = route.is_proved();
                route.unchecked = 0;
                route.rights = route.rights.saturating_add(1).min(RIGHTS_MIN);
                (route.is_proved() && !was_proved).then_some(Turn::Proved)
            }
            Evidence::Wrong => {
                *route = Route { closed_until: now + CLOSED_FOR, ..Route::default() };
                (!was_closed).then_some(Turn::Closed)
            }
            Evidence::Dearer => {
                route.dates_until = now + CLOSED_FOR;
                None
            }
        }
    }
}

impl Route {
    /// Being wrong once takes all its rights.
    const fn is_proved(self) -> bool {
        self.rights >= RIGHTS_MIN
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::api::{Dialect, Table};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn route(path: &str) -> EndpointId {
        Table::embedded(Dialect::Github).classify(&Method::GET, path).endpoint.id
    }

    fn widgets() -> EndpointId {
        route("/repos/acme/widgets")
    }

    fn proved() -> Predictions {
        let mut predictions = Predictions::default();
        for _ in 0..RIGHTS_MIN {
            predictions.note(widgets(), Evidence::Right, NOW);
        }
        assert!(predictions.may_be_sent(widgets(), true, NOW));
        predictions
    }

    #[test]
    fn a_prediction_is_the_hash_of_what_was_observed() {
        let value = HeaderValue::from_static;
        // printf 'a/b:Bearer x:{}' | sha256sum
        let both = "\"fb153f90a18522713abdeda64e2aef9b66e8ca98e6c67b34bef99b6ed1cc66c3\"";
        assert_eq!(predict(Some(&value("a/b")), Some(&value("Bearer x")), b"{}").unwrap(), both);
        // printf 'a/b:{}' | sha256sum, and printf '{}' | sha256sum
        let without_credential =
            "\"e18fb88bb7f9b1a49ba814fa573f30cf960722fd9ea810037e22f0dd95ff4234\"";
        assert_eq!(predict(Some(&value("a/b")), None, b"{}").unwrap(), without_credential);
        assert_eq!(
            predict(None, None, b"{}").unwrap(),
            "\"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\""
        );
    }

    #[test]
    fn a_route_is_proved_by_several_rights_in_a_row_and_each_counts_until_then() {
        let mut predictions = Predictions::default();
        for _ in 1..RIGHTS_MIN {
            assert!(predictions.wants_check(widgets(), NOW));
            assert_eq!(predictions.note(widgets(), Evidence::Right, NOW), None);
            assert!(!predictions.may_be_sent(widgets(), false, NOW));
        }
        assert_eq!(predictions.note(widgets(), Evidence::Right, NOW), Some(Turn::Proved));
        assert_eq!(predictions.note(widgets(), Evidence::Right, NOW), None);
        assert!(predictions.may_be_sent(widgets(), false, NOW));
        assert!(
            !predictions.may_be_sent(route("/repos/acme/widgets/labels"), false, NOW),
            "another route has to prove itself"
        );
    }

    #[test]
    fn one_wrong_closes_a_route_for_hours_after_which_it_begins_anew() {
        for mut predictions in [Predictions::default(), proved()] {
            assert_eq!(predictions.note(widgets(), Evidence::Wrong, NOW), Some(Turn::Closed));
            assert_eq!(predictions.note(widgets(), Evidence::Wrong, NOW), None);
            let late = NOW + CLOSED_FOR - Duration::from_millis(1);
            assert!(!predictions.wants_check(widgets(), late));
            for _ in 0..RIGHTS_MIN {
                assert_eq!(predictions.note(widgets(), Evidence::Right, late), None);
            }
            assert!(!predictions.may_be_sent(widgets(), false, late));
            assert!(predictions.wants_check(widgets(), NOW + CLOSED_FOR));
            assert!(!predictions.may_be_sent(widgets(), false, NOW + CLOSED_FOR));
        }
    }

    #[test]
    fn of_a_proved_route_a_sample_is_checked() {
        let mut predictions = proved();
        let mut round =
            || (0..CHECKED_ONE_IN).filter(|_| predictions.wants_check(widgets(), NOW)).count();
        assert_eq!(round(), 1);
        assert_eq!(round(), usize::from(CHECKED_ONE_IN), "as long as nothing has come of it");
        predictions.note(widgets(), Evidence::Right, NOW);
        assert!(!predictions.wants_check(widgets(), NOW));
    }

    #[test]
    fn where_accounts_see_different_bodies_of_one_date_it_is_left_to_the_date() {
        let mut predictions = proved();
        assert_eq!(predictions.note(widgets(), Evidence::Dearer, NOW), None);
        assert!(
            !predictions.may_be_sent(widgets(), true, NOW)
                && predictions.may_be_sent(widgets(), false, NOW)
        );
        assert!(predictions.may_be_sent(widgets(), true, NOW + CLOSED_FOR));
    }
}
