//! Clients over HTTPS, by a certificate of a private authority and without `public_url`: libraries,
//! curl, `gh` by `GH_HOST`, and clients that take every other host for a self-hosted service.
//! `papers` has the samples of the README.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::driver::Library;
use super::gh::Gh;
use super::processes::Upstream;
use super::setup::{Account, KEY, Setup, Shape, TRUSTING};
use super::with_each_library;

with_each_library! {
    a_library_reads_and_writes_over_https
    a_library_follows_pages_and_redirects_over_https
}

/// The organization of the emulator's seed world.
const OWNER: &str = "acme";

fn accounts() -> Vec<Account> {
    let account = |name: &str| Account {
        name: name.to_owned(),
        token: format!("emu_classic_{name}_all_scopes"),
    };
    vec![account("ada"), account("ben")]
}

fn secured() -> Setup {
    Setup::over_tls(Upstream::emulated(), accounts())
}

fn a_library_reads_and_writes_over_https(library: Library) {
    let setup = secured();
    for shape in [Shape::Hosted, Shape::SelfHosted] {
        let arguments = json!({ "owner": OWNER, "repo": "widgets" });
        let (values, _) = setup.client(library, shape).plays("get_repository", &arguments);
        let url = format!("{}/repos/acme/widgets", setup.base_url(shape));
        assert_eq!(values["url"], url);
        assert!(url.starts_with("https://"), "{url}");
    }
    let arguments = json!({ "owner": OWNER, "repo": "widgets", "title": "By TLS", "body": "Text" });
    let (values, _) = setup.plays(library, "create_issue", &arguments);
    assert_eq!(values["read"]["title"], "By TLS");
    assert_eq!(values["after"][0], values["number"]);
    setup.assert_only_own_accounts_were_seen();
}

fn a_library_follows_pages_and_redirects_over_https(library: Library) {
    let setup = secured();
    let arguments = json!({ "owner": OWNER, "repo": "widgets", "per_page": 25, "state": "all" });
    for shape in [Shape::Hosted, Shape::SelfHosted] {
        // The driver asserts that each `Link` leads to the gateway by HTTPS.
        let (values, _) = setup.client(library, shape).plays("list_issues", &arguments);
        let numbers = values["numbers"].as_array().expect("numbers").iter();
        let numbers: BTreeSet<u64> = numbers.filter_map(Value::as_u64).collect();
        assert_eq!(numbers, (1..=79).collect());
        assert_eq!(values["pages"], 4);
    }
    let number = json!({ "owner": OWNER, "repo": "widgets", "number": 1 });
    let (values, _) = setup.plays(library, "lazy_user", &number);
    assert!(values["name"].as_str().is_some_and(|name| !name.is_empty()), "{values}");
    setup.assert_only_own_accounts_were_seen();
}

/// Runs curl, and returns the head and the body of the answer.
fn curl(arguments: &[&str]) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--noproxy", "*"]).args(arguments).envs(TRUSTING);
    let output = curl.output().expect("the client tests need curl");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {stderr}");
    let text = String::from_utf8(output.stdout).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn curl_is_served_over_both_versions_of_http() {
    let setup = secured();
    let base_url = setup.base_url(Shape::Hosted);
    let list = format!("{base_url}/repos/acme/widgets/issues?per_page=2");
    let authorization = format!("Authorization: Bearer {KEY}");
    for (version, line) in [("--http1.1", "http/1.1 200"), ("--http2", "http/2 200")] {
        let (head, body) = curl(&[version, "-H", &authorization, &list]);
        assert!(head.starts_with(line), "{head}");
        assert!(head.contains(&format!("link: <{base_url}/")), "{head}");
        let issues: Value = serde_json::from_str(&body).expect("JSON");
        let url = issues[0]["url"].as_str().expect("a URL");
        assert!(url.starts_with(&format!("{base_url}/repos/acme/widgets/issues/")), "{url}");
    }
    let comments = format!("{base_url}/repos/acme/widgets/issues/1/comments");
    let (head, body) = curl(&["-H", &authorization, "-d", r#"{"body":"By TLS"}"#, &comments]);
    assert!(head.contains(" 201") && body.contains("By TLS"), "{head}");
    assert!(head.contains(&format!("location: {base_url}/")), "{head}");
    setup.assert_only_own_accounts_were_seen();
}

/// hub and its like: the paths of a self-hosted service, and the scheme `token`.
#[test]
fn a_client_of_self_hosted_services_is_served_over_https() {
    let setup = secured();
    let base_url = setup.base_url(Shape::SelfHosted);
    let authorization = format!("Authorization: token {KEY}");
    let accept = "Accept: application/vnd.github.v3+json;charset=utf-8";
    let list = format!("{base_url}/repos/acme/widgets/pulls?per_page=100");
    let (head, body) = curl(&["-H", &authorization, "-H", accept, &list]);
    assert!(head.contains(" 200"), "{head}");
    let pulls: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(pulls[0]["url"], format!("{base_url}/repos/acme/widgets/pulls/79"));
    let title = r#"{"title":"By hub's way"}"#;
    let issues = format!("{base_url}/repos/acme/widgets/issues");
    let (head, body) = curl(&["-H", &authorization, "-H", accept, "-d", title, &issues]);
    assert!(head.contains(" 201"), "{head}\n{body}");
    let graphql = setup.base_url(Shape::Hosted) + "/api/graphql";
    let query = r#"{"query":"{ viewer { login } }"}"#;
    let (head, body) = curl(&["-H", &authorization, "-d", query, &graphql]);
    assert!(head.contains(" 200") && body.contains("login"), "{head}\n{body}");
    setup.assert_only_own_accounts_were_seen();
}

/// `gh` speaks HTTPS alone to a host of `GH_HOST`.
#[test]
fn gh_uses_the_gateway_as_its_host() {
    let gh = Gh::over_tls(secured());
    let repository = gh.reads(&["api", "repos/acme/widgets"]);
    let base_url = gh.setup.base_url(Shape::SelfHosted);
    assert_eq!(repository["url"], format!("{base_url}/repos/acme/widgets"));
    let issues = gh.numbers(&["issue", "list", "--limit", "100", "--json", "number"]);
    assert_eq!(issues.len(), 65);
    let pulls = gh.numbers(&["pr", "list", "--json", "number"]);
    assert_eq!(pulls, BTreeSet::from([76, 77, 78, 79]));
    let path = "repos/acme/widgets/issues?state=all&per_page=30";
    let text = gh.runs(&["api", "--paginate", path, "--jq", ".[].number"]);
    assert_eq!(text.lines().count(), 79);
    let url = gh.runs(&["issue", "create", "--title", "By gh", "--body", "Over TLS"]);
    assert!(url.trim_end().ends_with("/acme/widgets/issues/80"), "{url}");
    gh.setup.assert_only_own_accounts_were_seen();
}

/// Asks for another handshake inside a connection of TLS 1.2, and prints the outcome.
const RENEGOTIATION: &str = r#"
import tls from "node:tls";

const [host, port] = process.argv[1].split(":");
const socket = tls.connect({ host, port, maxVersion: "TLSv1.2" }, () => {
  console.log(socket.getProtocol());
  socket.renegotiate({}, (fault) => console.log(fault ? "refused" : "renegotiated"));
});
socket.on("error", (fault) => console.log("refused", fault.code));
socket.on("close", () => console.log("closed"));
"#;

#[test]
fn a_renegotiation_is_refused() {
    // The client waits for an answer to its second handshake until the connection ends.
    let setup = Setup::over_tls_with(Upstream::emulated(), accounts(), "header_timeout = \"1s\"");
    let base_url = setup.base_url(Shape::Hosted);
    let address = base_url.strip_prefix("https://").expect("TLS");
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", RENEGOTIATION, address]).envs(TRUSTING);
    let output = node.output().expect("the client tests need Node.js");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("TLSv1.2\n") && printed.ends_with("closed\n"), "{output:?}");
    assert!(!printed.contains("renegotiated"), "{printed}");
}
