//! The app webhook: its configuration and its deliveries, for a JWT alone.

use serde_json::{Value, json};

use crate::document_3::deliveries::assert_is_a_page_of;
use crate::kit::Upstream;
use crate::rows::document_3::webhooks::{DELIVERY_DETAIL, DELIVERY_SUMMARY, WEBHOOK_CONFIGURATION};
use crate::shape::{assert_shape, assert_shapes};

const CONFIG: &str = "/app/hook/config";
const DELIVERIES: &str = "/app/hook/deliveries";

/// The id of a delivery of the app's webhook.
fn a_delivery(upstream: &mut Upstream, jwt: &str) -> u64 {
    let answer = upstream.get(jwt, DELIVERIES).expect_status(200);
    answer
        .items()
        .first()
        .and_then(|delivery| delivery["id"].as_u64())
        .expect("the app's webhook has deliveries")
}

#[test]
pub fn an_app_reads_and_changes_its_webhook_configuration() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    let change = json!({ "url": "https://elsewhere.example.com/hook", "content_type": "json", "secret": "sesame", "insecure_ssl": "0" });
    let changed = upstream.patch(&jwt, CONFIG, &change).expect_status(200);
    assert_shape(&changed.body, &WEBHOOK_CONFIGURATION);
    let read = upstream.get(&jwt, CONFIG).expect_status(200);
    assert_shape(&read.body, &WEBHOOK_CONFIGURATION);
    assert_eq!(read.body["url"], "https://elsewhere.example.com/hook");
    assert_ne!(read.body["secret"], "sesame", "it is masked");
}

#[test]
pub fn every_field_of_the_configuration_is_optional() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    let before = upstream.get(&jwt, CONFIG).expect_status(200).body;
    let after = upstream.patch(&jwt, CONFIG, &json!({ "insecure_ssl": 1 })).expect_status(200).body;
    assert_eq!((&after["url"], &after["content_type"]), (&before["url"], &before["content_type"]));
    assert_eq!(
        after["insecure_ssl"]
            .as_str()
            .map_or_else(|| after["insecure_ssl"].to_string(), str::to_owned),
        "1"
    );
    upstream.patch(&jwt, CONFIG, &json!({})).expect_status(200);
}

#[test]
pub fn deliveries_are_listed_by_cursor_and_shown() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    let list = upstream.get(&jwt, DELIVERIES).expect_status(200);
    assert_shapes(&list.body, &DELIVERY_SUMMARY);
    let id = a_delivery(&mut upstream, &jwt);
    let shown = upstream.get(&jwt, &format!("{DELIVERIES}/{id}")).expect_status(200);
    assert_shape(&shown.body, &DELIVERY_DETAIL);
    let page = upstream.get(&jwt, &format!("{DELIVERIES}?per_page=1")).expect_status(200);
    assert_is_a_page_of(&page, &list);
}

#[test]
pub fn a_delivery_is_sent_again() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    let id = a_delivery(&mut upstream, &jwt);
    upstream.post(&jwt, &format!("{DELIVERIES}/{id}/attempts"), &Value::Null).expect_status(202);
    let newest = upstream.get(&jwt, DELIVERIES).body[0].clone();
    assert_eq!(newest["redelivery"], true);
}

#[test]
pub fn malformed_queries_for_deliveries_are_refused() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    upstream.get(&jwt, &format!("{DELIVERIES}?cursor=nonsense")).expect_status(400);
    upstream.get(&jwt, &format!("{DELIVERIES}?per_page=many")).expect_status(422);
    upstream.get(&jwt, &format!("{DELIVERIES}/first")).expect_status(400);
    upstream.post(&jwt, &format!("{DELIVERIES}/first/attempts"), &Value::Null).expect_status(400);
    upstream.get(&jwt, &format!("{DELIVERIES}/99999999999999999999")).expect_status(422);
    upstream
        .post(&jwt, &format!("{DELIVERIES}/99999999999999999999/attempts"), &Value::Null)
        .expect_status(422);
    upstream.patch(&jwt, CONFIG, &json!({ "url": 7 })).assert_names_field("url");
}

#[test]
pub fn other_credentials_are_rejected() {
    let mut upstream = Upstream::new();
    let jwt = upstream.jwt();
    upstream.get(&jwt, CONFIG).expect_status(200);
    let (uat, iat) = (upstream.token("app-user", "ben"), upstream.installation("acme"));
    let fine = upstream.token("fine-grained", "ada");
    for token in [&uat, &iat, &fine] {
        upstream.get(token, CONFIG).expect_status(403);
        upstream.patch(token, CONFIG, &json!({})).expect_status(403);
        upstream.get(token, DELIVERIES).expect_status(403);
        upstream.get(token, &format!("{DELIVERIES}/1")).expect_status(403);
        upstream.post(token, &format!("{DELIVERIES}/1/attempts"), &Value::Null).expect_status(403);
    }
}
