//! The dashboard of `deploy/grafana/`: each query of each panel has data in a real Prometheus.
//!
//! Most have them in a demo. A panel in [`SITUATIONS`] needs more: several replicas, or a gateway
//! to which something unusual happens.

use serde_json::Value;

use super::file;
use super::programs::{Program, until};
use super::prometheus::Prometheus;
use super::special::{Situation, Special};

/// The dashboard.
const DASHBOARD: &str = "deploy/grafana/weir.json";

/// A gateway that gives a panel its data.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    /// `weir demo`.
    Demo,
    /// `weir demo --replicas 2`.
    Replicas,
    /// The gateway of `special.rs`, in this situation.
    Special(Situation),
}

/// The panels without data in a plain demo, with the situation that they need.
const SITUATIONS: &[(&str, Where)] = &[
    ("Requests that the gateway refused", Where::Special(Situation::KeylessRequest)),
    ("Connections ended, accepts paused", Where::Special(Situation::Flood)),
    ("Predicted ETags", Where::Special(Situation::NewList)),
    ("Age of the snapshot", Where::Special(Situation::Configured)),
    ("Refusals by the upstream", Where::Special(Situation::NewList)),
    ("Days left of certificates", Where::Special(Situation::Configured)),
    ("Time left of clients' keys", Where::Special(Situation::Configured)),
    ("Tokens of issuers", Where::Special(Situation::ForeignToken)),
    ("Age of the issuers' keys", Where::Special(Situation::Configured)),
    ("Time in the queue", Where::Special(Situation::AsynchronousWrite)),
    ("Attempts of a write", Where::Special(Situation::AsynchronousWrite)),
    ("Deliveries of webhooks", Where::Special(Situation::Delivery)),
    ("Reloads", Where::Special(Situation::Reload)),
    ("Used of the own budgets of clients", Where::Special(Situation::Configured)),
    ("Time until an own budget is whole", Where::Special(Situation::Configured)),
    ("Requests that rules in shadow mode would stop", Where::Special(Situation::Shadowed)),
    ("Exports by OTLP", Where::Special(Situation::KeylessRequest)),
    ("Replicas in touch", Where::Replicas),
    ("Redis in reach", Where::Replicas),
    ("Reports to the shared records", Where::Replicas),
    ("Duration of a report", Where::Replicas),
    ("Part of each budget", Where::Replicas),
    ("Answers of other replicas", Where::Replicas),
];

/// Queries that no situation here gives data: a pause needs as many connections as the process may
/// have.
const WITHOUT_DATA: &[&str] = &["weir_accept_pauses_total"];

/// A panel's title, and its queries.
type Panel = (String, Vec<String>);

fn dashboard() -> Value {
    serde_json::from_str(&file(DASHBOARD)).expect("the dashboard is JSON")
}

fn panels(dashboard: &Value) -> Vec<Panel> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let panels = panels.filter(|panel| panel["type"] != "row");
    let queries = |panel: &Value| {
        let targets = panel["targets"].as_array().expect("targets");
        targets.iter().map(|target| text(&target["expr"])).collect()
    };
    panels.map(|panel| (text(&panel["title"]), queries(panel))).collect()
}

/// A query as Grafana sends it for one gateway. A demo is young, so the windows are short.
fn asked(query: &str, instance: &str) -> String {
    query
        .replace("$instance", instance)
        .replace("$account", ".*")
        .replace("$__rate_interval", "10s")
        .replace("$__range", "10s")
}

/// The admin listeners in the welcome of a demo.
fn admins(welcome: &str) -> Vec<String> {
    let after = welcome.split("operators look at http://").skip(1);
    after.filter_map(|rest| Some(rest.split_once('/')?.0.to_owned())).collect()
}

fn demo(arguments: &[&str], gateways: usize) -> (Program, Vec<String>) {
    let program = Program::weir(&[&["demo", "--listen", "127.0.0.1:0"], arguments].concat());
    let admins = until("the welcome of a demo", || {
        let admins = admins(&program.output());
        (admins.len() == gateways).then_some(admins)
    });
    (program, admins)
}

/// True if a query has a sample with a number.
fn has_data(prometheus: &Prometheus, query: &str) -> bool {
    let samples = prometheus.query(query);
    samples.iter().any(|sample| sample["value"][1] != "NaN")
}

#[test]
fn each_panel_has_data() {
    let (_demo, one) = demo(&["--bots", "12"], 1);
    let (_replicas, several) = demo(&["--bots", "8", "--replicas", "2"], 2);
    let special = Special::start();
    let targets: Vec<&str> =
        one.iter().chain(&several).chain([special.admin()]).map(String::as_str).collect();
    let prometheus = Prometheus::start(&targets, "groups: []\n");
    let panels = panels(&dashboard());
    assert!(panels.len() > 40, "{} panels", panels.len());
    for (title, queries) in &panels {
        let situation = SITUATIONS.iter().find(|(of, _)| of == title);
        let place = situation.map_or(Where::Demo, |(_, place)| *place);
        let instance = match place {
            Where::Demo => &one[0],
            Where::Replicas => &several[0],
            Where::Special(_) => special.admin(),
        };
        for query in queries {
            if WITHOUT_DATA.iter().any(|metric| query.contains(metric)) {
                continue;
            }
            let asked = asked(query, instance);
            until(&format!("{title} has data in {place:?}: {asked}"), || {
                if let Where::Special(situation) = place {
                    special.happens(situation);
                }
                has_data(&prometheus, &asked).then_some(())
            });
        }
    }
}

#[test]
fn situations_name_panels_that_exist() {
    let panels = panels(&dashboard());
    for (title, place) in SITUATIONS {
        assert!(panels.iter().any(|(of, _)| of == title), "no panel `{title}` for {place:?}");
    }
}

#[test]
fn each_query_is_about_the_chosen_gateways() {
    for (title, queries) in panels(&dashboard()) {
        for query in queries {
            let metrics = query.matches("weir_").count() + query.matches("process_").count();
            let chosen = query.matches("job=\"weir\", instance=~\"$instance\"").count();
            // Alerts are about all of them.
            let is_of_alerts = query.contains("ALERTS");
            assert!(is_of_alerts || (chosen > 0 && chosen >= metrics), "{title}: {query}");
        }
    }
}

#[test]
fn panels_do_not_overlap_and_explain_themselves() {
    let dashboard = dashboard();
    let mut places = std::collections::BTreeSet::new();
    let mut ids = std::collections::BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(x < 24 && places.insert((x, y)), "{} overlaps", panel["title"]);
            }
        }
        assert!(ids.insert(panel["id"].as_u64()), "{} has the id of another", panel["title"]);
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["description"].as_str().is_some_and(|text| text.len() > 5));
        assert!(is_row || panel["datasource"]["uid"] == "${datasource}", "{}", panel["title"]);
    }
}
