//! Tests the webhook of an app (SPECIFICATION, "Webhooks").

use serde_json::{Value, json};

use crate::emulator::auth::jwt::tests::signed;
use crate::emulator::tests::*;

const CONFIG: &str = "/app/hook/config";
const DELIVERIES: &str = "/app/hook/deliveries";

fn jwt(upstream: &Upstream) -> String {
    let now = upstream.now.as_secs();
    signed(&json!({ "alg": "RS256" }), &json!({ "iss": 301, "iat": now - 60, "exp": now + 500 }))
}

fn ids(answer: &Answer) -> Vec<u64> {
    answer.items().iter().filter_map(|delivery| delivery["id"].as_u64()).collect()
}

#[test]
fn only_a_jwt_opens_the_app_webhook() {
    let mut upstream = Upstream::new();
    let routes = [
        (Method::GET, CONFIG),
        (Method::PATCH, CONFIG),
        (Method::GET, DELIVERIES),
        (Method::GET, "/app/hook/deliveries/1"),
        (Method::POST, "/app/hook/deliveries/1/attempts"),
    ];
    for (method, path) in routes {
        for token in [ADA, ADA_FINE, INSTALLATION, WORKFLOW, OAUTH, "emu_app_user_ben"] {
            upstream
                .send(&request(method.clone(), token, path, &[], &Value::Null))
                .assert_status(403);
        }
        upstream.send(&request(method.clone(), NOBODY, path, &[], &Value::Null)).assert_status(401);
        upstream.send(&request(method, "wrong", path, &[], &Value::Null)).assert_status(401);
    }
    let jwt = jwt(&upstream);
    upstream
        .send(&request(
            Method::GET,
            NOBODY,
            CONFIG,
            &[("authorization", &format!("token {jwt}"))],
            &Value::Null,
        ))
        .assert_status(401);
    upstream.get(&jwt, CONFIG).assert_status(200);
}

#[test]
fn the_configuration_has_its_fields_and_a_masked_secret() {
    let mut upstream = Upstream::new();
    let jwt = jwt(&upstream);
    let config = upstream.get(&jwt, CONFIG).assert_status(200).body;
    let expected = json!({ "url": "https://receiver.example.com/app", "content_type": "json", "insecure_ssl": "0", "secret": "********" });
    assert_eq!(config, expected);
}

#[test]
fn a_patch_changes_only_the_named_configuration() {
    let mut upstream = Upstream::new();
    let jwt = jwt(&upstream);
    let config =
        upstream.patch(&jwt, CONFIG, &json!({ "insecure_ssl": 1 })).assert_status(200).body;
    assert_eq!((&config["insecure_ssl"], &config["secret"]), (&json!("1"), &json!("********")));
    let config = upstream
        .patch(
            &jwt,
            CONFIG,
            &json!({ "url": "http://127.0.0.1:1/x", "content_type": "form", "secret": "" }),
        )
        .body;
    assert_eq!(
        config,
        json!({ "url": "http://127.0.0.1:1/x", "content_type": "form", "insecure_ssl": "1" }),
        "an empty secret is none"
    );
    assert_eq!(upstream.get(&jwt, CONFIG).body, config);
    assert_eq!(
        upstream.patch(&jwt, CONFIG, &Value::Null).assert_status(200).body,
        config,
        "everything is optional"
    );
}

#[test]
fn wrong_values_are_422_and_change_nothing() {
    let mut upstream = Upstream::new();
    let jwt = jwt(&upstream);
    let before = upstream.get(&jwt, CONFIG).body;
    for wrong in [Value::Null, json!(7), json!(true), json!([]), json!({}), json!("\u{1f980}")] {
        for field in ["url", "content_type", "insecure_ssl"] {
            upstream.patch(&jwt, CONFIG, &json!({ field: wrong })).assert_names_field(field);
        }
    }
    upstream.patch(&jwt, CONFIG, &json!({ "secret": 1 })).assert_names_field("secret");
    let all = upstream.patch(
        &jwt,
        CONFIG,
        &json!({ "url": 1, "content_type": 1, "secret": 1, "insecure_ssl": 2 }),
    );
    assert_eq!(all.body["errors"].as_array().map(Vec::len), Some(4), "all faults at once");
    assert_eq!(upstream.get(&jwt, CONFIG).body, before);
}

#[test]
fn deliveries_are_paged_by_cursor_and_name_the_installation() {
    let mut upstream = Upstream::new();
    let jwt = jwt(&upstream);
    let first = upstream.get(&jwt, DELIVERIES).assert_status(200);
    assert_eq!((first.items().len(), &first.items()[0]["installation_id"]), (30, &json!(311)));
    let next = first.link("next").expect("there are more");
    let second =
        upstream.get(&jwt, next.strip_prefix("http://upstream.test").expect("our address"));
    assert_eq!(second.items().len(), 10);
    assert!(ids(&first).iter().min() > ids(&second).iter().max());
    upstream.get(&jwt, &format!("{DELIVERIES}?cursor=x")).assert_status(400);
    upstream.get(&jwt, &format!("{DELIVERIES}?per_page=x")).assert_names_field("per_page");
}

#[test]
fn a_delivery_is_of_the_target_type_integration() {
    let mut upstream = Upstream::new();
    let jwt = jwt(&upstream);
    let id = ids(&upstream.get(&jwt, DELIVERIES))[0];
    let detail = upstream.get(&jwt, &format!("{DELIVERIES}/{id}")).assert_status(200).body;
    let headers = &detail["request"]["headers"];
    assert_eq!(headers["x-service-hook-installation-target-type"], "integration");
    assert_eq!(headers["x-service-hook-installation-target-id"], "301");
    assert_eq!(detail["request"]["payload"]["installation"]["id"], 311);
    for id in ["abc", "-1"] {
        upstream.get(&jwt, &format!("{DELIVERIES}/{id}")).assert_status(400);
        upstream
            .post(&jwt, &format!("{DELIVERIES}/{id}/attempts"), &Value::Null)
            .assert_status(400);
    }
    for (id, status) in [("1", 404), ("99999999999999999999", 422)] {
        upstream.get(&jwt, &format!("{DELIVERIES}/{id}")).assert_status(status);
        upstream
            .post(&jwt, &format!("{DELIVERIES}/{id}/attempts"), &Value::Null)
            .assert_status(status);
    }
}

#[test]
fn an_attempt_redelivers_with_the_same_guid() {
    let mut upstream = Upstream::new();
    let jwt = jwt(&upstream);
    let before = upstream.get(&jwt, DELIVERIES);
    upstream
        .post(&jwt, &format!("{DELIVERIES}/{}/attempts", ids(&before)[2]), &Value::Null)
        .assert_status(202);
    let after = upstream.get(&jwt, DELIVERIES);
    assert_eq!(
        (&after.items()[0]["redelivery"], &after.items()[0]["guid"]),
        (&json!(true), &before.items()[2]["guid"])
    );
    assert_eq!(after.items()[0]["installation_id"], 311);
}

#[test]
fn an_app_gets_events_only_where_it_is_installed() {
    let mut upstream = Upstream::new();
    let jwt = jwt(&upstream);
    let newest = |upstream: &mut Upstream| {
        upstream.get(&jwt, &format!("{DELIVERIES}?per_page=1")).items()[0].clone()
    };
    let seeded = newest(&mut upstream);
    upstream.post(BEN, "/repos/acme/widgets/issues", &json!({ "title": "x" })).assert_status(201);
    let of_acme = newest(&mut upstream);
    assert_eq!(
        (&of_acme["event"], &of_acme["installation_id"], &of_acme["repository_id"]),
        (&json!("issues"), &json!(311), &json!(1001))
    );
    upstream.post(DAN, "/repos/globex/portal/issues", &json!({ "title": "x" })).assert_status(201);
    assert_eq!(newest(&mut upstream)["installation_id"], 312);
    let before = newest(&mut upstream)["id"].clone();
    upstream.post(ADA, "/repos/ada/dotfiles/issues", &json!({ "title": "x" })).assert_status(201);
    assert_eq!(newest(&mut upstream)["id"], before, "it is not installed at a user");
    assert_ne!(seeded["id"], before);
    let payload =
        upstream.get(&jwt, &format!("{DELIVERIES}/{}", of_acme["id"])).body["request"]["payload"]
            .clone();
    assert_eq!(
        (&payload["installation"]["id"], &payload["organization"]["login"]),
        (&json!(311), &json!("acme"))
    );
}
