//! `weir writes`: the queue of writes of a running gateway, and operator actions on one of them.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, value_parser};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{AdminApi, Fault, GatewayOptions};
use super::{plain, visible};
use crate::admin::writes::{EXAMPLE_ID, Item, LISTED_MAX, Listing};
use crate::writes::{WriteId, WriteState};

/// Problem of an answer that is none about writes.
const MISMATCH: &str = "its answer is not about writes";

#[derive(Args)]
pub struct Writes {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List writes, the oldest first
    List(List),
    /// Show one write, with the upstream's answer
    Show(One),
    /// Take a write back that is still queued; it is not sent then
    Cancel(One),
    /// Try a write again that is failed, cancelled or unknown
    ///
    /// One that is unknown may have been executed: the answer was lost, or was an error that does
    /// not tell. Trying it again may execute it a second time, so it is refused without
    /// --even-if-executed. Look first whether the upstream has done what was asked.
    Retry {
        /// Also when it may have been executed already, which makes it happen twice
        #[arg(long)]
        even_if_executed: bool,
        #[command(flatten)]
        one: One,
    },
}

#[derive(Args)]
struct One {
    /// Its id
    #[arg(value_parser = write_id)]
    id: WriteId,
    #[command(flatten)]
    options: GatewayOptions,
}

#[derive(Args)]
struct List {
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(WriteState::ALL.map(WriteState::name)))]
    state: Option<String>,
    /// Only those of this client
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Only those after this one
    #[arg(long, value_name = "ID", value_parser = write_id)]
    after: Option<WriteId>,
    /// How many, at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u16).range(1..=LISTED_MAX as i64))]
    limit: u16,
    #[command(flatten)]
    options: GatewayOptions,
}

/// The parts of a write that people see.
#[derive(Deserialize)]
struct WriteDetails {
    #[serde(flatten)]
    write: Item,
    message: Option<String>,
    response: Option<WriteResponse>,
}

#[derive(Deserialize)]
struct WriteResponse {
    status: u16,
    body: Value,
}

impl Writes {
    pub fn run(self) -> ExitCode {
        const COMMAND: &str = "weir writes";
        match self.action {
            Action::List(list) => {
                list.options.gateway.clone().run(COMMAND, async |api| list.fetch(api).await)
            }
            Action::Show(One { id, options }) => options.gateway.run(COMMAND, async |api| {
                let body = api.get(&format!("/api/writes/{id}")).await?;
                api.printed(&body, options.json, MISMATCH, shown)
            }),
            Action::Cancel(One { id, options }) => options.gateway.run(COMMAND, async |api| {
                let body = api.post(&format!("/api/writes/{id}/cancel"), &json!({})).await?;
                api.printed(&body, options.json, MISMATCH, summary)
            }),
            Action::Retry { even_if_executed, one: One { id, options } } => {
                options.gateway.run(COMMAND, async |api| {
                    let request = json!({ "even_if_executed": even_if_executed });
                    let body = api.post(&format!("/api/writes/{id}/retry"), &request).await;
                    let body = body.map_err(|fault| in_our_words(id, fault))?;
                    api.printed(&body, options.json, MISMATCH, summary)
                })
            }
        }
    }
}

impl List {
    async fn fetch(&self, api: &AdminApi) -> Result<String, Fault> {
        let mut path = format!("/api/writes?limit={}", self.limit);
        for (name, value) in [
            ("state", &self.state),
            ("client", &self.client),
            ("after", &self.after.map(|id| id.to_string())),
        ] {
            if let Some(value) = value {
                // Writing to a string cannot fail.
                let _ = write!(path, "&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
            }
        }
        let body = api.get(&path).await?;
        let format = |listing: &Listing| table(listing, &api.address);
        api.printed(&body, self.options.json, MISMATCH, format)
    }
}

/// Replaces the API's field by the command's flag.
fn in_our_words(id: WriteId, fault: Fault) -> Fault {
    match fault {
        Fault::NotDone { state: Some(state), .. } if state == WriteState::Unknown.name() => {
            let message = format!(
                "{id} is unknown: it may have been executed, and trying it again may execute it a second time; \
                 look whether it was, and give --even-if-executed if it shall be tried again all the same"
            );
            Fault::NotDone { message, state: Some(state) }
        }
        fault => fault,
    }
}

fn summary(details: &WriteDetails) -> String {
    format!("{} is {}\n", plain(&details.write.id), details.write.state.name())
}

fn shown(details: &WriteDetails) -> String {
    let write = &details.write;
    let mut text = String::new();
    let answer = details.response.as_ref();
    let lines = [
        ("write", Some(write.id.clone())),
        ("state", Some(write.state.name().to_owned())),
        ("what", Some(method_and_path(write))),
        ("client", write.client.clone()),
        ("account", write.account.clone()),
        ("attempts", write.attempts.map(|attempts| attempts.to_string())),
        ("accepted", write.accepted_at.clone()),
        ("not before", write.not_before.clone()),
        ("finished", write.finished_at.clone()),
        ("reason", write.reason.clone()),
        ("", details.message.clone()),
        ("answer", answer.map(|answer| answer.status.to_string())),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            let _ = writeln!(text, "{name:10}  {}", visible(&value));
        }
    }
    if let Some(body) = answer.map(|answer| &answer.body).filter(|body| !body.is_null()) {
        let body = serde_json::to_string_pretty(body).unwrap_or_default();
        for line in body.lines() {
            let _ = writeln!(text, "{}", visible(line));
        }
    }
    text
}

fn table(listing: &Listing, address: &str) -> String {
    let counts: Vec<_> = WriteState::ALL
        .iter()
        .map(|state| {
            format!("{} {}", listing.counts.get(state).copied().unwrap_or_default(), state.name())
        })
        .collect();
    let home =
        if listing.durable { "kept on disk" } else { "kept in memory, lost with the process" };
    let mut text = format!(
        "weir at {address}, {}: writes {home}\n{}",
        plain(&listing.now_iso),
        counts.join(", ")
    );
    if let Some(waited) = listing.oldest_seconds {
        let _ = write!(text, "; the oldest unfinished one has waited {waited:.0} s");
    }
    text.push('\n');
    if listing.writes.is_empty() {
        return text;
    }
    let heading =
        ["id", "state", "client", "account", "accepted", "tried", "so far"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once((heading, "what".to_owned()))
        .chain(listing.writes.iter().map(|write| row(write, &listing.now_iso)))
        .collect();
    let width = |column: usize| rows.iter().map(|(cells, _)| cells[column].chars().count()).max();
    let widths: [usize; 7] = std::array::from_fn(|column| width(column).unwrap_or(0));
    text.push('\n');
    for (cells, target) in &rows {
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{target}");
    }
    if let Some(next) = &listing.next {
        let _ = writeln!(text, "\nthere are more: add --after {}", plain(next));
    }
    text
}

fn row(write: &Item, now_iso: &str) -> ([String; 7], String) {
    let attempts = write.attempts.map_or_else(|| "-".into(), |attempts| attempts.to_string());
    let so_far = match (write.status, &write.reason, &write.not_before) {
        (Some(status), ..) => status.to_string(),
        (None, Some(reason), _) => plain(reason),
        // RFC 3339 times in UTC compare as texts.
        (None, None, Some(not_before)) if not_before.as_str() > now_iso => {
            format!("not before {}", plain(not_before))
        }
        (None, None, Some(_)) if write.state == WriteState::Queued => "waits".into(),
        _ => "-".into(),
    };
    let [client, account, accepted] =
        [&write.client, &write.account, &write.accepted_at].map(|text| cell(text.as_ref()));
    let state = write.state.name().into();
    ([plain(&write.id), state, client, account, accepted, attempts, so_far], method_and_path(write))
}

fn method_and_path(write: &Item) -> String {
    format!("{} {}", cell(write.method.as_ref()), cell(write.path.as_ref()))
}

fn cell(text: Option<&String>) -> String {
    text.map_or_else(|| "-".into(), |text| plain(text))
}

fn write_id(text: &str) -> Result<WriteId, String> {
    text.parse().map_err(|_| format!("not the id of a write, such as {EXAMPLE_ID}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, state: WriteState) -> Item {
        Item {
            id: id.into(),
            state,
            client: Some("ci".into()),
            account: Some("build-bot".into()),
            method: Some("POST".into()),
            path: Some("/repos/acme/widgets/issues".into()),
            attempts: Some(0),
            accepted_at: Some("2027-01-15T08:00:00Z".into()),
            not_before: None,
            finished_at: None,
            reason: None,
            status: None,
        }
    }

    fn listing(writes: Vec<Item>) -> Listing {
        let counts = [(WriteState::Queued, 1), (WriteState::Done, 2)].into();
        Listing {
            now_iso: "2027-01-15T08:00:30Z".into(),
            durable: true,
            counts,
            oldest_seconds: Some(30.4),
            writes,
            next: None,
        }
    }

    #[test]
    fn each_write_is_a_line_with_its_result() {
        let queued = Item {
            not_before: Some("2027-01-15T08:00:31Z".into()),
            ..item("2-0000000000000007", WriteState::Queued)
        };
        let done = Item {
            status: Some(201),
            attempts: Some(1),
            ..item("1-0000000000000007", WriteState::Done)
        };
        let unreadable = Item {
            account: None,
            method: None,
            path: None,
            reason: Some("unreadable".into()),
            ..item("3-0000000000000007", WriteState::Failed)
        };
        let expected = "weir at 127.0.0.1:9090, 2027-01-15T08:00:30Z: writes kept on disk\n\
            1 queued, 0 sending, 2 done, 0 failed, 0 unknown, 0 cancelled; the oldest unfinished one has waited 30 s\n\
            \n\
            id                  state   client  account    accepted              tried  so far                           what\n\
            1-0000000000000007  done    ci      build-bot  2027-01-15T08:00:00Z  1      201                              POST /repos/acme/widgets/issues\n\
            2-0000000000000007  queued  ci      build-bot  2027-01-15T08:00:00Z  0      not before 2027-01-15T08:00:31Z  POST /repos/acme/widgets/issues\n\
            3-0000000000000007  failed  ci      -          2027-01-15T08:00:00Z  0      unreadable                       - -\n";
        assert_eq!(table(&listing(vec![done, queued, unreadable]), "127.0.0.1:9090"), expected);
    }

    #[test]
    fn text_from_outside_cannot_control_the_terminal() {
        let odd = "x\u{1b}[2J\n".to_owned();
        let write = Item {
            path: Some(odd.clone()),
            reason: Some(odd.clone()),
            ..item("1-0000000000000007", WriteState::Failed)
        };
        let details = WriteDetails {
            write,
            message: Some(odd.clone()),
            response: Some(WriteResponse { status: 422, body: json!({ "message": odd }) }),
        };
        let texts = [shown(&details), table(&listing(vec![details.write]), "127.0.0.1:9090")];
        assert!(
            texts.iter().all(|text| text
                .chars()
                .all(|character| character == '\n' || !character.is_control())),
            "{texts:?}"
        );
    }
}
