//! The output of the demo: a line per second, the parts of several gateways, and the summary.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;

use super::bots::{Bots, WrittenComments, read};
use super::parts;
use super::stage::Stage;
use crate::api::ResourceName;
use crate::cli::process::FAILED;
use crate::decision::AccountId;
use crate::gateway::Gateway;

/// Title and width of each column.
const COLUMNS: [(&str, usize); 9] = [
    ("seconds", 8),
    ("requests", 10),
    ("upstream", 9),
    ("free", 9),
    ("304", 9),
    ("refused", 8),
    ("writes", 7),
    ("waiting", 8),
    ("budget left", 11),
];
/// Lines between two repetitions of the table's head.
const HEAD_EVERY: u32 = 15;
/// The same with several gateways, whose parts stand before the head.
const PARTS_EVERY: u32 = 10;

pub struct Report<'s> {
    stage: &'s Stage,
    bots: Arc<Bots>,
    shows_table: bool,
    lines: u32,
    arrived: Arrived,
    /// The last counted entry of the emulator's transcript.
    counted: u64,
}

/// Requests that arrived at the emulator.
#[derive(Clone, Copy, Debug, Default)]
struct Arrived {
    requests: u64,
    not_modified: u64,
    refused: u64,
}

impl<'s> Report<'s> {
    /// Starts counting.
    pub fn new(stage: &'s Stage, bots: Arc<Bots>, shows_table: bool) -> Self {
        let counted = stage.upstream.with_emulator(|emulator| {
            emulator.transcript(0).last().map_or(0, |entry| entry.sequence)
        });
        Self { stage, bots, shows_table, lines: 0, arrived: Arrived::default(), counted }
    }

    /// Prints one line of the table, and the parts of several gateways now and then.
    pub async fn line(&mut self) {
        self.count();
        if !self.shows_table {
            return;
        }
        let has_parts = self.stage.gateways.len() > 1;
        if self.lines.is_multiple_of(if has_parts { PARTS_EVERY } else { HEAD_EVERY }) {
            if has_parts && self.lines > 0 {
                parts::print(self.stage, &self.bots, self.arrived.refused).await;
                println!();
            }
            print_row(COLUMNS.each_ref().map(|(title, _)| title as &dyn Display));
        }
        let counters = &self.bots.counters;
        print_row([
            &self.lines,
            &read(&counters.requests),
            &self.arrived.requests,
            &percent(read(&counters.free_reads), read(&counters.reads)),
            &self.arrived.not_modified,
            &self.arrived.refused,
            &read(&counters.writes),
            &self.waiting(),
            &self.budget_left(),
        ]);
        self.lines += 1;
    }

    /// Stops counting: the demo's own requests to the emulator follow.
    pub fn close(&mut self) {
        self.count();
    }

    /// Prints the summary, and returns failure when a promise was broken.
    pub async fn summary(&self, truth: &WrittenComments) -> ExitCode {
        if self.stage.gateways.len() > 1 {
            parts::print(self.stage, &self.bots, self.arrived.refused).await;
        }
        let counters = &self.bots.counters;
        let (reads, free) = (read(&counters.reads), read(&counters.free_reads));
        println!("\nclient requests            {}", read(&counters.requests));
        println!("upstream requests          {}", self.arrived.requests);
        println!("answered without spending  {free} of {reads} reads, {}", percent(free, reads));
        println!("304s                       {}", self.arrived.not_modified);
        println!("refusals by the upstream   {} (must be 0)", self.arrived.refused);
        println!("refusals by the gateway    {}", read(&counters.refused));
        println!("failed requests            {}", read(&counters.failures));
        println!(
            "writes done                {}: {} exactly once, {} doubled, {} out of order",
            truth.confirmed, truth.once, truth.doubled, truth.out_of_order
        );
        println!("budget left                {}", self.budget_left());
        let kept = self.arrived.refused == 0
            && truth.once == truth.confirmed
            && truth.doubled == 0
            && truth.out_of_order == 0;
        if kept { ExitCode::SUCCESS } else { FAILED.into() }
    }

    fn count(&mut self) {
        let entries =
            self.stage.upstream.with_emulator(|emulator| emulator.transcript(self.counted));
        for entry in &entries {
            self.arrived.requests += 1;
            self.arrived.not_modified += u64::from(entry.status == 304);
            self.arrived.refused += u64::from(entry.refused.is_some());
            self.counted = entry.sequence;
        }
    }

    /// Requests that wait in any gateway.
    fn waiting(&self) -> usize {
        self.stage.gateways.iter().map(|it| it.gateway.dispatcher.admissions().waiting()).sum()
    }

    /// Units left of all accounts. Each gateway has seen the same upstream; the least is the
    /// latest.
    fn budget_left(&self) -> u32 {
        let of_one = |gateway: &Gateway| {
            let accounts: Arc<[AccountId]> =
                (0_u32..).map(AccountId).take(gateway.env.config.accounts.len()).collect();
            gateway.dispatcher.admissions().view(None, &accounts, &ResourceName::core()).0.remaining
        };
        self.stage.gateways.iter().map(|it| of_one(&it.gateway)).min().unwrap_or(0)
    }
}

fn print_row(cells: [&dyn Display; 9]) {
    let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
    println!("{}", cells.collect::<Vec<_>>().join(" "));
}

fn percent(part: u64, whole: u64) -> String {
    let tenths = (part * 1000).checked_div(whole).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}
