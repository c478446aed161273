//! Config: the last reload with its faults, and the version that runs.

use maud::{Markup, html};

use super::{Look, more, table, words};
use crate::config::Faults;
use crate::telemetry::BUILD_COMMIT;

/// Most faults. Our choice: the first explain the others.
const SHOWN_MAX: usize = 50;

pub fn show(look: &Look) -> Markup {
    html! {
        @match &look.reload {
            None => p { "The config was not reloaded since the start." },
            Some(reload) => {
                @match &reload.result {
                    Err(Faults(faults)) => {
                        p.bad {
                            "The reload of " (words::time(reload.at, look.now))
                            " was refused. The old config stays in force."
                        }
                        (table_of(faults))
                    }
                    Ok(reloaded) => {
                        p.fine { "The config was reloaded at " (words::time(reload.at, look.now)) "." }
                        @if !reloaded.at_next_start.is_empty() {
                            p { "These keys take effect at the next start: "
                                (reloaded.at_next_start.join(", ")) "." }
                        }
                    }
                }
            }
        }
        p.dim {
            "Weir " (env!("CARGO_PKG_VERSION"))
            @if let Some(commit) = BUILD_COMMIT { ", " code { (commit) } }
        }
    }
}

fn table_of(faults: &[crate::config::Fault]) -> Markup {
    let shown = &faults[..faults.len().min(SHOWN_MAX)];
    let rows = html! {
        @for fault in shown {
            tr {
                td { (fault.file) }
                td.number { @match fault.line { Some(line) => (line), None => "–" } }
                th scope="row" { code { (fault.key) } }
                td { (fault.problem) }
                td { (fault.accepted.as_deref().unwrap_or("–")) }
            }
        }
    };
    html! {
        (table("faults", "Faults", &["File", "Line", "Key", "Problem", "Accepted"], &rows))
        (more(faults.len(), shown.len(), "faults"))
    }
}
