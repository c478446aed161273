//! The libraries against recorded traffic of the real service, with its bodies, headers and
//! redirects, played back by `weir emulate --replay`. Each test repeats the calls of a recorded
//! scenario and compares the library's results with the recording.

use serde_json::{Value, json};

use super::control;
use super::driver::Library;
use super::processes::Upstream;
use super::recording::{self, API, Record, UPLOADS};
use super::setup::{Account, Setup, Shape};
use super::with_each_library;

with_each_library! {
    a_repository_matches_the_recording
    a_recorded_list_is_read_to_its_last_page
    a_renamed_repository_is_found_through_the_gateway
    labels_are_listed_created_read_changed_and_deleted
    a_file_is_created
    an_archive_is_a_redirect_to_another_host
    an_upload_goes_through_the_gateway
    a_validation_error_keeps_its_details
    a_response_that_is_not_json_is_unchanged
    a_search_is_answered
    the_rate_limit_is_not_the_recorded_one
}

fn a_repository_matches_the_recording(library: Library) {
    let (setup, recording) = replaying("get-repository");
    let recorded = &recording.exchange("get", 200).response;
    for shape in [Shape::Hosted, Shape::SelfHosted] {
        let (values, _) =
            setup.client(library, shape).plays("get_repository", &named(&recording, &[]));
        for unchanged in ["id", "full_name", "html_url"] {
            assert_eq!(values[unchanged], recorded[unchanged]);
        }
        for address in ["url", "issues_url"] {
            assert_eq!(values[address], behind(&setup.base_url(shape), &recorded[address]));
        }
    }
    assert_only_the_token_was_seen(&setup);
}

fn a_recorded_list_is_read_to_its_last_page(library: Library) {
    let (setup, recording) = replaying("paginate-issues");
    let (values, report) =
        setup.plays(library, "list_issues", &named(&recording, &[("per_page", json!(3))]));
    let pages: Vec<&Value> = recording
        .exchanges()
        .iter()
        .filter(|exchange| exchange.method == "get")
        .map(|exchange| &exchange.response)
        .collect();
    let numbers: Vec<&Value> = pages
        .iter()
        .flat_map(|page| page.as_array().into_iter().flatten())
        .map(|issue| &issue["number"])
        .collect();
    assert_eq!(values["numbers"], json!(numbers));
    assert_eq!(report.exchanges.len(), pages.len(), "{:?}", report.wire());
    // The recorded `Link` names the repository by its id: only `Link` leads the library to the
    // second page.
    assert!(
        report.exchanges.iter().skip(1).all(|exchange| exchange.url.contains("/repositories/")),
        "{:?}",
        report.wire()
    );
    assert_only_the_token_was_seen(&setup);
}

fn a_renamed_repository_is_found_through_the_gateway(library: Library) {
    let (setup, recording) = replaying("rename-repository");
    let sent = recording.exchange("patch", 307);
    let (values, report) = setup.plays(
        library,
        "rename_repository",
        &named(
            &recording,
            &[
                ("name", sent.body["name"].clone()),
                ("description", sent.body["description"].clone()),
            ],
        ),
    );
    let recorded = &recording.exchange("get", 200).response;
    assert_eq!(values["renamed"], recorded["full_name"]);
    assert_eq!(
        (&values["found"]["full_name"], &values["found"]["id"]),
        (&recorded["full_name"], &recorded["id"])
    );
    let address = json!(format!("{API}/repositories/{}", recorded["id"]));
    let moved: Vec<_> = report
        .exchanges
        .iter()
        .filter_map(|exchange| Some((exchange.status?, exchange.location.clone()?)))
        .collect();
    let expected = behind(&setup.base_url(Shape::Hosted), &address)
        .as_str()
        .map(str::to_owned)
        .expect("an address");
    match library {
        Library::Octokit => {
            assert_eq!(moved, [(301, expected.clone()), (307, expected)], "{:?}", report.wire());
            assert_eq!(values["described"]["description"], "test description");
        }
        Library::PyGithub => assert_eq!(moved, [(301, expected)], "{:?}", report.wire()),
    }
    assert_only_the_token_was_seen(&setup);
}

fn labels_are_listed_created_read_changed_and_deleted(library: Library) {
    let (setup, recording) = replaying("labels");
    let (made, changed) = (recording.exchange("post", 201), recording.exchange("patch", 200));
    let arguments = [
        ("name", &made.body["name"]),
        ("color", &made.body["color"]),
        ("new_name", &changed.body["new_name"]),
        ("new_color", &changed.body["color"]),
    ];
    let (values, _) = setup.plays(
        library,
        "labels",
        &named(&recording, &arguments.map(|(key, value)| (key, value.clone()))),
    );
    let before: Vec<&Value> = recording
        .exchange("get", 200)
        .response
        .as_array()
        .expect("a list")
        .iter()
        .map(|label| &label["name"])
        .collect();
    assert_eq!(values["before"], json!(before));
    for (step, exchange) in [("created", made), ("read", made), ("changed", changed)] {
        let label = &exchange.response;
        let expected = json!({ "name": label["name"], "color": label["color"], "url": behind(&setup.base_url(Shape::Hosted), &label["url"]) });
        assert_eq!(values[step], expected, "{step}");
    }
    assert_eq!(values["deleted"], 204);
    assert_only_the_token_was_seen(&setup);
}

fn a_file_is_created(library: Library) {
    let (setup, recording) = replaying("create-file");
    let exchange = recording.exchange("put", 201);
    let arguments = [
        ("path", json!("test.txt")),
        ("message", exchange.body["message"].clone()),
        ("text", json!("Test content")),
    ];
    let (values, report) = setup.plays(library, "create_file", &named(&recording, &arguments));
    let recorded = &exchange.response;
    assert_eq!(
        (&values["sha"], &values["commit"]),
        (&recorded["content"]["sha"], &recorded["commit"]["sha"])
    );
    assert_eq!(values["url"], behind(&setup.base_url(Shape::Hosted), &recorded["content"]["url"]));
    assert_eq!(report.exchanges.len(), 1, "{:?}", report.wire());
    assert_eq!(setup.sent().len(), 1, "{:?}", setup.sent());
    assert_only_the_token_was_seen(&setup);
}

fn an_archive_is_a_redirect_to_another_host(library: Library) {
    let (setup, recording) = replaying("get-archive");
    let (values, _) =
        setup.plays(library, "archive_link", &named(&recording, &[("ref", json!("main"))]));
    let recorded = recording.exchange("get", 302);
    assert_eq!(
        (&values["status"], values["location"].as_str()),
        (&json!(302), recorded.header("location")),
        "to another host, unchanged"
    );
    assert_only_the_token_was_seen(&setup);
}

fn an_upload_goes_through_the_gateway(library: Library) {
    let (setup, recording) = replaying("release-assets");
    let (release, asset) =
        (&recording.exchange("get", 200).response, &recording.exchanges()[4].response);
    let changed = recording.exchange("patch", 200);
    let arguments = [
        ("tag", release["tag_name"].clone()),
        ("name", asset["name"].clone()),
        ("label", asset["label"].clone()),
        ("text", json!("Hello, world!\n")),
        ("new_name", changed.body["name"].clone()),
        ("new_label", changed.body["label"].clone()),
    ];
    for shape in [Shape::Hosted, Shape::SelfHosted] {
        let (values, report) =
            setup.client(library, shape).plays("release_assets", &named(&recording, &arguments));
        let upload_url = values["upload_url"].as_str().expect("an address");
        // Uploads are at `/api/uploads` for every base URL (SPECIFICATION, "Base URLs").
        let recorded = release["upload_url"]
            .as_str()
            .and_then(|url| url.strip_prefix(UPLOADS))
            .expect("an address for uploads");
        assert_eq!(upload_url, format!("{}/api/uploads{recorded}", setup.base_url(Shape::Hosted)));
        let facts = |one: &Value| json!({ "id": one["id"], "name": one["name"], "label": one["label"], "size": one["size"] });
        assert_eq!(values["uploaded"], facts(asset));
        assert_eq!(values["assets"], json!([asset["id"]]));
        assert_eq!(values["asset"], facts(asset));
        assert_eq!(values["changed"], facts(&changed.response));
        assert_eq!(values["deleted"], 204);
        assert!(
            report.exchanges.iter().all(|exchange| exchange.status < Some(300)),
            "{:?}",
            report.wire()
        );
    }
    assert_only_the_token_was_seen(&setup);
}

fn a_validation_error_keeps_its_details(library: Library) {
    let (setup, recording) = replaying("errors");
    let exchange = recording.exchange("post", 422);
    let arguments = ["name", "color"].map(|key| (key, exchange.body[key].clone()));
    let (values, _) = setup.plays(library, "invalid_label", &named(&recording, &arguments));
    assert_eq!(
        values,
        json!({ "status": 422, "message": exchange.response["message"], "errors": exchange.response["errors"] })
    );
    assert_only_the_token_was_seen(&setup);
}

fn a_response_that_is_not_json_is_unchanged(library: Library) {
    let (setup, recording) = replaying("markdown");
    let exchange = recording.exchange("post", 200);
    let (owner, repo) = exchange.body["context"]
        .as_str()
        .and_then(|context| context.split_once('/'))
        .expect("a repository");
    let (values, _) = setup.plays(
        library,
        "render_markdown",
        &json!({ "owner": owner, "repo": repo, "text": exchange.body["text"] }),
    );
    assert_eq!(values["html"], exchange.response);
    assert_only_the_token_was_seen(&setup);
}

fn a_search_is_answered(library: Library) {
    let (setup, recording) = replaying("search-issues");
    let recorded = &recording.exchange("get", 200).response;
    let (owner, repo) = recording.repository();
    let (values, _) = setup.plays(
        library,
        "search_issues",
        &json!({ "query": format!("sesame repo:{owner}/{repo}") }),
    );
    let numbers: Vec<&Value> =
        recorded["items"].as_array().expect("items").iter().map(|issue| &issue["number"]).collect();
    assert_eq!(values, json!({ "total": recorded["total_count"], "numbers": numbers }));
    assert_only_the_token_was_seen(&setup);
}

fn the_rate_limit_is_not_the_recorded_one(library: Library) {
    let (setup, recording) = replaying("get-repository");
    let (values, _) = setup.plays(library, "get_repository", &named(&recording, &[]));
    assert!(values["remaining"].as_u64() > Some(0), "{values}");
    let (values, _) = setup.plays(library, "rate_limit", &json!({}));
    // The recorded window ended years ago.
    assert!(values["core"]["seconds_to_reset"].as_f64() > Some(0.0), "{values}");
    assert!(values["core"]["remaining"].as_u64() > Some(0), "{values}");
    assert!(
        setup.sent().iter().all(|request| !request.contains("rate_limit")),
        "{:?}",
        setup.sent()
    );
    assert_only_the_token_was_seen(&setup);
}

#[test]
fn the_root_lists_the_gateways_urls() {
    let (setup, recording) = replaying("get-root");
    let (values, _) = setup.plays(Library::Octokit, "root", &json!({}));
    let recorded = &recording.exchange("get", 200).response;
    for address in ["rate_limit_url", "user_url"] {
        assert_eq!(values[address], behind(&setup.base_url(Shape::Hosted), &recorded[address]));
    }
    assert_only_the_token_was_seen(&setup);
}

#[test]
fn a_raw_file_is_its_content() {
    let (setup, recording) = replaying("get-content");
    let (values, _) = setup.plays(
        Library::Octokit,
        "raw_content",
        &named(&recording, &[("path", json!("README.md"))]),
    );
    assert_eq!(values["text"], recording.exchanges()[1].response);
    assert_only_the_token_was_seen(&setup);
}

#[test]
fn a_put_without_a_body_arrives() {
    let (setup, _) = replaying("mark-notifications-as-read");
    let (values, _) = setup.plays(Library::Octokit, "mark_notifications", &json!({}));
    assert_eq!(values["status"], 205);
    assert_eq!(setup.sent(), ["PUT /notifications"]);
    assert_only_the_token_was_seen(&setup);
}

/// The gateway's only token. The upstream accepts any token.
const TOKEN: &str = "a_token_of_the_pool";

/// A gateway with one account in front of the recorded exchanges of a scenario.
fn replaying(scenario: &'static str) -> (Setup, Record) {
    let directory = recording::directory().join(scenario);
    let upstream = Upstream::replaying(directory.to_str().expect("a path in UTF-8"));
    let accounts = vec![Account { name: "recorder".to_owned(), token: TOKEN.to_owned() }];
    (Setup::new(upstream, accounts), Record::of(scenario))
}

/// Arguments that begin with the repository of the recording.
fn named(recording: &Record, more: &[(&str, Value)]) -> Value {
    let (owner, repo) = recording.repository();
    let mut arguments = json!({ "owner": owner, "repo": repo });
    for (key, value) in more {
        arguments[key] = value.clone();
    }
    arguments
}

/// A recorded API URL as a client of the gateway sees it.
fn behind(base_url: &str, recorded: &Value) -> Value {
    let address = recorded.as_str().expect("an address");
    let rest = address.strip_prefix(API).unwrap_or_else(|| panic!("{address} is not the API's"));
    json!(format!("{base_url}{rest}"))
}

/// Asserts that only the gateway's token arrived upstream. A replay gives every credential an
/// account. The test sends the token once more, directly; all requests must come from the same
/// account.
fn assert_only_the_token_was_seen(setup: &Setup) {
    let through_the_gateway = setup.seen_accounts();
    control::show(&setup.upstream.address, TOKEN);
    let of_the_token = setup
        .upstream
        .transcript()
        .last()
        .map(|request| request["account"].as_str().unwrap_or_default().to_owned());
    assert_eq!(
        through_the_gateway,
        Vec::from_iter(of_the_token),
        "the upstream saw another credential than the gateway's"
    );
}
