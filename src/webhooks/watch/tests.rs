//! The coverage of a webhook, and the handling of deliveries that did not arrive.

use super::*;

const MINUTE: u64 = 60;
/// The upstream's clock is a year behind: nothing may depend on it.
const BEHIND: u64 = 31_536_000;

struct Played {
    watch: Watch,
    arrived: Vec<&'static str>,
    deliveries: Vec<Listed>,
    terms: Terms,
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_secs(100_000_000 + second)
}

impl Played {
    fn new() -> Self {
        let terms = Terms { active: true, events: vec!["*".into()], updated_at: "then".into() };
        Self {
            watch: Watch::new(Duration::from_mins(1)),
            arrived: Vec::new(),
            deliveries: Vec::new(),
            terms,
        }
    }

    /// Returns a watch checked at zero, and once more when later requests are covered.
    fn alive() -> Self {
        let mut played = Self::new();
        played.check(0);
        played.check(MINUTE);
        played
    }

    fn delivered(&mut self, guid: &str, second: u64, failed: bool) {
        let id = self.deliveries.len() as u64 + 1;
        let delivered_at = at(second).as_secs() - BEHIND;
        self.deliveries.insert(
            0,
            Listed { id, guid: guid.into(), delivered_at, failed, event: "issues".into() },
        );
    }

    fn check(&mut self, second: u64) -> Findings {
        let check = Check {
            began_at: at(second),
            ended_at: at(second),
            terms: self.terms.clone(),
            deliveries: self.deliveries.clone(),
            complete: true,
        };
        self.watch.checked(check, |guid| self.arrived.contains(&guid))
    }

    fn covers(&self, requested: u64, now: u64) -> bool {
        self.watch.covers(&["issues"], at(requested), at(now))
    }
}

#[test]
fn nothing_is_covered_before_the_first_check_or_was_asked_for_before_it() {
    let mut played = Played::new();
    assert!(!played.covers(5, 5));
    played.delivered("lost before", 1, true);
    assert_eq!(played.check(10), Findings::default());
    assert!(!played.covers(9, 20) && !played.covers(19, 20) && played.covers(20, 20));
    assert_eq!(
        played.check(70),
        Findings::default(),
        "what was lost before is none of its business"
    );
    assert!(played.covers(20, 70));
}

#[test]
fn it_is_alive_for_two_checks_and_some_slack() {
    let played = Played::alive();
    assert!(played.covers(20, MINUTE * 3 + 29) && !played.covers(20, MINUTE * 3 + 30));
}

#[test]
fn what_arrives_is_not_missed_and_a_failed_one_is_at_once() {
    let mut played = Played::alive();
    played.delivered("g-1", 70, true);
    played.delivered("g-2", 71, false);
    played.arrived = vec!["g-1", "g-2"];
    assert_eq!(
        played.check(120),
        Findings::default(),
        "it arrived, whatever the upstream heard of it"
    );
    assert!(played.covers(20, 120));
    played.delivered("g-3", 130, true);
    assert_eq!(played.check(180).missed, ["issues"]);
    assert!(!played.covers(20, 180) && !played.covers(180, 180));
    assert_eq!(played.watch.take_due(at(180)), [3]);
    assert!(played.watch.take_due(at(181)).is_empty() && played.watch.rest() == MISSING_CHECK);
    played.arrived.push("g-3");
    assert_eq!(played.check(190), Findings { recovered: 1, ..Findings::default() });
    assert!(played.covers(20, 190), "its effect is what makes stale what it told of");
}

#[test]
fn one_that_is_on_its_way_has_a_moment_and_is_missing_after_it() {
    let mut played = Played::alive();
    played.delivered("g-1", 119, false);
    assert_eq!(played.check(120), Findings::default());
    assert!(played.covers(20, 120) && played.watch.take_due(at(120)).is_empty());
    assert!(
        !played.covers(20, MINUTE + MINUTE * 2 + 30),
        "what it tells of may have happened right after the check before"
    );
    assert_eq!(played.check(130), Findings::default());
    assert_eq!(played.check(135).missed, ["issues"]);
    assert_eq!(played.watch.take_due(at(135)), [1]);
}

#[test]
fn a_missing_one_is_asked_for_every_five_minutes_and_given_up_after_six_times() {
    let mut played = Played::alive();
    played.delivered("g-1", 70, true);
    let mut asked = Vec::new();
    for second in (80..3_600).step_by(10) {
        if played.check(second).given_up > 0 {
            break;
        }
        asked.extend(played.watch.take_due(at(second)).iter().map(|_| second));
    }
    assert_eq!(asked, [80, 380, 680, 980, 1_280, 1_580]);
    assert!(
        !played.covers(1_880, 1_880) && played.covers(1_890, 1_890),
        "what it would have told is not relied upon"
    );
    assert_eq!(played.check(1_900), Findings::default());
}

#[test]
fn the_latest_attempt_is_the_one_that_is_repeated() {
    let mut played = Played::alive();
    played.delivered("g-1", 70, true);
    played.check(120);
    assert_eq!(played.watch.take_due(at(120)), [1]);
    played.delivered("g-1", 121, true);
    assert_eq!(played.check(420).missed, Vec::<&str>::new());
    assert_eq!(played.watch.take_due(at(420)), [2]);
}

#[test]
fn a_webhook_that_was_changed_or_cannot_be_read_to_the_end_begins_anew() {
    let mut played = Played::alive();
    played.terms.updated_at = "now".into();
    played.check(120);
    assert!(!played.covers(20, 130) && played.covers(130, 130));
    let check = |complete, second| Check {
        began_at: at(second),
        ended_at: at(second),
        terms: played.terms.clone(),
        deliveries: Vec::new(),
        complete,
    };
    let (whole, cut) = (check(true, 180), check(false, 240));
    played.watch.checked(whole, |_| false);
    assert!(played.covers(130, 180));
    played.watch.checked(cut, |_| false);
    assert!(!played.covers(130, 260) && played.covers(250, 260));
    played.terms.active = false;
    played.check(300);
    assert!(!played.covers(310, 310));
}

#[test]
fn events_that_it_does_not_tell_of_are_not_covered() {
    let mut played = Played::new();
    played.terms.events = vec!["issues".into(), "push".into()];
    played.check(0);
    let covers = |events: &[&str]| played.watch.covers(events, at(10), at(10));
    assert!(covers(&["push", "issues"]) && !covers(&["push", "label"]));
}

#[test]
fn what_is_waited_for_is_bounded() {
    let mut played = Played::alive();
    for number in 0..OPEN_MAX + 5 {
        played.delivered(&format!("g-{number}"), 70, true);
    }
    let findings = played.check(120);
    assert_eq!((findings.missed.len(), findings.given_up), (OPEN_MAX, 5));
    assert_eq!(played.watch.take_due(at(120)).len(), ASKED_AT_ONCE_MAX);
    assert_eq!(played.watch.take_due(at(121)).len(), ASKED_AT_ONCE_MAX);
}

#[test]
fn a_list_goes_back_enough_when_it_shows_something_older_than_the_last_check_did() {
    let mut played = Played::new();
    played.delivered("g-1", 5, false);
    assert!(!played.watch.goes_back_enough(&played.deliveries));
    played.delivered("g-2", 66, false);
    assert!(played.watch.goes_back_enough(&played.deliveries));
    played.check(70);
    played.delivered("g-3", 300, false);
    assert!(
        !played.watch.goes_back_enough(&played.deliveries[..2])
            && played.watch.goes_back_enough(&played.deliveries)
    );
}
