//! The page of the admin listener in Chromium: a person logs in, reads, cancels and retries, also
//! by the keyboard alone, without a script, and on a phone (SPECIFICATION, "The page").
//!
//! Debian's `chromium`, or another Chromium of the system, is driven by npm's `playwright-core`. In
//! every test, the page contacts nobody but the listener, and its policy has nothing to refuse.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use super::install;
use super::processes::Upstream;
use super::setup::{Account, KEY, Setup, Shape};

const TOKEN: &str = "open-sesame-of-the-operators";

/// Names of the browser, as systems install it.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The result of a scenario.
#[derive(Debug, Deserialize)]
struct Report {
    values: Value,
    error: Option<String>,
    /// Messages about the policy of the page, and errors of its script.
    refused: Vec<String>,
    /// Origins that the browser asked.
    contacted: Vec<String>,
}

/// Plays a scenario; `listen` has further keys of the admin listener, `context` those of the
/// browser.
fn play(scenario: &str, listen: &str, context: &Value) -> (Report, String) {
    let name = "ada";
    let token = format!("emu_classic_{name}_all_scopes");
    let accounts = vec![Account { name: name.to_owned(), token }];
    let listen = format!("admin = \"127.0.0.1:0\"\n{listen}");
    let setup = Setup::with_admin(Upstream::emulated(), accounts, &listen);
    let page = format!("http://{}", setup.admin_address());
    let directory = install::installed_for_node("page", &["scenarios.mjs", "driver.mjs"]);
    let plan = json!({
        "browser": browser(),
        "scenario": scenario,
        "context": context,
        "page": format!("{page}/"),
        "token": TOKEN,
        "gateway": setup.base_url(Shape::Hosted),
        "key": KEY,
        "upstream": setup.upstream.address,
    });
    let mut child = Command::new("node")
        .arg(directory.join("driver.mjs"))
        .env("NO_PROXY", "*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the driver starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(plan.to_string().as_bytes()).expect("the driver reads its plan");
    drop(stdin);
    let output = child.wait_with_output().expect("the driver ends");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report: Report = serde_json::from_str(&stdout).unwrap_or_else(|fault| {
        panic!("{scenario}: {fault}\n{stdout}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    assert_eq!(report.error, None, "{scenario}");
    assert_eq!(report.contacted, [&*page], "{scenario}: the page contacts its own origin alone");
    (report, page)
}

/// The values of a scenario in which the browser refused nothing.
fn plays(scenario: &str, listen: &str, context: &Value) -> Value {
    let (report, _) = play(scenario, listen, context);
    assert_eq!(report.refused, [""; 0], "{scenario}");
    report.values
}

fn guarded() -> String {
    format!("admin_token = {{ value = \"{TOKEN}\" }}")
}

/// The path of the browser.
fn browser() -> PathBuf {
    let folders: Vec<_> =
        std::env::split_paths(&std::env::var_os("PATH").expect("a PATH")).collect();
    let places =
        BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    places
        .into_iter()
        .find(|place| place.is_file())
        .expect("the tests of the page need Chromium (Debian: apt-get install chromium)")
}

#[test]
fn a_person_logs_in_and_out() {
    let values = plays("logInAndOut", &guarded(), &json!({}));
    assert_eq!(values["focused"], true, "{values}");
    assert_eq!(values["problem"], "That is not the admin token.");
    assert_eq!(values["isOut"], true, "{values}");
    let cookie = &values["cookies"][0];
    assert_eq!((&cookie["httpOnly"], &cookie["sameSite"]), (&json!(true), &json!("Strict")));
    assert!(!values.to_string().contains(TOKEN), "{values}");
}

#[test]
fn a_person_cancels_and_retries_a_write() {
    let values = plays("cancelAndRetry", &guarded(), &json!({}));
    let id = values["id"].as_str().expect("an id");
    assert_eq!(values["cancelled"], format!("Write {id} was cancelled."));
    assert_eq!(values["retried"], format!("Write {id} is tried again."));
    assert_eq!(values["buttons"], 0, "nothing is left to do: {values}");
}

#[test]
fn a_change_is_seen_without_a_reload() {
    let values = plays("seeAChange", "", &json!({}));
    assert_eq!(values["keepsFocus"], true, "{values}");
    assert_eq!(values["section"], "writes", "the focus of a button that is gone: {values}");
}

#[test]
fn the_keyboard_alone_suffices() {
    let values = plays("useTheKeyboard", &guarded(), &json!({}));
    assert_eq!(values["first"], "Skip to what needs attention");
    assert_eq!(values["section"], "attention");
    let id = values["id"].as_str().expect("an id");
    assert_eq!(values["notice"], format!("Write {id} was cancelled."));
    assert_eq!(values["outlines"], json!(["solid 3px"]), "the focus is always seen");
}

#[test]
fn the_page_works_without_a_script() {
    let values = plays("withoutAScript", &guarded(), &json!({ "javaScriptEnabled": false }));
    assert!(values["tables"].as_u64().is_some_and(|tables| tables >= 5), "{values}");
    assert!(values["budget"].as_str().is_some_and(|text| text.contains("4,999 of 5,000")));
    let id = values["id"].as_str().expect("an id");
    assert_eq!(values["notice"], format!("Write {id} was cancelled."));
}

#[test]
fn the_page_fits_a_phone() {
    let phone = json!({
        "viewport": { "width": 360, "height": 740 }, "hasTouch": true, "isMobile": true,
    });
    let values = plays("onAPhone", &guarded(), &phone);
    assert_eq!(values["overflow"], 0, "it does not scroll sideways: {values}");
    assert!(values["height"].as_f64().is_some_and(|height| height >= 44.0), "{values}");
}

#[test]
fn the_page_can_be_heard_and_read() {
    for theme in ["light", "dark"] {
        let values = plays("hearAndRead", "", &json!({ "colorScheme": theme }));
        let roles = &values["roles"];
        for landmark in ["banner", "main", "navigation"] {
            assert_eq!(roles[landmark], 1, "{values}");
        }
        assert!(roles["rowheader"].as_u64() > Some(4), "{values}");
        assert_eq!((&values["nameless"], &values["named"]), (&json!(0), &json!(1)), "{values}");
        let least = values["contrast"]["least"].as_f64().expect("a ratio");
        assert!(least >= 4.5, "{theme}: {values}");
    }
}

#[test]
fn foreign_code_is_refused_and_seen() {
    let (report, page) = play("bringForeignCode", "", &json!({}));
    assert!(report.refused.len() >= 2, "{report:?}");
    assert_eq!((report.values["title"].as_str(), report.contacted), (Some("Weir"), vec![page]));
}
