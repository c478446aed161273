//! Predicted `ETag`s: the `ETag` that a token would receive for an answer that another token
//! fetched, and the routes where predictions are right.
//!
//! The form was observed and is documented nowhere (SPECIFICATION, "Conditional requests in
//! practice"). A route is *proved* after several right predictions in a row. Samples of its answers
//! are checked further on, and one wrong prediction closes it for hours. The gateway sends the
//! predictions and interprets their 304s.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderValue;
use ring::digest::{Context, SHA256};

use crate::api::EndpointId;
use crate::clock::Timestamp;

use super::packed_validators::hexadecimal_etag;

/// Body of a list without items.
pub const EMPTY_LIST: &[u8] = b"[]";
/// Largest body that is checked or predicted. Ours: hashing takes half a millisecond on a processor
/// without special instructions. Lists of the API are smaller, files may not be.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Right predictions in a row that prove a route. Ours: one could not be chance, but a route may
/// have several kinds of answers.
const RIGHT_IN_A_ROW_MIN: u8 = 5;
/// Part of a proved route's answers that is checked. Ours: a wrong prediction costs a full answer
/// and is detected at once.
const CHECKED_ONE_IN: u8 = 16;
/// Time for which a route is closed. Ours: the form changes with the upstream's releases, days
/// apart.
const CLOSED_FOR: Duration = Duration::from_hours(6);

/// Predicts the strong `ETag` of `body` for a request with these headers: SHA-256 over each header
/// that is present, followed by a colon, and over the body before compression. `Cookie` is part of
/// it as well, and is never sent.
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
    hexadecimal_etag(b"", digest.finish().as_ref())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The answer has the predicted `ETag`.
    Right,
    /// The answer has another `ETag`, or came whole for the predicted body.
    Wrong,
    /// The prediction caused a whole answer that a date alone would have avoided: accounts see
    /// different bodies of the same date. The form is right.
    Dearer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Proved,
    Closed,
}

/// Records of the predictions by route; at most one per endpoint of the table.
#[derive(Debug, Default)]
pub struct Predictions {
    routes: BTreeMap<EndpointId, Route>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Route {
    /// Right predictions in a row, up to [`RIGHT_IN_A_ROW_MIN`].
    right_in_a_row: u8,
    /// Answers since the last check.
    unchecked: u8,
    /// The last right prediction was for a list.
    is_list: bool,
    closed_until: Timestamp,
    /// Until then, answers with a date are left to the date.
    dates_until: Timestamp,
}

impl Predictions {
    /// Returns true when a prediction may be sent. Beside a date it replaces the date (RFC 9110
    /// §13.1.3).
    pub fn may_be_sent(&self, route: EndpointId, beside_date: bool, now: Timestamp) -> bool {
        self.routes
            .get(&route)
            .is_some_and(|route| route.is_proved() && !(beside_date && now < route.dates_until))
    }

    /// Returns true when a list that was never fetched may be tried with the `ETag` of
    /// [`EMPTY_LIST`]. A 304 says that it is empty, and any other answer is the list.
    pub fn may_try_empty(&self, route: EndpointId, now: Timestamp) -> bool {
        self.may_be_sent(route, false, now)
            && self.routes.get(&route).is_some_and(|route| route.is_list)
    }

    /// Records the kind of an answer whose prediction was right.
    pub fn note_kind(&mut self, route: EndpointId, is_list: bool) {
        self.routes.entry(route).or_default().is_list = is_list;
    }

    /// Returns true when an answer of this route is to be checked. All answers of an unproved route
    /// count; a closed route is left alone.
    pub fn wants_check(&mut self, route: EndpointId, now: Timestamp) -> bool {
        let route = self.routes.entry(route).or_default();
        if now < route.closed_until {
            return false;
        }
        route.unchecked = route.unchecked.saturating_add(1);
        !route.is_proved() || route.unchecked >= CHECKED_ONE_IN
    }

    pub fn note(&mut self, route: EndpointId, evidence: Evidence, now: Timestamp) -> Option<Turn> {
        let route = self.routes.entry(route).or_default();
        let was_closed = now < route.closed_until;
        match evidence {
            // The answer was on its way when another one closed the route.
            Evidence::Right if was_closed => None,
            Evidence::Right => {
                let was_proved = route.is_proved();
                route.unchecked = 0;
                route.right_in_a_row =
                    route.right_in_a_row.saturating_add(1).min(RIGHT_IN_A_ROW_MIN);
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
    /// One wrong prediction resets the count.
    const fn is_proved(self) -> bool {
        self.right_in_a_row >= RIGHT_IN_A_ROW_MIN
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
        for _ in 0..RIGHT_IN_A_ROW_MIN {
            predictions.note(widgets(), Evidence::Right, NOW);
        }
        assert!(predictions.may_be_sent(widgets(), true, NOW));
        predictions
    }

    #[test]
    fn a_prediction_hashes_accept_credential_and_body() {
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
    fn a_route_is_proved_by_right_predictions_in_a_row() {
        let mut predictions = Predictions::default();
        for _ in 1..RIGHT_IN_A_ROW_MIN {
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
    fn a_wrong_prediction_closes_a_route_for_hours() {
        for mut predictions in [Predictions::default(), proved()] {
            assert_eq!(predictions.note(widgets(), Evidence::Wrong, NOW), Some(Turn::Closed));
            assert_eq!(predictions.note(widgets(), Evidence::Wrong, NOW), None);
            let late = NOW + CLOSED_FOR - Duration::from_millis(1);
            assert!(!predictions.wants_check(widgets(), late));
            for _ in 0..RIGHT_IN_A_ROW_MIN {
                assert_eq!(predictions.note(widgets(), Evidence::Right, late), None);
            }
            assert!(!predictions.may_be_sent(widgets(), false, late));
            assert!(predictions.wants_check(widgets(), NOW + CLOSED_FOR));
            assert!(!predictions.may_be_sent(widgets(), false, NOW + CLOSED_FOR));
        }
    }

    #[test]
    fn an_empty_list_is_tried_on_a_proved_route_of_lists_alone() {
        let mut predictions = Predictions::default();
        predictions.note_kind(widgets(), true);
        assert!(!predictions.may_try_empty(widgets(), NOW), "it is not proved");
        let mut predictions = proved();
        assert!(!predictions.may_try_empty(widgets(), NOW), "it may have objects");
        predictions.note_kind(widgets(), true);
        assert!(predictions.may_try_empty(widgets(), NOW));
        predictions.note(widgets(), Evidence::Wrong, NOW);
        assert!(!predictions.may_try_empty(widgets(), NOW + CLOSED_FOR));
    }

    #[test]
    fn a_sample_of_a_proved_route_is_checked() {
        let mut predictions = proved();
        let mut round =
            || (0..CHECKED_ONE_IN).filter(|_| predictions.wants_check(widgets(), NOW)).count();
        assert_eq!(round(), 1);
        assert_eq!(round(), usize::from(CHECKED_ONE_IN), "as long as nothing has come of it");
        predictions.note(widgets(), Evidence::Right, NOW);
        assert!(!predictions.wants_check(widgets(), NOW));
    }

    #[test]
    fn a_dearer_prediction_leaves_dated_answers_to_the_date() {
        let mut predictions = proved();
        assert_eq!(predictions.note(widgets(), Evidence::Dearer, NOW), None);
        assert!(
            !predictions.may_be_sent(widgets(), true, NOW)
                && predictions.may_be_sent(widgets(), false, NOW)
        );
        assert!(predictions.may_be_sent(widgets(), true, NOW + CLOSED_FOR));
    }
}
