//! Delivery records: lists by cursor, details, redelivery.

use serde_json::{Value, json};

use crate::document_3::webhooks::HOOKS;
use crate::kit::{Answer, Upstream};
use crate::rows::document_3::webhooks::{DELIVERY_DETAIL, DELIVERY_SUMMARY};
use crate::shape::{assert_shape, assert_shapes};

/// The path of the deliveries of the seeded hook with the most of them.
pub fn seeded(upstream: &mut Upstream) -> String {
    let world = upstream.world();
    let hooks = world["hooks"]
        .as_array()
        .expect("the world shows its hooks")
        .iter()
        .filter(|hook| hook["organization"] == "acme");
    let hook = hooks.max_by_key(|hook| hook["deliveries"].as_u64()).expect("acme has a hook");
    format!("{HOOKS}/{}/deliveries", hook["id"])
}

/// Asserts that `page` holds the first item of `list` and leads to the next one.
pub fn assert_is_a_page_of(page: &Answer, list: &Answer) {
    assert_eq!(page.items().len(), 1);
    assert_eq!(page.items()[0]["id"], list.items()[0]["id"]);
    let next = page.link("next").expect("there are more");
    assert!(next.contains("cursor="), "{next}");
}

#[test]
pub fn deliveries_are_listed() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = seeded(&mut upstream);
    let list = upstream.get(&ada, &path).expect_status(200);
    assert_shapes(&list.body, &DELIVERY_SUMMARY);
    upstream.get(&ada, &format!("{path}?cursor=nonsense")).expect_status(400);
    upstream.get(&ada, &format!("{path}?status=perhaps")).expect_status(422);
}

#[test]
pub fn a_page_has_30_deliveries_by_default_and_100_at_most() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = seeded(&mut upstream);
    for _ in 0..110 {
        upstream.post(&ada, &path.replace("deliveries", "pings"), &Value::Null).expect_status(204);
        upstream.pass(2);
    }
    assert_eq!(upstream.get(&ada, &path).items().len(), 30);
    assert_eq!(upstream.get(&ada, &format!("{path}?per_page=7")).items().len(), 7);
    assert_eq!(upstream.get(&ada, &format!("{path}?per_page=1000")).items().len(), 100);
}

#[test]
pub fn the_cursor_leads_through_every_delivery_once() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = seeded(&mut upstream);
    let whole: Vec<u64> = ids(&upstream.get(&ada, &format!("{path}?per_page=100")));
    let (mut seen, mut next) = (Vec::new(), Some(format!("{path}?per_page=9")));
    while let Some(path) = next {
        let page = upstream.get(&ada, &path).expect_status(200);
        seen.extend(ids(&page));
        next = page.link("next");
    }
    assert!(whole.len() > 9);
    assert_eq!(seen, whole);
}

fn ids(list: &Answer) -> Vec<u64> {
    list.items().iter().filter_map(|delivery| delivery["id"].as_u64()).collect()
}

#[test]
pub fn deliveries_are_filtered_by_their_outcome() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = seeded(&mut upstream);
    let failed =
        upstream.get(&ada, &format!("{path}?status=failure&per_page=100")).expect_status(200);
    assert!(!failed.items().is_empty(), "the world has a failed delivery");
    assert!(failed.items().iter().all(|one| one["status"] != "OK"));
    let fine =
        upstream.get(&ada, &format!("{path}?status=success&per_page=100")).expect_status(200);
    assert!(
        fine.items()
            .iter()
            .all(|one| one["status_code"].as_u64().is_some_and(|code| (200..400).contains(&code)))
    );
}

#[test]
pub fn a_delivery_is_shown() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = seeded(&mut upstream);
    let id = ids(&upstream.get(&ada, &path))[0];
    let shown = upstream.get(&ada, &format!("{path}/{id}")).expect_status(200);
    assert_shape(&shown.body, &DELIVERY_DETAIL);
    assert_shape(&shown.body, &DELIVERY_SUMMARY);
    upstream.get(&ada, &format!("{path}/first")).expect_status(400);
    upstream.get(&ada, &format!("{path}/99999999999999999999")).expect_status(422);
}

#[test]
pub fn an_attempt_resends_the_delivery_with_redelivery_true() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let path = seeded(&mut upstream);
    let first = upstream.get(&ada, &path).body[0].clone();
    upstream
        .post(&ada, &format!("{path}/{}/attempts", first["id"]), &Value::Null)
        .expect_status(202);
    let again = upstream.get(&ada, &path).body[0].clone();
    assert_eq!(
        (&again["guid"], &again["redelivery"], &again["event"]),
        (&first["guid"], &json!(true), &first["event"])
    );
    assert_ne!(again["id"], first["id"]);
    upstream.post(&ada, &format!("{path}/first/attempts"), &Value::Null).expect_status(400);
    upstream
        .post(&ada, &format!("{path}/99999999999999999999/attempts"), &Value::Null)
        .expect_status(422);
}
