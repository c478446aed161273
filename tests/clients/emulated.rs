//! The libraries against the emulator's seed world. The emulator's record is the truth.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::driver::{Client, Library};
use super::processes::Upstream;
use super::setup::{Account, Setup, Shape};
use super::with_each_library;

with_each_library! {
    a_read_names_the_gateway_in_every_url
    a_list_is_read_to_its_last_page
    a_lazy_attribute_is_fetched_through_the_gateway
    a_write_is_executed_once_and_visible_at_once
    a_former_name_leads_to_the_repository
    a_rename_is_seen_at_once
    the_rate_limit_is_the_gateways_own
    an_exhausted_budget_is_recognised_as_a_rate_limit
    an_exhausted_budget_of_the_client_is_recognised_too
    a_wrong_key_is_refused_before_anything_is_sent
    a_burst_of_100_comments_is_written_once_each_and_in_order
    asynchronous_comments_are_written_once_each_and_in_order
}

/// The organization whose repositories the tests use. Its owner may rename them.
const OWNER: &str = "acme";
/// The accounts that share the reads.
const ACCOUNTS: usize = 2;
/// The comments of a burst.
const COMMENTS: usize = 100;

fn a_read_names_the_gateway_in_every_url(library: Library) {
    let (setup, world) = emulated();
    let repository = world.repository("widgets");
    for shape in [Shape::Hosted, Shape::SelfHosted] {
        let (values, _) = setup
            .client(library, shape)
            .plays("get_repository", &json!({ "owner": OWNER, "repo": "widgets" }));
        let address = format!("{}/repos/acme/widgets", setup.base_url(shape));
        assert_eq!(values["id"], repository["id"]);
        assert_eq!(values["url"], address);
        assert_eq!(values["issues_url"], format!("{address}/issues{{/number}}"));
        let page = values["html_url"].as_str().expect("a page for people");
        assert!(page.ends_with("/acme/widgets") && !page.contains("127.0.0.1"), "{page}");
        assert!(values["remaining"].as_u64() > Some(0), "{values}");
    }
    setup.assert_only_own_accounts_were_seen();
}

/// Octokit puts the base URL before a path that begins with a slash.
#[test]
fn a_base_url_of_octokit_may_end_in_a_slash() {
    let (setup, world) = emulated();
    let base_url = format!("{}/", setup.base_url(Shape::SelfHosted));
    let client = Client { base_url, ..setup.client(Library::Octokit, Shape::SelfHosted) };
    let arguments = json!({ "owner": OWNER, "repo": "widgets", "per_page": 25, "state": "all" });
    let (values, report) = client.plays("list_issues", &arguments);
    let count = world.repository("widgets")["issues"].as_u64().expect("a number of issues");
    assert_eq!(values["numbers"].as_array().map(Vec::len), usize::try_from(count).ok());
    assert!(report.exchanges[0].url.contains("/api/v3//repos/"), "{:?}", report.wire());
    setup.assert_only_own_accounts_were_seen();
}

fn a_list_is_read_to_its_last_page(library: Library) {
    let (setup, world) = emulated();
    let count = world.repository("widgets")["issues"].as_u64().expect("a number of issues");
    for (shape, per_page) in [(Shape::Hosted, 30), (Shape::SelfHosted, 25)] {
        let arguments =
            json!({ "owner": OWNER, "repo": "widgets", "per_page": per_page, "state": "all" });
        let (values, report) = setup.client(library, shape).plays("list_issues", &arguments);
        let numbers: BTreeSet<u64> = values["numbers"]
            .as_array()
            .expect("numbers")
            .iter()
            .filter_map(Value::as_u64)
            .collect();
        assert_eq!(numbers, (1..=count).collect(), "every issue, none twice");
        assert_eq!(values["numbers"].as_array().map(Vec::len), Some(numbers.len()));
        assert_eq!(report.exchanges.len() as u64, count.div_ceil(per_page), "{:?}", report.wire());
    }
    setup.assert_only_own_accounts_were_seen();
}

fn a_lazy_attribute_is_fetched_through_the_gateway(library: Library) {
    let (setup, world) = emulated();
    let (values, report) = setup.plays(
        library,
        "lazy_user",
        &json!({ "owner": OWNER, "repo": "widgets", "number": 1 }),
    );
    let login = values["login"].as_str().expect("a login");
    assert!(
        world.0["users"].as_array().expect("users").iter().any(|user| user["login"] == login),
        "{login}"
    );
    assert!(values["name"].as_str().is_some_and(|name| !name.is_empty()), "{values}");
    let user = format!("GET /users/{login} 200");
    assert_eq!(
        report.wire().iter().filter(|line| **line == user).count(),
        1,
        "{:?}",
        report.wire()
    );
    // All comments of the repository are on its first issue; the library fetches their second page
    // itself.
    assert_eq!(values["said"], world.repository("widgets")["comments"]);
    assert!(values["comments"].as_u64() >= Some(30), "{values}");
    setup.assert_only_own_accounts_were_seen();
}

fn a_write_is_executed_once_and_visible_at_once(library: Library) {
    let (setup, _) = emulated();
    let (title, body) = ("Müßte gehen \"so\"", "Zeile eins\nline two 🦀");
    let (values, _) = setup.plays(
        library,
        "create_issue",
        &json!({ "owner": OWNER, "repo": "widgets", "title": title, "body": body }),
    );
    assert_eq!(values["read"], json!({ "number": values["number"], "title": title, "body": body }));
    assert!(!values["before"].as_array().expect("a list").contains(&values["number"]));
    assert_eq!(
        values["after"][0], values["number"],
        "the list that was read before shows the new issue"
    );
    let transcript = setup.upstream.transcript();
    let writes: Vec<&Value> =
        transcript.iter().filter(|request| request["method"] != "GET").collect();
    let [write] = writes.as_slice() else { panic!("one write was asked for, {writes:?} arrived") };
    assert_eq!(
        (&write["method"], &write["path"]),
        (&json!("POST"), &json!("/repos/acme/widgets/issues"))
    );
    assert_eq!(write["account"], setup.writer());
    assert_eq!(write["executed"], true);
    setup.assert_only_own_accounts_were_seen();
}

fn a_former_name_leads_to_the_repository(library: Library) {
    let (setup, world) = emulated();
    let repository = world.renamed();
    let former = repository["former_names"][0].as_str().expect("a former name");
    let (owner, repo) = former.split_once('/').unwrap_or((OWNER, former));
    for shape in [Shape::Hosted, Shape::SelfHosted] {
        let (values, report) = setup
            .client(library, shape)
            .plays("get_repository", &json!({ "owner": owner, "repo": repo }));
        assert_eq!(
            (&values["id"], &values["full_name"]),
            (&repository["id"], &repository["full_name"])
        );
        let [moved, found] = report.exchanges.as_slice() else {
            panic!("a redirect and an answer, not {:?}", report.wire())
        };
        let address = format!("{}/repositories/{}", setup.base_url(shape), repository["id"]);
        assert_eq!((moved.status, moved.location.as_deref()), (Some(301), Some(address.as_str())));
        assert_eq!((found.status, found.url.as_str()), (Some(200), address.as_str()));
    }
    setup.assert_only_own_accounts_were_seen();
}

fn a_rename_is_seen_at_once(library: Library) {
    let (setup, world) = emulated();
    let name = "gadgets-by-another-name";
    let new = format!("{OWNER}/{name}");
    // Read first, so that a stale response exists.
    setup.plays(library, "get_repository", &json!({ "owner": OWNER, "repo": "gadgets" }));
    let arguments = json!({ "owner": OWNER, "repo": "gadgets", "name": name, "description": "described by its old name" });
    let (values, report) = setup.plays(library, "rename_repository", &arguments);
    assert_eq!(values["renamed"], new);
    assert_eq!(
        (&values["found"]["full_name"], &values["found"]["id"]),
        (&json!(new), &world.repository("gadgets")["id"])
    );
    let statuses: Vec<u16> =
        report.exchanges.iter().filter_map(|exchange| exchange.status).collect();
    match library {
        Library::Octokit => {
            assert_eq!(statuses, [200, 301, 200, 307, 200], "{:?}", report.wire());
            assert_eq!(values["described"]["description"], "described by its old name");
        }
        Library::PyGithub => assert_eq!(statuses, [200, 301, 200], "{:?}", report.wire()),
    }
    setup.assert_only_own_accounts_were_seen();
}

fn the_rate_limit_is_the_gateways_own(library: Library) {
    let (setup, _) = emulated();
    setup.plays(library, "get_repository", &json!({ "owner": OWNER, "repo": "widgets" }));
    let sent = setup.sent().len();
    let (values, _) = setup.plays(library, "rate_limit", &json!({}));
    for resource in ["core", "search", "rate"] {
        let rate = &values[resource];
        assert!(
            rate["remaining"].as_u64() > Some(0)
                && rate["remaining"].as_u64() <= rate["limit"].as_u64(),
            "{resource}: {rate}"
        );
        assert!(rate["seconds_to_reset"].as_f64() > Some(0.0), "{resource}: {rate}");
    }
    assert_eq!(setup.sent().len(), sent, "asking for the rate limit sends nothing");
}

fn an_exhausted_budget_is_recognised_as_a_rate_limit(library: Library) {
    const BUDGET: u64 = 5;
    let upstream = Upstream::emulated();
    upstream.limit(&json!({ "core": BUDGET }));
    let (setup, _) = behind_a_gateway(upstream);
    exhausts(library, &setup, BUDGET * ACCOUNTS as u64);
}

/// The accounts have more than the client may spend of them.
fn an_exhausted_budget_of_the_client_is_recognised_too(library: Library) {
    let (setup, _) = tuned(Upstream::emulated(), "budget = { core = \"6/h\" }");
    exhausts(library, &setup, 6);
}

/// Reads until a refusal, which must come after so many reads and say what a spent budget says.
fn exhausts(library: Library, setup: &Setup, budget: u64) {
    let numbers: Vec<u64> = (1..=30).collect();
    let (values, report) = setup.plays(
        library,
        "exhaust",
        &json!({ "owner": OWNER, "repo": "widgets", "numbers": numbers }),
    );

    let served = values["served"].as_array().expect("a list");
    assert_eq!(served.len() as u64, budget, "the last unit is spent: {values}");
    assert!(
        served.iter().all(|remaining| remaining.as_u64() > Some(0)),
        "no served answer says that nothing remains: {served:?}"
    );

    let refused = &values["refused"];
    assert_eq!((&refused["status"], &refused["remaining"]), (&json!(403), &json!(0)), "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|message| message.contains("API rate limit exceeded")),
        "{refused}"
    );
    assert!(
        refused["seconds_to_reset"].as_f64() > Some(0.0)
            && refused["retry_after"].as_f64() > Some(0.0),
        "{refused}"
    );
    match library {
        // The throttling plugin recognised the primary limit and obeyed the answer not to retry.
        Library::Octokit => assert_eq!(values["handled"][0]["limit"], "primary", "{values}"),
        Library::PyGithub => assert_eq!(refused["kind"], "RateLimitExceededException"),
    }
    let refusals = report.exchanges.iter().filter(|exchange| exchange.status != Some(200)).count();
    assert_eq!(refusals, 1, "no retry of its own accord: {:?}", report.wire());

    let counters = setup.upstream.control("books");
    assert_eq!(
        (&counters["refused_primary"], &counters["sent_while_limited"]),
        (&json!(0), &json!(0)),
        "the upstream never had to refuse"
    );
    setup.assert_only_own_accounts_were_seen();
}

fn a_wrong_key_is_refused_before_anything_is_sent(library: Library) {
    let (setup, _) = emulated();
    let client = Client {
        key: "weir_not_a_key_of_anyone".to_owned(),
        ..setup.client(library, Shape::Hosted)
    };
    let error = client.fails("get_repository", &json!({ "owner": OWNER, "repo": "widgets" }));
    assert_eq!(error["status"], 401, "{error}");
    assert!(!error.to_string().contains(&client.key), "{error}");
    assert!(setup.sent().is_empty(), "{:?}", setup.sent());
}

/// More than the 80 a minute of the content limit: the last ones wait for the next minute, and none
/// is refused.
fn a_burst_of_100_comments_is_written_once_each_and_in_order(library: Library) {
    let setup = of_a_patient_client("");
    let arguments = json!({ "owner": OWNER, "repo": "widgets", "number": 2, "texts": texts() });
    let (values, _) = setup.plays(library, "comment_burst", &arguments);
    assert_written_in_order(&setup, &values);
}

/// The same as fast as the gateway accepts them, without limits in the way.
fn asynchronous_comments_are_written_once_each_and_in_order(library: Library) {
    let setup = of_a_patient_client("\n[limits]\ncontent_per_minute = 1000\n");
    setup.upstream.limit(&json!({ "content.minute": 1000 }));
    let arguments = json!({ "owner": OWNER, "repo": "widgets", "number": 2, "texts": texts() });
    let (values, _) = setup.plays(library, "comments_handed_over", &arguments);
    assert!(
        values["statuses"]
            .as_array()
            .is_some_and(|all| all.len() == COMMENTS && all.iter().all(|status| *status == 202)),
        "{values}"
    );
    assert!(
        values["states"]
            .as_array()
            .is_some_and(|all| all.len() == COMMENTS && all.iter().all(|state| *state == "done")),
        "{values}"
    );
    assert_written_in_order(&setup, &values);
}

fn of_a_patient_client(sections: &str) -> Setup {
    let upstream = Upstream::emulated();
    let accounts = World(upstream.control("world")).accounts(ACCOUNTS);
    Setup::tuned(upstream, accounts, "max_wait = \"2m\"\n", sections)
}

fn texts() -> Vec<String> {
    (0..COMMENTS).map(|number| format!("comment {number:03}")).collect()
}

/// Each text arrived once, the emulator refused nothing, and the ids follow the order.
fn assert_written_in_order(setup: &Setup, values: &Value) {
    let ids: Vec<u64> =
        values["ids"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    assert!(ids.len() == COMMENTS && ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let transcript = setup.upstream.transcript();
    let posts = transcript.iter().filter(|request| request["method"] == "POST").count();
    assert_eq!(posts, COMMENTS);
    assert!(transcript.iter().all(|request| request["refused"].is_null()));
    let counters = setup.upstream.control("books");
    assert_eq!(
        (&counters["refused_primary"], &counters["refused_secondary"]),
        (&json!(0), &json!(0))
    );
}

/// The response of `/_emulator/world`.
struct World(Value);

impl World {
    /// A repository of [`OWNER`].
    fn repository(&self, name: &str) -> &Value {
        let full_name = format!("{OWNER}/{name}");
        self.repositories()
            .iter()
            .find(|repository| repository["full_name"] == full_name)
            .unwrap_or_else(|| panic!("no repository {full_name}"))
    }

    /// A public repository that was renamed.
    fn renamed(&self) -> &Value {
        let was_renamed = |repository: &&Value| {
            repository["private"] == false
                && repository["former_names"].as_array().is_some_and(|names| !names.is_empty())
        };
        self.repositories().iter().find(was_renamed).expect("a renamed repository")
    }

    fn repositories(&self) -> &[Value] {
        self.0["repositories"].as_array().expect("repositories")
    }

    /// Classic tokens with every permission on repositories, one for each account: of the owner of
    /// [`OWNER`], then of other members.
    fn accounts(&self, count: usize) -> Vec<Account> {
        let organizations = self.0["organizations"].as_array().expect("organisations");
        let organization = organizations
            .iter()
            .find(|organization| organization["login"] == OWNER)
            .expect("the organisation");
        let lists = ["owners", "members"]
            .iter()
            .flat_map(|role| organization[role].as_array().into_iter().flatten());
        let mut accounts: Vec<Account> = Vec::new();
        for login in lists.filter_map(Value::as_str) {
            if accounts.len() == count || accounts.iter().any(|account| account.name == login) {
                continue;
            }
            let tokens = self.0["tokens"].as_array().expect("tokens");
            let may_all = |token: &&Value| {
                token["account"] == login
                    && token["kind"] == "classic"
                    && token["scopes"]
                        .as_array()
                        .is_some_and(|scopes| scopes.contains(&json!("repo")))
            };
            let token = tokens.iter().find(may_all).and_then(|token| token["token"].as_str());
            accounts.extend(
                token.map(|token| Account { name: login.to_owned(), token: token.to_owned() }),
            );
        }
        assert_eq!(accounts.len(), count, "not enough classic tokens in the seed world");
        accounts
    }
}

fn emulated() -> (Setup, World) {
    behind_a_gateway(Upstream::emulated())
}

fn behind_a_gateway(upstream: Upstream) -> (Setup, World) {
    tuned(upstream, "")
}

/// The same with further keys of the client.
fn tuned(upstream: Upstream, client: &str) -> (Setup, World) {
    let world = World(upstream.control("world"));
    let accounts = world.accounts(ACCOUNTS);
    (Setup::tuned(upstream, accounts, client, ""), world)
}
