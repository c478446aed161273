//! The coverage of a webhook, and the handling of deliveries that did not arrive.

use super::*;

const MINUTE: u64 = 60;
/// The upstream's clock is a year behind: nothing may depend on it.
const BEHIND: u64 = 31_536_000;

struct Scenario {
    watch: Watch,
    arrived: Vec<&'static str>,
    deliveries: Vec<ListedDelivery>,
    settings: HookSettings,
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_secs(100_000_000 + second)
}

impl Scenario {
    fn new() -> Self {
        let settings =
            HookSettings { active: true, events: vec!["*".into()], updated_at: "then".into() };
        Self {
            watch: Watch::new(Duration::from_mins(1)),
            arrived: Vec::new(),
            deliveries: Vec::new(),
            settings,
        }
    }

    /// Returns a watch checked at zero, and once more when later requests are covered.
    fn healthy() -> Self {
        let mut scenario = Self::new();
        scenario.check(0);
        scenario.check(MINUTE);
        scenario
    }

    fn delivered(&mut self, guid: &str, second: u64, failed: bool) {
        let id = self.deliveries.len() as u64 + 1;
        let delivered_at = at(second).as_secs() - BEHIND;
        self.deliveries.insert(
            0,
            ListedDelivery { id, guid: guid.into(), delivered_at, failed, event: "issues".into() },
        );
    }

    fn check(&mut self, second: u64) -> Findings {
        let check = Check {
            began_at: at(second),
            ended_at: at(second),
            settings: self.settings.clone(),
            deliveries: self.deliveries.clone(),
            complete: true,
        };
        self.watch.checked(check, |guid, _| self.arrived.contains(&guid))
    }

    fn covers(&self, requested: u64, now: u64) -> bool {
        self.watch.covers(&["issues"], at(requested), at(now))
    }
}

#[test]
fn a_watch_covers_nothing_before_its_first_check() {
    let mut scenario = Scenario::new();
    assert!(!scenario.covers(5, 5));
    scenario.delivered("lost before", 1, true);
    assert_eq!(scenario.check(10), Findings::default());
    assert!(!scenario.covers(9, 20) && !scenario.covers(19, 20) && scenario.covers(20, 20));
    assert_eq!(
        scenario.check(70),
        Findings::default(),
        "what was lost before is none of its business"
    );
    assert!(scenario.covers(20, 70));
}

#[test]
fn a_webhook_is_healthy_for_two_checks_and_some_slack() {
    let scenario = Scenario::healthy();
    assert!(scenario.covers(20, MINUTE * 3 + 29) && !scenario.covers(20, MINUTE * 3 + 30));
}

#[test]
fn a_failed_delivery_is_missing_unless_it_arrived() {
    let mut scenario = Scenario::healthy();
    scenario.delivered("g-1", 70, true);
    scenario.delivered("g-2", 71, false);
    scenario.arrived = vec!["g-1", "g-2"];
    assert_eq!(
        scenario.check(120),
        Findings::default(),
        "it arrived, whatever the upstream heard of it"
    );
    assert!(scenario.covers(20, 120));
    scenario.delivered("g-3", 130, true);
    assert_eq!(scenario.check(180).missed, ["issues"]);
    assert!(!scenario.covers(20, 180) && !scenario.covers(180, 180));
    assert_eq!(scenario.watch.take_due(at(180)), [3]);
    assert!(scenario.watch.take_due(at(181)).is_empty() && scenario.watch.pause() == MISSING_CHECK);
    scenario.arrived.push("g-3");
    assert_eq!(scenario.check(190), Findings { recovered: 1, ..Findings::default() });
    assert!(scenario.covers(20, 190), "its effect is what makes stale what it told of");
}

#[test]
fn a_delivery_is_missing_after_its_grace_period() {
    let mut scenario = Scenario::healthy();
    scenario.delivered("g-1", 119, false);
    assert_eq!(scenario.check(120), Findings::default());
    assert!(scenario.covers(20, 120) && scenario.watch.take_due(at(120)).is_empty());
    assert!(
        !scenario.covers(20, MINUTE + MINUTE * 2 + 30),
        "what it tells of may have happened right after the check before"
    );
    assert_eq!(scenario.check(130), Findings::default());
    assert_eq!(scenario.check(135).missed, ["issues"]);
    assert_eq!(scenario.watch.take_due(at(135)), [1]);
}

#[test]
fn a_missing_delivery_is_requested_six_times() {
    let mut scenario = Scenario::healthy();
    scenario.delivered("g-1", 70, true);
    let mut requested_at = Vec::new();
    for second in (80..3_600).step_by(10) {
        if scenario.check(second).given_up > 0 {
            break;
        }
        requested_at.extend(scenario.watch.take_due(at(second)).iter().map(|_| second));
    }
    assert_eq!(requested_at, [80, 380, 680, 980, 1_280, 1_580]);
    assert!(
        !scenario.covers(1_880, 1_880) && scenario.covers(1_890, 1_890),
        "what it would have told is not relied upon"
    );
    assert_eq!(scenario.check(1_900), Findings::default());
}

#[test]
fn a_redelivery_repeats_the_latest_attempt() {
    let mut scenario = Scenario::healthy();
    scenario.delivered("g-1", 70, true);
    scenario.check(120);
    assert_eq!(scenario.watch.take_due(at(120)), [1]);
    scenario.delivered("g-1", 121, true);
    assert_eq!(scenario.check(420).missed, Vec::<&str>::new());
    assert_eq!(scenario.watch.take_due(at(420)), [2]);
}

#[test]
fn a_changed_or_partly_read_webhook_starts_over() {
    let mut scenario = Scenario::healthy();
    scenario.settings.updated_at = "now".into();
    scenario.check(120);
    assert!(!scenario.covers(20, 130) && scenario.covers(130, 130));
    let check = |complete, second| Check {
        began_at: at(second),
        ended_at: at(second),
        settings: scenario.settings.clone(),
        deliveries: Vec::new(),
        complete,
    };
    let (whole, cut) = (check(true, 180), check(false, 240));
    scenario.watch.checked(whole, |_, _| false);
    assert!(scenario.covers(130, 180));
    scenario.watch.checked(cut, |_, _| false);
    assert!(!scenario.covers(130, 260) && scenario.covers(250, 260));
    scenario.settings.active = false;
    scenario.check(300);
    assert!(!scenario.covers(310, 310));
}

#[test]
fn unannounced_events_are_not_covered() {
    let mut scenario = Scenario::new();
    scenario.settings.events = vec!["issues".into(), "push".into()];
    scenario.check(0);
    let covers = |events: &[&str]| scenario.watch.covers(events, at(10), at(10));
    assert!(covers(&["push", "issues"]) && !covers(&["push", "label"]));
}

#[test]
fn the_open_deliveries_are_bounded() {
    let mut scenario = Scenario::healthy();
    for number in 0..OPEN_MAX + 5 {
        scenario.delivered(&format!("g-{number}"), 70, true);
    }
    let findings = scenario.check(120);
    assert_eq!((findings.missed.len(), findings.given_up), (OPEN_MAX, 5));
    assert_eq!(scenario.watch.take_due(at(120)).len(), REDELIVERIES_AT_ONCE_MAX);
    assert_eq!(scenario.watch.take_due(at(121)).len(), REDELIVERIES_AT_ONCE_MAX);
}

#[test]
fn a_list_suffices_when_it_predates_the_last_check() {
    let mut scenario = Scenario::new();
    scenario.delivered("g-1", 5, false);
    assert!(!scenario.watch.goes_back_enough(&scenario.deliveries));
    scenario.delivered("g-2", 66, false);
    assert!(scenario.watch.goes_back_enough(&scenario.deliveries));
    scenario.check(70);
    scenario.delivered("g-3", 300, false);
    assert!(
        !scenario.watch.goes_back_enough(&scenario.deliveries[..2])
            && scenario.watch.goes_back_enough(&scenario.deliveries)
    );
}
