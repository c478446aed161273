//! Tests that each change by API raises its events: in feeds, in the history of issues, in
//! notifications and as webhook deliveries.

mod checks;
mod forks;
mod granted;
mod people;
mod pulls;
mod reviews;
mod runs;

use serde_json::{Value, json};

use super::*;

const WIDGETS: &str = "/repos/acme/widgets";
const CLEO: &str = "emu_classic_cleo_all_scopes";

fn on(path: &str) -> String {
    format!("{WIDGETS}{path}")
}

/// An upstream whose organization acme has a webhook for all events.
struct Observed {
    upstream: Upstream,
    deliveries: String,
    delivered: usize,
    fed: usize,
}

impl Observed {
    fn new() -> Self {
        let mut upstream = Upstream::new();
        let config = json!({ "url": "https://example.com/" });
        let hook = json!({ "name": "web", "config": config, "events": ["*"] });
        let hook = upstream.post(ADA, "/orgs/acme/hooks", &hook).assert_status(201).body;
        let deliveries = format!("/orgs/acme/hooks/{}/deliveries", hook["id"]);
        Self { upstream, deliveries, delivered: 0, fed: 0 }
    }

    /// Returns the deliveries since the last call, oldest first, with their payloads.
    fn deliveries(&mut self) -> Vec<(String, Value)> {
        let path = format!("{}?per_page=100", self.deliveries);
        let mut all = self.upstream.get(ADA, &path).assert_status(200).items().clone();
        all.reverse();
        let new = all.split_off(self.delivered);
        self.delivered += new.len();
        let mut found = Vec::new();
        for delivery in new {
            let path = format!("{}/{}", self.deliveries, delivery["id"]);
            let payload = self.upstream.get(ADA, &path).body["request"]["payload"].clone();
            let event = delivery["event"].as_str().unwrap_or("");
            let name = match delivery["action"].as_str().filter(|action| !action.is_empty()) {
                Some(action) => format!("{event} {action}"),
                None => event.to_owned(),
            };
            found.push((name, payload));
        }
        found
    }

    /// Asserts the names of the deliveries since the last call; returns their payloads.
    fn assert_delivered(&mut self, expected: &[&str]) -> Vec<Value> {
        let (names, payloads): (Vec<String>, Vec<Value>) = self.deliveries().into_iter().unzip();
        assert_eq!(names, expected);
        for payload in &payloads {
            assert!(payload["repository"].is_object() && payload["sender"].is_object());
        }
        payloads
    }

    /// Asserts the types of the repository's feed since the last call, oldest first.
    fn assert_fed(&mut self, expected: &[&str]) {
        let mut all = self.upstream.get(ADA, &on("/events?per_page=100")).items().clone();
        all.reverse();
        let new = all.split_off(self.fed);
        self.fed += new.len();
        let action = |event: &Value| event["payload"]["action"].as_str().map(str::to_owned);
        let kind = |event: &Value| event["type"].as_str().unwrap_or("").to_owned();
        let names: Vec<String> = new
            .iter()
            .map(|event| action(event).map_or(kind(event), |name| kind(event) + " " + &name))
            .collect();
        assert_eq!(names, expected);
    }

    /// Returns the names of the issue events of a number, oldest first.
    fn history(&mut self, number: u64) -> Vec<String> {
        let events = self.upstream.get(ADA, &on(&format!("/issues/{number}/events?per_page=100")));
        let names = events.items().iter().filter_map(|event| event["event"].as_str());
        names.map(str::to_owned).collect()
    }

    /// Returns the thread of a user about this address in the repository.
    fn thread(&mut self, token: &str, address: &str) -> Value {
        let threads = self.upstream.get(token, &on("/notifications?all=true&per_page=50"));
        let url = format!("http://upstream.test{}", on(address));
        let mut threads = threads.assert_status(200).items().clone().into_iter();
        threads.find(|thread| thread["subject"]["url"] == json!(url)).unwrap_or(Value::Null)
    }

    /// Asserts reason and state of a user's thread, and marks it as read.
    fn assert_notified(&mut self, token: &str, address: &str, reason: &str) -> Value {
        let thread = self.thread(token, address);
        assert_eq!(
            (&thread["reason"], &thread["unread"]),
            (&json!(reason), &json!(true)),
            "{address} {thread}"
        );
        let url = thread["url"].as_str().unwrap_or("").replace("http://upstream.test", "");
        self.upstream.pass(2);
        self.upstream.patch(token, &url, &Value::Null).assert_status(205);
        thread
    }

    fn assert_not_notified(&mut self, token: &str, address: &str) {
        let thread = self.thread(token, address);
        assert!(thread.is_null() || thread["unread"] == false, "{thread}");
    }

    /// Opens a pull request of Ben, and forgets its events.
    fn pull(&mut self) -> u64 {
        let wanted = json!({ "title": "Better", "head": "topic", "base": "main" });
        crate::emulator::tests::repositories::propose(&mut self.upstream, "topic");
        let pull = self.upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201).body;
        self.deliveries();
        self.fed = self.upstream.get(ADA, &on("/events?per_page=100")).items().len();
        pull["number"].as_u64().expect("a number")
    }
}
