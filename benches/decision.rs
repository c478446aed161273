//! Cost of one admission and its settlement, by accounts and by waiting requests
//! (benches/README.md). The pure core alone, one thread, virtual time.
//!
//! Run it with `cargo bench --bench decision`; `-- 10000 1000` measures only the rows of ten
//! thousand accounts with a thousand waiting.

mod process;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use weir::api::{AccountKind, Dialect, EndpointId, RateHeaders, ResourceName, Table};
use weir::clock::{Clock, Timestamp};
use weir::decision::{
    AccountId, AccountSettings, Admission, ClientId, ClientSettings, Decision, Demand, Grant,
    Priority, SecondaryLimits, Settings, Settlement, WriteSpacing,
};

use process::busy;

/// The allocator of `weir`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BEGINNING: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Virtual time between two events.
const STEP: Duration = Duration::from_millis(1);
/// CPU time of each row's measurement.
const MEASURED: Duration = Duration::from_millis(700);
/// Most events between two readings of the clock.
const ROUND: usize = 1_000;
/// Requests in flight on each account when others wait.
const CONCURRENCY: u32 = 4;
const CLIENTS: u32 = 50;
const ACCOUNTS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
const WAITING: [usize; 4] = [0, 10, 1_000, 10_000];

/// Accounts of a request.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// All of them: one large pool.
    Pool,
    /// One: as for writes and routes about "me".
    Own,
}

/// The saturated core, with its requests in flight and its virtual time.
struct Bench {
    admission: Admission,
    lists: Vec<Arc<[AccountId]>>,
    endpoints: Vec<EndpointId>,
    open: VecDeque<Grant>,
    used: Vec<u32>,
    now: Timestamp,
    requests: usize,
}

impl Bench {
    fn new(accounts: u32, shape: Shape) -> Self {
        let account = |number: u32| AccountSettings {
            is_shared: false,
            name: format!("account-{number}").into(),
            kind: AccountKind::User,
            reserve: 0,
            also_spends: None,
        };
        let client = |number: u32| ClientSettings {
            weight: NonZeroU32::new(1 + number % 4).unwrap_or(NonZeroU32::MIN),
            priority: Priority::Normal,
        };
        // None of these ends the measurement: concurrency alone makes requests wait.
        let limits = SecondaryLimits {
            concurrency: CONCURRENCY,
            rest_points_per_minute: u32::MAX / 4,
            cpu_seconds_per_minute: 1_000_000,
            ..SecondaryLimits::default()
        };
        let settings = Settings {
            accounts: (0..accounts).map(account).collect(),
            clients: (0..CLIENTS).map(client).collect(),
            limits,
            waiting_max: 1_000_000,
            ..Settings::default()
        };
        let lists = match shape {
            Shape::Pool => vec![(0..accounts).map(AccountId).collect()],
            Shape::Own => (0..accounts).map(|number| Arc::from([AccountId(number)])).collect(),
        };
        let table = Table::embedded(Dialect::Service);
        let reads = table.endpoints().iter().filter(|endpoint| {
            endpoint.method == Method::GET && endpoint.resource == ResourceName::core()
        });
        Self {
            admission: Admission::new(settings),
            lists,
            endpoints: reads.map(|endpoint| endpoint.id).take(200).collect(),
            open: VecDeque::new(),
            used: vec![0; accounts as usize],
            now: BEGINNING,
            requests: 0,
        }
    }

    fn request(&mut self) -> Decision {
        self.requests += 1;
        let demand = Demand {
            client: ClientId(u32::try_from(self.requests).unwrap_or(0) % CLIENTS),
            held_bytes: 0,
            candidates: Arc::clone(&self.lists[self.requests % self.lists.len()]),
            prefer: None,
            resource: ResourceName::core(),
            endpoint: self.endpoints[self.requests % self.endpoints.len()],
            cost: 1,
            unproven: 0,
            points: 1,
            graphql: false,
            content: false,
            token_request: false,
            write: WriteSpacing::None,
        };
        let decision = self.admission.request(self.now, demand, self.now + Duration::from_hours(1));
        if let Decision::Granted(grant) = decision {
            self.open.push_back(grant);
        }
        decision
    }

    /// Answers the oldest request in flight; a waiting request takes its slot.
    fn answer(&mut self) {
        self.now = self.now + STEP;
        let Some(grant) = self.open.pop_front() else { return };
        let used = &mut self.used[grant.account.0 as usize];
        *used += 1;
        // A budget is used up and renewed repeatedly.
        let rate = RateHeaders {
            limit: 5_000,
            remaining: 5_000 - *used % 4_900,
            used: None,
            reset: BEGINNING + Duration::from_hours(24 + u64::from(*used / 4_900)),
            resource: Some(ResourceName::core()),
        };
        let settlement =
            Settlement::Answered { status: StatusCode::OK, rate: Some(&rate), refusal: None };
        self.admission.settle(self.now, grant.lease, settlement, 0.5);
        self.open.extend(self.admission.take_decided().filter_map(|(_, decision)| decision.ok()));
    }

    /// Makes every account known and, if requests are to wait, full.
    fn warm_up(&mut self, waiting: usize) {
        for _ in 0..self.used.len() * 2 {
            self.request();
            self.answer();
        }
        while waiting > 0 && self.admission.waiting() < waiting {
            self.request();
        }
    }
}

/// Results in microseconds.
struct Figures {
    /// A settlement with the admission that it allows; without waiting requests, an admission with
    /// its settlement.
    served: f64,
    /// An arrival that joins the queue.
    joined: f64,
}

/// Measures one cell. With waiting requests, a round adds as many as it then serves, so that the
/// queue grows and shrinks by a tenth, or by a hundred if that is more.
fn measure(clock: &Clock, accounts: u32, waiting: usize, shape: Shape) -> Figures {
    let mut bench = Bench::new(accounts, shape);
    bench.warm_up(waiting);
    let round = if waiting == 0 { ROUND } else { (waiting / 10).clamp(ROUND / 10, ROUND) };
    let (mut turns, mut joining, mut serving) = (0_u32, Duration::ZERO, Duration::ZERO);
    while joining + serving < MEASURED {
        for _ in 0..ROUND / round {
            let begun = busy(clock);
            for _ in 0..round {
                bench.request();
                if waiting == 0 {
                    bench.answer();
                }
            }
            let joined = busy(clock);
            if waiting > 0 {
                assert_eq!(
                    bench.admission.waiting(),
                    waiting + round,
                    "the right thing is measured"
                );
                (0..round).for_each(|_| bench.answer());
            }
            assert_eq!(bench.admission.waiting(), waiting, "each answer admitted one");
            let served = busy(clock);
            joining += joined.saturating_sub(begun);
            serving += served.saturating_sub(joined);
            turns += u32::try_from(round).unwrap_or(0);
        }
    }
    assert!(bench.admission.audit().is_empty());
    let each = |all: Duration| all.as_secs_f64() * 1e6 / f64::from(turns);
    if waiting == 0 {
        Figures { served: each(joining), joined: 0.0 }
    } else {
        Figures { served: each(serving), joined: each(joining) }
    }
}

/// Returns the named one, else all.
fn chosen<T: Copy>(all: &[T], named: Option<T>) -> Vec<T> {
    named.map_or_else(|| all.to_vec(), |named| vec![named])
}

fn each(waiting: &[usize], cell: impl Fn(&usize) -> String) -> String {
    waiting.iter().map(cell).collect::<Vec<_>>().join(" | ")
}

fn main() {
    let clock = Clock::system();
    let mut wanted = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let accounts: Vec<u32> =
        chosen(&ACCOUNTS, wanted.next().and_then(|accounts| u32::try_from(accounts).ok()));
    let waiting = chosen(&WAITING, wanted.next());
    for (shape, name) in
        [(Shape::Pool, "one pool of all accounts"), (Shape::Own, "each request with one account")]
    {
        println!(
            "\n{name}: microseconds for an admission and a settlement / for an arrival that joins the line\n"
        );
        println!(
            "{:>10} | {}",
            "accounts",
            each(&waiting, |waiting| format!("{waiting:>8} waiting"))
        );
        for accounts in &accounts {
            let row = each(&waiting, |waiting| {
                let Figures { served, joined } = measure(&clock, *accounts, *waiting, shape);
                format!("{served:>8.2} / {joined:>5.2}")
            });
            println!("{accounts:>10} | {row}");
        }
    }
}
