//! The upstream's description of a webhook: its settings, and its list of deliveries
//! (SPECIFICATION, "Webhooks" and "Deliveries").
//!
//! An unreadable answer counts as none: a webhook that is not understood is not relied upon.

use std::borrow::Cow;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::api::is_known_event;

/// Stands for all events.
const EVERY_EVENT: &str = "*";

/// Settings of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSettings {
    /// True if it delivers.
    pub active: bool,
    /// Its events, sorted.
    pub events: Vec<String>,
    /// Time of the last change as the upstream writes it: an equal value means no change.
    pub updated_at: String,
}

/// One attempt to deliver, in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDelivery {
    /// Identifies the attempt, for a redelivery.
    pub id: u64,
    /// Identifies the delivery.
    pub guid: String,
    /// Time in seconds by the upstream's clock.
    pub delivered_at: u64,
    /// True if it is known to have failed.
    pub failed: bool,
    /// Event name, `unknown` for one without a known effect.
    pub event: Cow<'static, str>,
}

impl HookSettings {
    /// Reads the settings of a webhook, or of an app, which has no `active`.
    pub fn read(body: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(body).ok()?;
        let events = value.get("events")?.as_array()?.iter().filter_map(Value::as_str);
        let mut events: Vec<String> = events.map(str::to_owned).collect();
        events.sort();
        let active = value.get("active").is_none_or(|active| active.as_bool() == Some(true));
        let updated_at =
            value.get("updated_at").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self { active, events, updated_at })
    }

    /// Returns true if it announces all of these events.
    pub fn announces(&self, events: &[&str]) -> bool {
        let has = |event: &str| self.events.iter().any(|own| own == event);
        self.active && (has(EVERY_EVENT) || events.iter().all(|event| has(event)))
    }
}

impl ListedDelivery {
    /// Reads a page of deliveries.
    pub fn read_page(body: &[u8]) -> Option<Vec<Self>> {
        let items: Vec<Value> = serde_json::from_slice(body).ok()?;
        items.iter().map(Self::read).collect()
    }

    fn read(item: &Value) -> Option<Self> {
        let at = OffsetDateTime::parse(item.get("delivered_at")?.as_str()?, &Rfc3339).ok()?;
        let event = item.get("event").and_then(Value::as_str).filter(|event| is_known_event(event));
        Some(Self {
            id: item.get("id")?.as_u64()?,
            guid: item.get("guid")?.as_str()?.to_owned(),
            delivered_at: u64::try_from(at.unix_timestamp()).ok()?,
            // The status is 0 without an answer, and before there is one.
            failed: item.get("status_code")?.as_u64()? >= 400,
            event: event.map_or(Cow::Borrowed("unknown"), |event| Cow::Owned(event.to_owned())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_webhook_counts_as_none() {
        let settings = HookSettings::read(
            br#"{"active":true,"events":["push","issues"],"updated_at":"2026-01-01T00:00:00Z"}"#,
        )
        .unwrap();
        assert!(
            settings.announces(&["push"])
                && settings.announces(&["push", "issues"])
                && !settings.announces(&["push", "label"])
        );
        let all = HookSettings::read(br#"{"events":["*"]}"#).unwrap();
        assert!(all.announces(&["whatever"]));
        let off = HookSettings::read(br#"{"events":["*"],"active":false}"#).unwrap();
        assert!(!off.announces(&["push"]) && !off.announces(&[]));
        for body in ["", "[]", "{}", r#"{"events":"*"}"#] {
            assert_eq!(HookSettings::read(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn a_page_is_read_whole_or_not_at_all() {
        let good = r#"{"id":5,"guid":"g","delivered_at":"2027-01-15T08:00:01Z","status_code":502,"event":"issues"}"#;
        let page = ListedDelivery::read_page(format!("[{good}]").as_bytes()).unwrap();
        let expected = ListedDelivery {
            id: 5,
            guid: "g".into(),
            delivered_at: 1_800_000_001,
            failed: true,
            event: "issues".into(),
        };
        assert_eq!(page, [expected]);
        for (from, to) in [("502", "\"x\""), ("\"g\"", "7"), ("2027", "27"), ("\"id\":5,", "")] {
            assert_eq!(
                ListedDelivery::read_page(
                    format!("[{good},{}]", good.replace(from, to)).as_bytes()
                ),
                None,
                "{to}"
            );
        }
        for (status, failed) in [("0", false), ("202", false), ("401", true)] {
            let page =
                ListedDelivery::read_page(format!("[{}]", good.replace("502", status)).as_bytes())
                    .unwrap();
            assert_eq!(page[0].failed, failed, "{status}");
        }
    }
}
