//! The parser of `GET /rate_limit` (SPECIFICATION, "Rate limit headers").
//!
//! As strict as that of the headers: a resource that cannot be read is left out. The quota ledger
//! decides what to believe.

use serde_json::{Map, Value};

use crate::api::endpoint::resource::ResourceName;
use crate::clock::Timestamp;

/// Resources that are read. Ours: four times the known ones.
const RESOURCES_MAX: usize = 64;

/// The upstream's statement about one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedBudget {
    /// Most requests in the window.
    pub limit: u32,
    /// Requests left in the window.
    pub remaining: u32,
    /// End of the window.
    pub reset: Timestamp,
}

/// Parses the body of an answer. Returns `None` if it lists no resources.
pub fn stated_budgets(body: &[u8]) -> Option<Vec<(ResourceName, StatedBudget)>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let resources = body.get("resources")?.as_object()?;
    let stated = resources.iter().filter_map(|(name, budget)| {
        Some((ResourceName::parse(name)?, stated_budget(budget.as_object()?)?))
    });
    Some(stated.take(RESOURCES_MAX).collect())
}

fn stated_budget(budget: &Map<String, Value>) -> Option<StatedBudget> {
    let number = |name: &str| budget.get(name)?.as_u64();
    let count = |name: &str| u32::try_from(number(name)?).ok();
    let limit = count("limit").filter(|limit| *limit > 0)?;
    // Ten digits; thirteen would be milliseconds.
    let reset = number("reset").filter(|reset| *reset < 10_000_000_000)?;
    Some(StatedBudget { limit, remaining: count("remaining")?, reset: Timestamp::from_secs(reset) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_well_formed_resource_is_read() {
        let body = br#"{"resources":{
            "core":{"limit":5000,"used":10,"remaining":4990,"reset":1800000000},
            "odd":{"limit":-1,"remaining":1,"reset":1800000000},
            "milli":{"limit":1,"remaining":1,"reset":1800000000000},
            "none":{"limit":0,"remaining":0,"reset":1800000000},
            "search":{"limit":30,"remaining":30,"reset":1800000060}},"rate":{}}"#;
        let stated = stated_budgets(body).unwrap();
        let names: Vec<&str> = stated.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["core", "search"]);
        let core = StatedBudget {
            limit: 5_000,
            remaining: 4_990,
            reset: Timestamp::from_secs(1_800_000_000),
        };
        assert_eq!(stated[0].1, core);
    }

    #[test]
    fn a_body_without_resources_states_nothing() {
        for body in ["", "[]", "{}", "{\"resources\":[]}", "{\"message\":\"Not Found\"}"] {
            assert_eq!(stated_budgets(body.as_bytes()), None, "{body}");
        }
    }
}
