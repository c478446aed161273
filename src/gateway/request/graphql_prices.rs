//! Known prices of GraphQL operations, for reservations (SPECIFICATION, "Limits in practice").
//!
//! Only operations that ask for `rateLimit { cost }` reveal their price; any other counts 1. The
//! price also depends on variables, which are ignored: it is a forecast.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::api::OperationKey;

/// The most operations remembered; the oldest is dropped first. Chosen here: bots have tens of
/// documents, but inlined values make new ones without end.
const OPERATIONS_MAX: usize = 1_024;
/// The largest reservation. Chosen here: a wrong forecast must not block an operation for good.
const UNITS_MAX: u32 = 100;

#[derive(Debug, Default)]
pub struct GraphqlPrices {
    inner: Mutex<Prices>,
}

#[derive(Debug, Default)]
struct Prices {
    /// Prices above 1.
    units: HashMap<OperationKey, u32>,
    oldest_first: VecDeque<OperationKey>,
}

impl GraphqlPrices {
    /// Units of the primary budget to reserve, at least 1.
    pub fn of(&self, operation: OperationKey) -> u32 {
        self.inner.lock().units.get(&operation).copied().unwrap_or(1)
    }

    pub fn record(&self, operation: OperationKey, answer: &[u8]) {
        let Some(units) = price_in(answer) else { return };
        let units = units.clamp(1, UNITS_MAX);
        let Prices { units: known, oldest_first } = &mut *self.inner.lock();
        if let Some(price) = known.get_mut(&operation) {
            *price = units;
            return;
        }
        if units == 1 {
            return;
        }
        if known.len() >= OPERATIONS_MAX
            && let Some(oldest) = oldest_first.pop_front()
        {
            known.remove(&oldest);
        }
        known.insert(operation, units);
        oldest_first.push_back(operation);
    }
}

fn price_in(answer: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Answer {
        data: Option<Data>,
    }
    #[derive(Deserialize)]
    struct Data {
        #[serde(rename = "rateLimit")]
        rate_limit: Option<RateLimit>,
    }
    #[derive(Deserialize)]
    struct RateLimit {
        cost: u32,
    }
    serde_json::from_slice::<Answer>(answer).ok()?.data?.rate_limit.map(|rate| rate.cost)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};
    use serde_json::json;

    use super::*;
    use crate::api::GraphqlRequest;

    fn operation(name: usize) -> OperationKey {
        let body =
            json!({ "query": format!("query Q{name} {{ rateLimit {{ cost }} }}") }).to_string();
        GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body.as_bytes())
            .priced
            .unwrap()
    }

    fn answer(cost: u32) -> Vec<u8> {
        json!({ "data": { "viewer": { "login": "ada" }, "rateLimit": { "cost": cost } } })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn an_operation_costs_its_last_reported_price() {
        let prices = GraphqlPrices::default();
        assert_eq!(prices.of(operation(1)), 1);
        for cost in [7, 3, 1, 50] {
            prices.record(operation(1), &answer(cost));
            assert_eq!(prices.of(operation(1)), cost);
        }
        assert_eq!(prices.of(operation(2)), 1);
    }

    #[test]
    fn a_missing_price_changes_nothing_and_prices_are_clamped() {
        let prices = GraphqlPrices::default();
        prices.record(operation(1), &answer(7));
        for silent in [
            "",
            "{}",
            "null",
            "{\"data\":null}",
            "{\"data\":{\"rateLimit\":null}}",
            "{\"data\":{\"rateLimit\":{\"cost\":-1}}}",
        ] {
            prices.record(operation(1), silent.as_bytes());
            assert_eq!(prices.of(operation(1)), 7, "{silent}");
        }
        prices.record(operation(1), &answer(u32::MAX));
        assert_eq!(prices.of(operation(1)), UNITS_MAX);
        prices.record(operation(1), &answer(0));
        assert_eq!(prices.of(operation(1)), 1);
    }

    #[test]
    fn the_number_of_remembered_prices_is_bounded() {
        let prices = GraphqlPrices::default();
        (0..3 * OPERATIONS_MAX).for_each(|name| prices.record(operation(name), &answer(2)));
        let inner = prices.inner.lock();
        assert_eq!((inner.units.len(), inner.oldest_first.len()), (OPERATIONS_MAX, OPERATIONS_MAX));
        assert_eq!(inner.units.get(&operation(3 * OPERATIONS_MAX - 1)), Some(&2));
    }
}
