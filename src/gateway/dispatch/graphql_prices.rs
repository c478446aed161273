//! Known prices of GraphQL operations, for reservations (SPECIFICATION, "GraphQL").
//!
//! An operation that asks for `rateLimit { cost }` reveals its price. The price of any other is the
//! difference of the rate headers before and after it, if no other request was on its way then. It
//! also depends on variables, which are ignored: it is a forecast.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::api::{GraphqlRequest, OperationKey, has_errors};

/// The most operations remembered. Beyond that the client with the most loses its oldest. Chosen
/// here: bots have tens of documents, but inlined values make new ones without end.
const OPERATIONS_MAX: usize = 1_024;
/// The largest price without rate headers that name the limit: the documented one.
const UNITS_MAX: u32 = 5_000;

/// A GraphQL operation, as far as its price is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub key: OperationKey,
    /// Its answer reports the price.
    pub reports_cost: bool,
}

impl Operation {
    /// The operation of a request; `None` if it is unclear.
    pub fn of(request: &GraphqlRequest) -> Option<Self> {
        let reports_cost = request.reports_cost;
        request.operation.map(|key| Self { key, reports_cost })
    }
}

#[derive(Debug, Default)]
pub struct GraphqlPrices {
    inner: Mutex<Prices>,
}

#[derive(Debug, Default)]
struct Prices {
    by_operation: HashMap<OperationKey, Price>,
    /// The operations that each client taught, the oldest first.
    taught: HashMap<u32, VecDeque<OperationKey>>,
}

/// The price of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    pub units: u32,
    /// A price that the answer named, or that two measurements show.
    pub proven: u32,
    /// A higher price that was measured once. Others may have spent a part of it, so it needs a
    /// second measurement.
    pub higher: Option<u32>,
}

/// The price of an answer by its rate headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Their difference; `None` if it may be that of several requests.
    pub units: Option<u32>,
    /// The limit of the budget, which no price exceeds.
    pub limit: Option<u32>,
}

impl GraphqlPrices {
    /// Units of the primary budget to reserve, at least 1.
    pub fn of(&self, operation: OperationKey) -> u32 {
        self.known(operation).map_or(1, |price| price.units)
    }

    /// The units that are proven, at least 1.
    pub fn proven(&self, operation: OperationKey) -> u32 {
        self.known(operation).map_or(1, |price| price.proven)
    }

    /// Learns from a complete answer to this client's operation. `answer` is `None` if it is too
    /// long to hold. Returns a price that was not known.
    pub fn learn(
        &self,
        client: u32,
        operation: Operation,
        answer: Option<&[u8]>,
        measured: Measured,
    ) -> Option<Price> {
        let reported = answer.filter(|_| operation.reports_cost).and_then(price_in);
        let most = measured.limit.unwrap_or(UNITS_MAX).max(1);
        let clamped = |units: u32| units.clamp(1, most);
        // Not one lock with the change: of two answers at once, either may count.
        let known = self.known(operation.key);
        let price = match (reported.map(clamped), measured.units.map(clamped)) {
            (Some(units), _) => Price { units, proven: units, higher: None },
            // A query that failed cost less than it will.
            (None, Some(units))
                if known.is_some_and(|known| known.units == units)
                    || !answer.is_some_and(has_errors) =>
            {
                Price::measured(known, units)
            }
            (None, _) => return None,
        };
        self.set(client, operation.key, price);
        (known != Some(price)).then_some(price)
    }

    /// Takes over a price, to which this client's operations are bound.
    pub fn set(&self, client: u32, operation: OperationKey, price: Price) {
        self.inner.lock().set(client, operation, price);
    }

    fn known(&self, operation: OperationKey) -> Option<Price> {
        self.inner.lock().by_operation.get(&operation).copied()
    }
}

impl Price {
    /// The price after a measurement. The first one counts, because it is the best forecast.
    fn measured(known: Option<Self>, measured: u32) -> Self {
        match known {
            None => Self { units: measured, proven: 1, higher: None },
            Some(Self { units, higher: None, .. }) if measured > units => {
                Self { units, proven: units, higher: Some(measured) }
            }
            Some(Self { units, higher: Some(higher), .. }) if measured > units => {
                let both = measured.min(higher);
                Self { units: both, proven: both, higher: None }
            }
            Some(_) => Self { units: measured, proven: measured, higher: None },
        }
    }
}

impl Prices {
    fn set(&mut self, client: u32, operation: OperationKey, price: Price) {
        if let Some(known) = self.by_operation.get_mut(&operation) {
            *known = price;
            return;
        }
        if self.by_operation.len() >= OPERATIONS_MAX
            && let Some(most) = self.taught.values_mut().max_by_key(|taught| taught.len())
            && let Some(oldest) = most.pop_front()
        {
            self.by_operation.remove(&oldest);
        }
        self.by_operation.insert(operation, price);
        self.taught.entry(client).or_default().push_back(operation);
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

    fn operation(name: usize) -> Operation {
        let body =
            json!({ "query": format!("query Q{name} {{ rateLimit {{ cost }} }}") }).to_string();
        let request = GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body.as_bytes());
        Operation::of(&request).unwrap()
    }

    /// The same for a document that does not ask for its price.
    fn silent(name: usize) -> Operation {
        Operation { reports_cost: false, ..operation(name) }
    }

    fn answer(cost: u32) -> Vec<u8> {
        json!({ "data": { "viewer": { "login": "ada" }, "rateLimit": { "cost": cost } } })
            .to_string()
            .into_bytes()
    }

    /// Learns from an answer with this price by its rate headers, under a limit of 5,000.
    fn learn(
        prices: &GraphqlPrices,
        operation: Operation,
        answer: Option<&[u8]>,
        units: Option<u32>,
    ) {
        prices.learn(0, operation, answer, Measured { units, limit: Some(5_000) });
    }

    #[test]
    fn an_operation_costs_its_last_reported_price() {
        let prices = GraphqlPrices::default();
        assert_eq!(prices.of(operation(1).key), 1);
        for cost in [7, 3, 1, 50, 251, 4_000] {
            learn(&prices, operation(1), Some(&answer(cost)), None);
            let key = operation(1).key;
            assert_eq!((prices.of(key), prices.proven(key)), (cost, cost));
        }
        assert_eq!(prices.of(operation(2).key), 1);
    }

    #[test]
    fn a_missing_price_changes_nothing_and_a_limit_bounds_prices() {
        let prices = GraphqlPrices::default();
        learn(&prices, operation(1), Some(&answer(7)), None);
        for silent in [
            "",
            "{}",
            "null",
            "{\"data\":null}",
            "{\"data\":{\"rateLimit\":null}}",
            "{\"data\":{\"rateLimit\":{\"cost\":-1}}}",
        ] {
            learn(&prices, operation(1), Some(silent.as_bytes()), None);
            assert_eq!(prices.of(operation(1).key), 7, "{silent}");
        }
        for (limit, most) in [(Some(700), 700), (None, UNITS_MAX), (Some(0), 1)] {
            let measured = Measured { units: None, limit };
            prices.learn(0, operation(1), Some(&answer(u32::MAX)), measured);
            assert_eq!(prices.of(operation(1).key), most);
        }
        learn(&prices, operation(1), Some(&answer(0)), None);
        assert_eq!(prices.of(operation(1).key), 1);
    }

    #[test]
    fn a_client_with_many_operations_drops_no_price_of_others() {
        let prices = GraphqlPrices::default();
        prices.learn(1, operation(0), Some(&answer(9)), Measured::default());
        for name in 1..3 * OPERATIONS_MAX {
            learn(&prices, operation(name), Some(&answer(2)), None);
        }
        assert_eq!(prices.of(operation(0).key), 9);
        assert_eq!(prices.of(operation(1).key), 1, "its own oldest is gone");
        let inner = prices.inner.lock();
        let taught: usize = inner.taught.values().map(VecDeque::len).sum();
        assert_eq!((inner.by_operation.len(), taught), (OPERATIONS_MAX, OPERATIONS_MAX));
        assert!(inner.by_operation.contains_key(&operation(3 * OPERATIONS_MAX - 1).key));
    }

    #[test]
    fn a_measured_price_rises_only_when_it_is_seen_again() {
        let prices = GraphqlPrices::default();
        let price_after = |units| {
            learn(&prices, silent(1), Some(b"{\"data\":{}}"), Some(units));
            prices.of(silent(1).key)
        };
        assert_eq!([5, 90, 5, 9, 8, 2, 0, 200].map(price_after), [5, 5, 5, 5, 8, 2, 1, 1]);
        assert_eq!([1, 51, 1, 51, 60].map(price_after), [1, 1, 1, 1, 51]);
    }

    #[test]
    fn a_price_is_proven_by_a_second_measurement() {
        let prices = GraphqlPrices::default();
        let proven_after = |units| {
            learn(&prices, silent(1), Some(b"{\"data\":{}}"), Some(units));
            prices.proven(silent(1).key)
        };
        assert_eq!([50, 50, 70, 60, 3].map(proven_after), [1, 50, 50, 60, 3]);
    }

    #[test]
    fn a_failed_query_and_a_reported_price_outweigh_a_measurement() {
        let prices = GraphqlPrices::default();
        learn(&prices, silent(1), None, Some(5));
        learn(&prices, silent(1), Some(b"{\"data\":{},\"errors\":[]}"), Some(1));
        assert_eq!(prices.of(silent(1).key), 5);
        learn(&prices, operation(2), Some(&answer(7)), Some(9));
        assert_eq!(prices.of(operation(2).key), 7);
    }
}
