//! The libraries against the emulator alone, as a bot's author uses `weir emulate`: only the base
//! URL changes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

use super::driver::{Client, Library};
use super::hex;
use super::processes::Upstream;
use super::with_each_library;

with_each_library! {
    a_webhook_is_created_delivered_signed_listed_and_redelivered
    notifications_are_read_and_marked
    a_migration_is_started_and_its_archive_fetched
    a_team_member_is_added_and_removed
    a_custom_property_is_defined_and_set
    a_release_gets_an_asset
    a_repository_and_an_organisation_are_browsed
    graphql_answers
    an_app_acts_as_itself_and_where_it_is_installed
    an_exhausted_budget_is_a_rate_limit
}

const OWNER: &str = "acme";
/// The owner of acme, with every scope.
const TOKEN: &str = "emu_classic_ada_all_scopes";

fn client(library: Library, upstream: &Upstream) -> Client {
    Client { library, base_url: format!("http://{}", upstream.address), key: TOKEN.to_owned() }
}

fn plays(library: Library, scenario: &str, arguments: &Value) -> Value {
    let upstream = Upstream::emulated();
    client(library, &upstream).plays(scenario, arguments).0
}

fn a_webhook_is_created_delivered_signed_listed_and_redelivered(library: Library) {
    const SECRET: &str = "It's a Secret to Everybody";
    let upstream = Upstream::emulated();
    let receiver = Receiving::start();
    let client = client(library, &upstream);
    let arguments =
        json!({ "org": OWNER, "url": receiver.url, "secret": SECRET, "events": ["issues"] });
    let (hook, _) = client.plays("create_webhook", &arguments);
    assert_eq!(hook["events"], json!(["issues"]));
    assert_eq!((&hook["active"], &hook["secret_shown"]), (&json!(true), &Value::Null));
    assert!(
        hook["masked"]
            .as_str()
            .is_some_and(|shown| !shown.is_empty() && shown.chars().all(|c| c == '*')),
        "{hook}"
    );
    receiver.delivery().assert_is("ping", SECRET);

    client.plays(
        "create_issue",
        &json!({ "owner": OWNER, "repo": "widgets", "title": "Told", "body": "by a webhook" }),
    );
    let delivered = receiver.delivery();
    delivered.assert_is("issues", SECRET);
    assert_eq!(delivered.payload()["issue"]["title"], "Told");

    let (values, _) = client
        .plays("redeliver", &json!({ "org": OWNER, "hook_id": hook["id"], "event": "issues" }));
    assert_eq!(
        values,
        json!({ "action": "opened", "status": 202, "answered": "thank you", "attempts": 2 })
    );
    let again = receiver.delivery();
    again.assert_is("issues", SECRET);
    assert_eq!(again.header("x-github-delivery"), delivered.header("x-github-delivery"));
    assert_eq!(again.body, delivered.body);
}

fn notifications_are_read_and_marked(library: Library) {
    let values = plays(library, "notifications", &json!({}));
    let before = values["before"].as_u64().expect("a number");
    assert!(before > 50, "more than a page");
    let expected = json!({ "before": before, "marked": 205, "unread": false, "ignored": true, "one_less": before - 1, "marked_all": 205, "after": 0 });
    assert_eq!(values, expected);
}

fn a_migration_is_started_and_its_archive_fetched(library: Library) {
    let values = plays(library, "migration", &json!({ "repositories": ["acme/widgets"] }));
    assert_eq!(
        values,
        json!({ "begun": "pending", "repositories": ["acme/widgets"], "is_gzip": true })
    );
}

fn a_team_member_is_added_and_removed(library: Library) {
    let values = plays(
        library,
        "team_membership",
        &json!({ "org": OWNER, "team_slug": "platform", "username": "scan-bot" }),
    );
    assert_eq!(values["added"], json!({ "role": "maintainer", "state": "active" }));
    assert!(
        values["during"].as_array().is_some_and(|logins| logins.contains(&json!("scan-bot"))),
        "{values}"
    );
    assert_eq!(values["removed"], 204);
    assert_eq!(values["before"], values["after"]);
}

fn a_custom_property_is_defined_and_set(library: Library) {
    let arguments = json!({ "org": OWNER, "repo": "widgets", "name": "tier", "allowed_values": ["gold", "silver"], "value": "gold" });
    let values = plays(library, "custom_properties", &arguments);
    assert_eq!(
        values,
        json!({ "defined": "tier", "allowed": ["gold", "silver"], "value": "gold" })
    );
}

fn a_release_gets_an_asset(library: Library) {
    let arguments = json!({ "owner": OWNER, "repo": "widgets", "tag": "v2.0.0", "name": "notes.txt", "text": "hello" });
    assert_eq!(
        plays(library, "release", &arguments),
        json!({ "tag": "v2.0.0", "assets": ["notes.txt"], "size": 5 })
    );
}

fn a_repository_and_an_organisation_are_browsed(library: Library) {
    let values =
        plays(library, "look_around", &json!({ "owner": OWNER, "repo": "widgets", "org": OWNER }));
    assert_eq!(
        (&values["login"], &values["branch"], &values["readme"]),
        (&json!("ada"), &json!("main"), &json!("README.md"))
    );
    assert_eq!((&values["head"], &values["pulls"]), (&json!(true), &json!(true)));
    for (list, wanted) in [("members", "ben"), ("teams", "platform")] {
        assert!(
            values[list].as_array().is_some_and(|names| names.contains(&json!(wanted))),
            "{values}"
        );
    }
}

fn graphql_answers(library: Library) {
    let values = plays(library, "graphql", &json!({ "owner": OWNER, "repo": "widgets" }));
    assert_eq!(values, json!({ "login": "ada", "name": "acme/widgets", "issues": 5, "cost": 1 }));
}

fn an_app_acts_as_itself_and_where_it_is_installed(library: Library) {
    let upstream = Upstream::emulated();
    let app = upstream.control("world")["apps"][0].clone();
    let client = client(library, &upstream);
    let arguments = json!({ "app_id": app["app_id"], "private_key": app["private_key"], "base_url": client.base_url });
    let (values, _) = client.plays("app", &arguments);
    assert_eq!(
        values,
        json!({ "installations": app["installations"].as_array().map(Vec::len), "repositories": true, "has_hook": true })
    );
}

fn an_exhausted_budget_is_a_rate_limit(library: Library) {
    let upstream = Upstream::emulated();
    upstream.limit(&json!({ "core@ada": 3 }));
    let numbers: Vec<u64> = (1..=5).collect();
    let (values, _) = client(library, &upstream)
        .plays("exhaust", &json!({ "owner": OWNER, "repo": "widgets", "numbers": numbers }));
    assert_eq!(values["served"], json!([2, 1, 0]));
    assert_eq!(values["refused"]["remaining"], 0);
    match library {
        Library::Octokit => assert_eq!(values["handled"][0]["limit"], "primary", "{values}"),
        Library::PyGithub => {
            assert_eq!(values["refused"]["kind"], "RateLimitExceededException", "{values}");
        }
    }
}

/// A receiver of deliveries that answers each with 200.
struct Receiving {
    url: String,
    deliveries: Receiver<Delivery>,
}

/// A request that a receiver got.
struct Delivery {
    head: String,
    body: Vec<u8>,
}

impl Receiving {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        // By host name, so that the driver does not take the URL for one of the API.
        let url =
            format!("http://localhost:{}/hook", listener.local_addr().expect("it is bound").port());
        let (sender, deliveries) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // The test may have ended already.
                let _ = receive(stream).map(|delivery| sender.send(delivery));
            }
        });
        Self { url, deliveries }
    }

    fn delivery(&self) -> Delivery {
        self.deliveries.recv_timeout(Duration::from_mins(1)).expect("a delivery")
    }
}

fn receive(stream: TcpStream) -> Option<Delivery> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    let mut delivery = Delivery { head, body: Vec::new() };
    delivery.body = vec![0; delivery.header("content-length").parse().ok()?];
    reader.read_exact(&mut delivery.body).ok()?;
    reader
        .get_mut()
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nthank you")
        .ok()?;
    Some(delivery)
}

impl Delivery {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines
            .into_iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value.trim())
    }

    fn payload(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON payload")
    }

    /// Asserts the event and its signature, as a receiver would check it.
    fn assert_is(&self, event: &str, secret: &str) {
        assert_eq!(self.header("x-github-event"), event, "{}", self.head);
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let signature = hex(ring::hmac::sign(&key, &self.body).as_ref());
        assert_eq!(self.header("x-hub-signature-256"), format!("sha256={signature}"));
    }
}
