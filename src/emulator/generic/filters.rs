//! The order of a list, and the parameters of its query that choose among its items. Both are the
//! running service's.

use serde_json::Value;

use super::bodies::Members;
use super::seeds;
use crate::emulator::http::ApiError;
use crate::emulator::http::ranges::Range;
use crate::emulator::http::timestamps::parse_iso;
use crate::emulator::routing::Call;
use crate::emulator::world::StoredItem;

pub type Listed = Vec<(String, StoredItem)>;

/// The comparison of a parameter with an item, which names members by their path.
#[derive(Clone, Copy, Debug)]
enum Filter {
    Text(&'static str),
    Id(&'static str),
    /// A user by the login.
    Login(&'static str),
    /// The status, or the conclusion of what is completed.
    State,
    /// A day or a range of them, as a search takes it.
    Created,
    /// The earliest time of the last change.
    Since,
    /// The name of a check of a suite.
    CheckName,
    /// `latest` checks alone, or `all`.
    Attempts,
}

const RUN_FILTERS: &[(&str, Filter)] = &[
    ("actor", Filter::Login("actor")),
    ("branch", Filter::Text("head_branch")),
    ("event", Filter::Text("event")),
    ("status", Filter::State),
    ("created", Filter::Created),
    ("head_sha", Filter::Text("head_sha")),
    ("check_suite_id", Filter::Id("check_suite_id")),
];

/// By the end of a list's template.
const FILTERS: &[(&str, &[(&str, Filter)])] = &[
    ("/actions/runs", RUN_FILTERS),
    ("/workflows/{workflow_id}/runs", RUN_FILTERS),
    ("/actions/artifacts", &[("name", Filter::Text("name"))]),
    ("/runs/{run_id}/artifacts", &[("name", Filter::Text("name"))]),
    (
        "/check-runs",
        &[
            ("check_name", Filter::Text("name")),
            ("status", Filter::Text("status")),
            ("app_id", Filter::Id("app.id")),
            ("filter", Filter::Attempts),
        ],
    ),
    (
        "/commits/{ref}/check-suites",
        &[("app_id", Filter::Id("app.id")), ("check_name", Filter::CheckName)],
    ),
    (
        "/deployments",
        &[
            ("sha", Filter::Text("sha")),
            ("ref", Filter::Text("ref")),
            ("task", Filter::Text("task")),
            ("environment", Filter::Text("environment")),
        ],
    ),
    ("/pulls/comments", &[("since", Filter::Since)]),
    ("/pulls/{pull_number}/comments", &[("since", Filter::Since)]),
];

/// The lists that begin with the newest item, by the end of their template; others end with it.
const NEWEST_FIRST: [&str; 6] = [
    "/actions/runs",
    "/workflows/{workflow_id}/runs",
    "/actions/artifacts",
    "/runs/{run_id}/artifacts",
    "/deployments",
    "/deployments/{deployment_id}/statuses",
];

/// The lists with `sort` and `direction`, by the end of their template.
const SORTED: [&str; 2] = ["/pulls/comments", "/pulls/{pull_number}/comments"];

/// Keeps the items that the query asks for, in its order.
pub fn apply(call: &Call<'_>, template: &str, listed: &mut Listed) -> Result<(), ApiError> {
    let has_end = |ends: &[&str]| ends.iter().any(|end| template.ends_with(end));
    let filters = FILTERS.iter().find(|(end, _)| template.ends_with(end));
    for (name, filter) in filters.map_or(&[][..], |(_, filters)| filters) {
        let given = call.query.get(name).filter(|given| !given.is_empty());
        if let Some(given) = given {
            filter.keep(call, name, given, listed)?;
        } else if let Filter::Attempts = filter {
            keep_latest(listed);
        }
    }
    if has_end(&NEWEST_FIRST) {
        listed.reverse();
    }
    if has_end(&SORTED) {
        sort(call, listed)?;
    }
    Ok(())
}

impl Filter {
    fn keep(
        self,
        call: &Call<'_>,
        name: &str,
        given: &str,
        listed: &mut Listed,
    ) -> Result<(), ApiError> {
        let invalid = |message: String| ApiError::invalid("Resource", name, message);
        let id =
            || given.parse::<u64>().map_err(|_| invalid(format!("{name} must be a whole number")));
        let mut retain = |holds: &dyn Fn(&StoredItem) -> bool| {
            listed.retain(|(_, item)| holds(item));
        };
        match self {
            Self::Text(path) => retain(&|item| text(&item.fields, path) == Some(given)),
            Self::Id(path) => {
                let id = id()?;
                retain(&|item| number(&item.fields, path) == Some(id));
            }
            Self::Login(path) => {
                let user = call.world.user_by_login(given).map(|user| user.id);
                let of = |item: &StoredItem| {
                    let at = |path: &str| number(&item.fields, path);
                    at(&format!("{path}.id")).or_else(|| at(seeds::ACTOR))
                };
                retain(&|item| user.is_some() && of(item) == user);
            }
            Self::State => retain(&|item| {
                ["status", "conclusion"].iter().any(|path| text(&item.fields, path) == Some(given))
            }),
            Self::Created => {
                let message = "created must be a date such as >=2026-01-31";
                let range = Range::of_days(&given.to_lowercase());
                let range = range.ok_or_else(|| invalid(message.to_owned()))?;
                retain(&|item| range.has(item.created_at.as_secs()));
            }
            Self::Since => {
                let message = "since is not an ISO 8601 timestamp";
                let since = parse_iso(given).ok_or_else(|| invalid(message.to_owned()))?;
                retain(&|item| item.updated_at >= since);
            }
            Self::CheckName => {
                let checks = format!("repository/{}/check-runs", call.repository);
                let mut suites: Vec<u64> = Vec::new();
                for (_, check) in seeds::items(call.world, &checks) {
                    if text(&check.fields, "name") == Some(given) {
                        suites.extend(number(&check.fields, "check_suite_id"));
                    }
                }
                retain(&|item| suites.contains(&item.id));
            }
            Self::Attempts => match given {
                "latest" => keep_latest(listed),
                "all" => {}
                _ => return Err(invalid("filter must be latest or all".to_owned())),
            },
        }
        Ok(())
    }
}

/// Keeps the last check of each name in a suite.
fn keep_latest(listed: &mut Listed) {
    let place = |item: &StoredItem| {
        let suite = number(&item.fields, "check_suite_id");
        (suite, text(&item.fields, "name").unwrap_or("").to_owned())
    };
    let places: Vec<_> = listed.iter().map(|(_, item)| place(item)).collect();
    let latest: std::collections::BTreeMap<_, usize> = places.iter().zip(0..).collect();
    let mut index = 0..;
    listed.retain(|_| index.next().is_some_and(|index| latest[&places[index]] == index));
}

/// Without `sort`, the direction changes nothing.
fn sort(call: &Call<'_>, listed: &mut Listed) -> Result<(), ApiError> {
    let keys = |name: &str| {
        matches!(name, "created" | "created_at" | "updated").then_some(name == "updated")
    };
    let message = "sort must be created or updated";
    let sort = call.choice("Resource", "sort", keys, message)?;
    let descends = call.descends("Resource")?;
    let Some(by_change) = sort else { return Ok(()) };
    if by_change {
        listed.sort_by_key(|(_, item)| (item.updated_at, item.id));
    }
    if descends == Some(true) {
        listed.reverse();
    }
    Ok(())
}

/// Finds a member by its path, such as `app.id`.
fn member<'f>(fields: &'f Members, path: &str) -> Option<&'f Value> {
    let mut names = path.split('.');
    let first = fields.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

fn text<'f>(fields: &'f Members, path: &str) -> Option<&'f str> {
    member(fields, path)?.as_str()
}

fn number(fields: &Members, path: &str) -> Option<u64> {
    member(fields, path)?.as_u64()
}
