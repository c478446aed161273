//! Deliveries: the pages of their lists, and the delivered requests.

use crate::document_3::{deliveries, received};
use crate::evidence::Evidence;
use crate::table::{RuleRow, Table, rule};
use crate::tests;

const LISTS: &[RuleRow] = &[
    rule(
        "per_page",
        "default 30, max 100",
        &[],
        tests![deliveries::a_page_has_30_deliveries_by_default_and_100_at_most],
    ),
    rule(
        "cursor",
        "taken from the paging link of the previous response",
        &[Evidence::Header("link")],
        tests![deliveries::the_cursor_leads_through_every_delivery_once],
    ),
    rule(
        "status",
        "filter on the outcome",
        &[],
        tests![deliveries::deliveries_are_filtered_by_their_outcome],
    ),
];

const HEADERS: &[RuleRow] = &[
    rule(
        "X-Service-Delivery",
        "guid",
        &[Evidence::Header("X-Service-Delivery")],
        tests![received::a_delivery_has_its_headers],
    ),
    rule(
        "X-Service-Event",
        "event name",
        &[Evidence::Header("X-Service-Event")],
        tests![received::a_delivery_has_its_headers],
    ),
    rule(
        "X-Service-Hook-ID",
        "hook id",
        &[Evidence::Header("X-Service-Hook-ID")],
        tests![received::a_delivery_has_its_headers],
    ),
    rule(
        "X-Service-Hook-Installation-Target-ID",
        "id of the target",
        &[Evidence::Header("X-Service-Hook-Installation-Target-ID")],
        tests![received::a_delivery_has_its_headers],
    ),
    rule(
        "X-Service-Hook-Installation-Target-Type",
        "type of target",
        &[Evidence::Header("X-Service-Hook-Installation-Target-Type")],
        tests![received::a_delivery_has_its_headers],
    ),
    rule(
        "X-Hub-Signature-256",
        "with the secret",
        &[Evidence::Header("X-Hub-Signature-256")],
        tests![received::a_delivery_is_signed_with_the_secret],
    ),
    rule(
        "X-Hub-Signature",
        "legacy",
        &[Evidence::Header("X-Hub-Signature")],
        tests![received::a_delivery_is_signed_with_the_secret],
    ),
    rule(
        "User-Agent",
        "a hookshot agent",
        &[Evidence::Header("User-Agent")],
        tests![received::a_delivery_has_its_headers],
    ),
    rule(
        "content-type",
        "chosen by content_type",
        &[Evidence::Header("content-type")],
        tests![
            received::a_delivery_has_its_headers,
            received::the_content_type_chooses_the_media_type
        ],
    ),
    rule(
        "Accept",
        "any",
        &[Evidence::Header("Accept")],
        tests![received::a_delivery_has_its_headers],
    ),
];

const EVENTS: &[RuleRow] = &[
    rule(
        "POST",
        "payloads go to the configured url when subscribed events occur",
        &[],
        tests![received::a_subscribed_event_is_posted_to_the_url],
    ),
    rule("ping", "POST …/pings sends a ping event", &[], tests![received::a_ping_is_sent]),
    rule(
        "attempts",
        "resends that delivery",
        &[],
        tests![received::a_redelivery_is_sent_with_the_same_guid],
    ),
    rule(
        "payload",
        "an action and the affected objects",
        &[],
        tests![received::the_payload_carries_an_action_and_the_affected_objects],
    ),
    rule(
        "event names",
        "push, pull_request, issues, ping",
        &[],
        tests![received::the_named_events_occur],
    ),
    rule(
        "for an app",
        "events of the app",
        &[],
        tests![received::events_of_an_organization_with_the_app_reach_the_app],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::new(3, "Delivery lists", 3, LISTS),
        Table::new(3, "Delivery request headers", 10, HEADERS),
        Table::new(3, "Events", 6, EVENTS),
    ]
}
