//! Bots that read and write the same few resources concurrently, and the judgement of each
//! response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir::emulator::Handle;
use weir::random::Rng;

use super::history::{Allowed, RequestStart, Subject, Tick, Ticks, Way};
use crate::support::{KEY, OTHER_KEY, Reply, World};

const REPOSITORY: &str = "/repos/acme/widgets";
/// New comments of an issue; further changes edit the last one.
const COMMENTS_MAX: usize = 24;
/// Longer than any run.
const UNKNOWN_FOR_EVER: Duration = Duration::from_secs(1 << 40);
/// Responses that were too old and are printed.
const REPORTED_MAX: usize = 8;

/// The permitted ages by route.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub issue: Allowed,
    pub list: Allowed,
    pub comments: Allowed,
    pub pull: Allowed,
    pub repository: Allowed,
}

/// An issue, perhaps with a pull request, whose title is one subject and whose comments are
/// another.
struct Thread {
    number: u64,
    is_pull: bool,
    title: Subject,
    comments: Subject,
    /// The ids of the comments that this test made.
    comment_ids: Mutex<Vec<u64>>,
}

/// Counts of a run.
#[derive(Debug, Default)]
pub struct Figures {
    pub reads: AtomicU64,
    pub unsent: AtomicU64,
    pub changes_through: AtomicU64,
    pub changes_around: AtomicU64,
    pub uncertain_changes: AtomicU64,
    pub served_stale_by_choice: AtomicU64,
    pub hits: AtomicU64,
    pub revalidated: AtomicU64,
    pub fetched: AtomicU64,
    pub failed: AtomicU64,
    pub reported: AtomicU64,
    pub too_old: AtomicU64,
}

/// The traffic of one run.
pub struct Traffic {
    world: Arc<World>,
    /// The gateways, one of which takes each request.
    gateways: Vec<SocketAddr>,
    rules: Rules,
    /// The time for which replicas of the upstream hide a change.
    lag: Duration,
    ticks: Ticks,
    /// The beginnings of this round and the previous one: a fetch whose client left may last a
    /// little longer.
    rounds: Mutex<[Tick; 2]>,
    repository: Subject,
    repository_id: u64,
    threads: Vec<Thread>,
    pub figures: Figures,
    pub findings: Mutex<Vec<String>>,
}

/// The resource of a read.
#[derive(Clone, Copy, Debug)]
enum Target {
    Issue(usize),
    IssueByNumber(usize),
    Pull(usize),
    List,
    Comments(usize),
    /// The first page of ten, which is full with ten comments.
    FirstComments(usize),
    Repository,
}

impl Traffic {
    /// Traffic over the issues and pull requests of the emulator's world.
    pub fn new(world: Arc<World>, rules: Rules, lag: Duration) -> Self {
        let repository_id =
            world.ask_emulator(Method::GET, REPOSITORY, &Value::Null)["id"].as_u64().unwrap();
        let list = world.ask_emulator(
            Method::GET,
            &format!("{REPOSITORY}/issues?state=all&per_page=100"),
            &Value::Null,
        );
        let all = list.as_array().unwrap();
        let pulls = all.iter().filter(|issue| issue.get("pull_request").is_some()).take(3);
        let issues = all
            .iter()
            .filter(|issue| issue.get("pull_request").is_none() && issue["comments"] == 0)
            .take(9);
        let thread = |issue: &Value| Thread {
            number: issue["number"].as_u64().unwrap(),
            is_pull: issue.get("pull_request").is_some(),
            title: Subject::default(),
            comments: Subject::default(),
            comment_ids: Mutex::default(),
        };
        let threads: Vec<Thread> = pulls.chain(issues).map(thread).collect();
        assert!(threads.iter().filter(|thread| thread.is_pull).count() == 3 && threads.len() == 12);
        let (ticks, rounds, repository, figures, findings) = Default::default();
        Self {
            gateways: vec![world.address],
            world,
            rules,
            lag,
            ticks,
            rounds,
            repository,
            repository_id,
            threads,
            figures,
            findings,
        }
    }

    /// The same through several gateways.
    pub fn over(self, gateways: Vec<SocketAddr>) -> Self {
        Self { gateways, ..self }
    }

    /// The gateway and the emulator.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The same traffic after a restart of the gateway. `between` runs while none runs.
    pub async fn restarted(self, between: impl FnOnce(&Handle)) -> Self {
        let world = Arc::into_inner(self.world).expect("nobody has it beside");
        let world = Arc::new(world.restart(between, str::to_owned).await);
        Self { gateways: vec![world.address], world, ..self }
    }

    /// This many concurrent requests, most of them reads.
    pub async fn round(self: &Arc<Self>, dice: &mut Rng, requests: usize, may_go_around: bool) {
        {
            let mut rounds = self.rounds.lock();
            *rounds = [rounds[1], self.ticks.next()];
        }
        let tasks = (0..requests).map(|_| {
            let (traffic, mut dice) = (Arc::clone(self), Rng::for_purpose(dice.next_u64(), 0));
            tokio::spawn(async move {
                match dice.below(100) {
                    0..88 => traffic.read(&mut dice).await,
                    88..94 => traffic.change_through(&mut dice).await,
                    _ if may_go_around => traffic.change_around(&mut dice),
                    _ => traffic.read(&mut dice).await,
                }
            })
        });
        for ended in join_all(tasks.collect::<Vec<_>>()).await {
            ended.expect("a bot of the test itself failed");
        }
    }

    /// Records that the gateway accepted a webhook with this payload.
    pub fn reported(&self, payload: &Value) {
        let now = self.world.clock.now();
        let reported =
            |subject: &Subject, text: &Value| subject.reported(version_in(text), &self.ticks, now);
        self.figures.reported.fetch_add(1, Ordering::Relaxed);
        let about = [&payload["issue"], &payload["pull_request"]]
            .into_iter()
            .find(|about| about.is_object());
        let number = about.and_then(|about| about["number"].as_u64());
        if let (Some(about), Some(thread)) =
            (about, self.threads.iter().find(|thread| Some(thread.number) == number))
        {
            reported(&thread.title, &about["title"]);
            reported(&thread.comments, &payload["comment"]["body"]);
        }
        if payload["changes"]["description"].is_object() {
            reported(&self.repository, &payload["repository"]["description"]);
        }
    }

    async fn read(&self, dice: &mut Rng) {
        let target = self.target(dice);
        let key = if dice.percent(50.0) { KEY } else { OTHER_KEY };
        let key = format!("Bearer {key}");
        let path = self.path(target);
        let started = self.started();
        let headers = [("authorization", key.as_str())];
        let gateway = self.gateway(dice);
        let request = self.world.send_to(gateway, Method::GET, &path, &headers, "");
        if dice.percent(3.0) {
            // The client leaves before the response or at the same time.
            let patience = dice.below(100);
            let left = async {
                for _ in 0..patience {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                answer = request => self.judge(target, started, &answer),
                () = left => drop(self.figures.unsent.fetch_add(1, Ordering::Relaxed)),
            }
        } else {
            self.judge(target, started, &request.await);
        }
    }

    fn gateway(&self, dice: &mut Rng) -> SocketAddr {
        self.gateways[usize::try_from(dice.below(self.gateways.len() as u64)).unwrap()]
    }

    fn started(&self) -> RequestStart {
        let tick = self.ticks.next();
        RequestStart { tick, at: self.world.clock.now(), lag: self.lag, since: tick }
    }

    fn target(&self, dice: &mut Rng) -> Target {
        let any = usize::try_from(dice.below(self.threads.len() as u64)).unwrap();
        match dice.below(100) {
            0..40 => Target::Issue(any),
            40..50 => Target::IssueByNumber(any),
            50..62 => Target::Pull(any % 3),
            62..65 => Target::List,
            65..80 => Target::Comments(any),
            80..90 => Target::FirstComments(any),
            _ => Target::Repository,
        }
    }

    fn path(&self, target: Target) -> String {
        match target {
            Target::Issue(index) => format!("{REPOSITORY}/issues/{}", self.threads[index].number),
            Target::IssueByNumber(index) => format!(
                "/repositories/{}/issues/{}",
                self.repository_id, self.threads[index].number
            ),
            Target::Pull(index) => format!("{REPOSITORY}/pulls/{}", self.threads[index].number),
            Target::List => format!("{REPOSITORY}/issues?state=all&per_page=100"),
            Target::Comments(index) => {
                format!("{REPOSITORY}/issues/{}/comments?per_page=100", self.threads[index].number)
            }
            Target::FirstComments(index) => {
                format!("{REPOSITORY}/issues/{}/comments?per_page=10", self.threads[index].number)
            }
            Target::Repository => REPOSITORY.to_owned(),
        }
    }

    /// Compares a response with the truth.
    fn judge(&self, target: Target, started: RequestStart, answer: &Reply) {
        let status = answer.cache_status();
        let started = if status.contains("collapsed") {
            RequestStart { since: self.rounds.lock()[0], ..started }
        } else {
            started
        };
        self.count(answer);
        if answer.status != 200 {
            return;
        }
        // Served because the upstream failed: as old as the config allows, but never older than a
        // write through the gateway.
        let by_choice =
            status.contains("detail=stale").then_some(Allowed::Ttl(Duration::from_secs(3_600)));
        let body = answer.json();
        let check = |subject: &Subject, allowed: Allowed, shown: usize, label: String| {
            let least = subject.least(started, by_choice.unwrap_or(allowed));
            if shown < least || !subject.may_exist(shown, self.ticks.next()) {
                self.found(&format!(
                    "{label} of {}: version {shown}, at least {least} was due; {status}",
                    self.path(target)
                ));
            }
        };
        let Rules { issue, list, comments, pull, repository } = self.rules;
        match target {
            Target::Issue(index) | Target::IssueByNumber(index) => {
                check(
                    &self.threads[index].title,
                    issue,
                    version_in(&body["title"]),
                    "title".into(),
                );
            }
            Target::Pull(index) => {
                check(&self.threads[index].title, pull, version_in(&body["title"]), "title".into());
            }
            Target::List => {
                let shown = |number: u64| {
                    body.as_array().unwrap().iter().find(|issue| issue["number"] == number)
                };
                for thread in &self.threads {
                    let title = shown(thread.number).map_or(0, |issue| version_in(&issue["title"]));
                    check(&thread.title, list, title, format!("title of {}", thread.number));
                }
            }
            Target::Comments(index) => {
                let newest = body
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|comment| version_in(&comment["body"]))
                    .max()
                    .unwrap_or(0);
                check(&self.threads[index].comments, comments, newest, "comments".into());
            }
            Target::FirstComments(index) => {
                self.judge_page(index, started, by_choice.unwrap_or(comments), answer);
            }
            Target::Repository => check(
                &self.repository,
                repository,
                version_in(&body["description"]),
                "description".into(),
            ),
        }
    }

    fn count(&self, answer: &Reply) {
        let status = answer.cache_status();
        let counter = match status {
            _ if answer.status != 200 => &self.figures.failed,
            _ if status.contains("detail=stale") => &self.figures.served_stale_by_choice,
            "weir; hit" => &self.figures.hits,
            _ if status.contains("fwd-status=304") => &self.figures.revalidated,
            _ => &self.figures.fetched,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.figures.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Compares the first page of ten comments with the truth.
    fn judge_page(&self, index: usize, started: RequestStart, allowed: Allowed, answer: &Reply) {
        let subject = &self.threads[index].comments;
        let least = subject.least(started, allowed);
        // A 304 hides a new next page. Only changes through the gateway and reported ones reveal
        // it.
        let known = subject.least(started, Allowed::Unreported(UNKNOWN_FOR_EVER));
        let count = answer.json().as_array().unwrap().len();
        if count < least.min(10) || known > 10 && answer.next_page().is_none() {
            let next = answer.header("link").unwrap_or("none").to_owned();
            self.found(&format!(
                "page of {}: {count} comments, {least} were due; Link {next}; {}",
                self.path(Target::FirstComments(index)),
                answer.cache_status()
            ));
        }
    }

    fn found(&self, finding: &str) {
        self.figures.too_old.fetch_add(1, Ordering::Relaxed);
        let mut findings = self.findings.lock();
        if findings.len() < REPORTED_MAX {
            findings.push(finding.to_owned());
        }
    }

    /// Makes a change to this version by a request with this method, path and body.
    fn change(&self, dice: &mut Rng, way: Way) -> Option<(&Subject, usize, Method, String, Value)> {
        let thread = &self.threads[usize::try_from(dice.below(self.threads.len() as u64)).unwrap()];
        let choice = dice.below(100);
        let subject = match choice {
            0..60 => &thread.title,
            60..90 => &thread.comments,
            _ => &self.repository,
        };
        let version = subject.begin(way, &self.ticks)?;
        let text = format!("v{version}");
        let number = thread.number;
        let (method, path, body) = match choice {
            0..30 if thread.is_pull => {
                (Method::PATCH, format!("{REPOSITORY}/pulls/{number}"), json!({ "title": text }))
            }
            0..60 => {
                (Method::PATCH, format!("{REPOSITORY}/issues/{number}"), json!({ "title": text }))
            }
            60..90 => match thread.comment_ids.lock().last_chunk::<1>() {
                Some([last]) if version > COMMENTS_MAX => (
                    Method::PATCH,
                    format!("{REPOSITORY}/issues/comments/{last}"),
                    json!({ "body": text }),
                ),
                _ => (
                    Method::POST,
                    format!("{REPOSITORY}/issues/{number}/comments"),
                    json!({ "body": text }),
                ),
            },
            _ => (Method::PATCH, REPOSITORY.to_owned(), json!({ "description": text })),
        };
        Some((subject, version, method, path, body))
    }

    async fn change_through(&self, dice: &mut Rng) {
        let Some((subject, version, method, path, body)) = self.change(dice, Way::Through) else {
            return;
        };
        let (gateway, body) = (self.gateway(dice), body.to_string());
        let answer = self.world.send_to(gateway, method.clone(), &path, &[], &body).await;
        let is_done = answer.status.is_success();
        if !is_done {
            self.figures.uncertain_changes.fetch_add(1, Ordering::Relaxed);
        }
        if is_done || self.was_executed(&method, &path, version) {
            self.figures.changes_through.fetch_add(1, Ordering::Relaxed);
            self.made(&method, &path);
            subject.end(&self.ticks, self.world.clock.now());
        } else {
            subject.undo();
        }
    }

    fn change_around(&self, dice: &mut Rng) {
        let Some((subject, _, method, path, body)) = self.change(dice, Way::Around) else { return };
        self.world.ask_emulator(method.clone(), &path, &body);
        self.figures.changes_around.fetch_add(1, Ordering::Relaxed);
        self.made(&method, &path);
        subject.end(&self.ticks, self.world.clock.now());
    }

    /// Records the id of a new comment.
    fn made(&self, method: &Method, path: &str) {
        if *method != Method::POST {
            return;
        }
        let thread = self
            .threads
            .iter()
            .find(|thread| path.contains(&format!("/issues/{}/", thread.number)))
            .unwrap();
        let comments =
            self.world.ask_emulator(Method::GET, &format!("{path}?per_page=100"), &Value::Null);
        *thread.comment_ids.lock() = comments
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|comment| comment["id"].as_u64())
            .collect();
    }

    /// The truth about a change whose response was lost.
    fn was_executed(&self, method: &Method, path: &str, version: usize) -> bool {
        let path =
            if *method == Method::POST { format!("{path}?per_page=100") } else { path.to_owned() };
        let state = self.world.ask_emulator(Method::GET, &path, &Value::Null);
        let texts = [&state["title"], &state["description"], &state["body"]].map(version_in);
        let newest = state
            .as_array()
            .into_iter()
            .flatten()
            .map(|comment| version_in(&comment["body"]))
            .max();
        texts.into_iter().chain(newest).any(|shown| shown == version)
    }
}

/// The version named by a text; the initial content is version 0.
fn version_in(text: &Value) -> usize {
    text.as_str().and_then(|text| text.strip_prefix('v')?.parse().ok()).unwrap_or(0)
}
