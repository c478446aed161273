//! `gh` against the emulator, through the gateway's Unix socket: the README's way. It asks by REST
//! and by GraphQL, and contacts nobody but the gateway.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::processes::Upstream;
use super::setup::{Account, KEY, Setup};

const REPOSITORY: &str = "acme/widgets";

/// `gh` with a configuration of its own, in front of a gateway and an emulator.
struct Gh {
    setup: Setup,
    home: TempDir,
}

impl Gh {
    fn new() -> Self {
        let home = TempDir::new().expect("a directory for the configuration");
        let socket = home.path().join("weir.sock");
        let config = format!("http_unix_socket: {}\n", socket.display());
        fs::write(home.path().join("config.yml"), config).expect("the configuration is written");
        let account = |name: &str| Account {
            name: name.to_owned(),
            token: format!("emu_classic_{name}_all_scopes"),
        };
        let accounts = vec![account("ada"), account("ben")];
        Self { setup: Setup::on_socket(Upstream::emulated(), accounts, &socket), home }
    }

    /// Runs a command to its end and returns its output, which is not for a terminal.
    fn runs(&self, arguments: &[&str]) -> String {
        let output = Command::new("gh")
            .args(arguments)
            .current_dir(self.home.path())
            .env("GH_CONFIG_DIR", self.home.path())
            .env("HOME", self.home.path())
            .env("GH_TOKEN", KEY)
            .env("GH_REPO", REPOSITORY)
            .env("GH_PROMPT_DISABLED", "1")
            .env("GH_NO_UPDATE_NOTIFIER", "1")
            .env_remove("GH_HOST")
            .env_remove("GITHUB_TOKEN")
            .output()
            .expect("the client tests need gh (Debian: apt-get install gh)");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "gh {arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn reads(&self, arguments: &[&str]) -> Value {
        let text = self.runs(arguments);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("gh {arguments:?}: {text}"))
    }

    fn numbers(&self, arguments: &[&str]) -> BTreeSet<u64> {
        let listed = self.reads(arguments);
        let listed = listed.as_array().expect("a list").iter();
        listed.filter_map(|one| one["number"].as_u64()).collect()
    }

    /// The numbers of the emulator's own answer to a REST request.
    fn truth(&self, search: &str) -> BTreeSet<u64> {
        let path = format!("search/issues?per_page=100&q=repo:{REPOSITORY}+{search}");
        let text = self.runs(&["api", &path, "--jq", ".items[].number"]);
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

#[test]
fn gh_lists_issues_and_pull_requests() {
    let gh = Gh::new();
    let issues = gh.numbers(&["issue", "list", "--limit", "100", "--json", "number"]);
    assert_eq!((issues.len(), &issues), (65, &gh.truth("is:issue+is:open")));
    let closed = ["issue", "list", "--state", "closed", "--limit", "100", "--json", "number"];
    assert_eq!(gh.numbers(&closed), gh.truth("is:issue+is:closed"));
    let labelled = ["issue", "list", "--label", "bug", "--limit", "100", "--json", "number"];
    assert_eq!(gh.numbers(&labelled), gh.truth("is:issue+is:open+label:bug"));
    let text = gh.runs(&["issue", "list"]);
    let first = text.lines().next().expect("a line");
    assert!(text.lines().count() == 30 && first.starts_with("75\tOPEN\t"), "{first}");
    let pulls = gh.numbers(&["pr", "list", "--json", "number"]);
    assert_eq!(pulls, BTreeSet::from([76, 77, 78, 79]));
    let text = gh.runs(&["pr", "list", "--base", "main", "--limit", "1"]);
    assert!(text.starts_with("79\t") && text.contains("\ttopic-79\tOPEN"), "{text}");
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_reads_every_page_of_a_list() {
    let gh = Gh::new();
    let path = format!("repos/{REPOSITORY}/issues?state=all&per_page=30");
    let text = gh.runs(&["api", "--paginate", &path, "--jq", ".[].number"]);
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(numbers, (1..=79).rev().collect::<Vec<_>>());
    let query = "query($endCursor: String) { repository(owner: \"acme\", name: \"widgets\") { issues(first: 30, after: $endCursor) { nodes { number } pageInfo { hasNextPage endCursor } } } }";
    let query = format!("query={query}");
    let filter = ".data.repository.issues.nodes[].number";
    let text = gh.runs(&["api", "graphql", "--paginate", "-f", &query, "--jq", filter]);
    assert_eq!(text.lines().count(), 75, "{text}");
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_views_an_issue_and_a_pull_request() {
    let gh = Gh::new();
    let fields = "assignees,author,body,closed,comments,createdAt,id,labels,milestone,number,projectCards,reactionGroups,state,title,updatedAt,url";
    let issue = gh.reads(&["issue", "view", "1", "--json", fields]);
    let comments = issue["comments"].as_array().expect("comments");
    assert_eq!((&issue["milestone"]["title"], comments.len()), (&json!("First release"), 45));
    let text = gh.runs(&["issue", "view", "1", "--comments"]);
    assert!(text.contains("Comment 44"), "{text}");
    let text = gh.runs(&["issue", "view", "1"]);
    assert!(text.contains("state:\tOPEN") && text.contains("comments:\t45"), "{text}");
    let fields = "additions,assignees,author,baseRefName,body,changedFiles,closed,comments,commits,createdAt,deletions,files,headRefName,headRepository,headRepositoryOwner,id,isCrossRepository,isDraft,labels,latestReviews,maintainerCanModify,mergeCommit,mergeStateStatus,mergeable,mergedAt,mergedBy,milestone,number,reactionGroups,reviewDecision,reviewRequests,reviews,state,statusCheckRollup,title,updatedAt,url";
    let pull = gh.reads(&["pr", "view", "76", "--json", fields]);
    assert_eq!(
        (&pull["headRefName"], &pull["baseRefName"], &pull["state"]),
        (&json!("topic-76"), &json!("main"), &json!("OPEN"))
    );
    let text = gh.runs(&["pr", "view", "76"]);
    assert!(text.contains("title:\tChange number 76") && text.contains("state:\tOPEN"), "{text}");
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_creates_an_issue_once_with_labels_and_people() {
    let gh = Gh::new();
    let url = gh.runs(&[
        "issue",
        "create",
        "--title",
        "By gh",
        "--body",
        "A body",
        "--label",
        "bug",
        "--assignee",
        "ben",
        "--milestone",
        "First release",
    ]);
    assert!(url.trim_end().ends_with("/acme/widgets/issues/80"), "{url}");
    let issue = gh.reads(&["api", &format!("repos/{REPOSITORY}/issues/80")]);
    assert_eq!(
        (&issue["title"], &issue["labels"][0]["name"], &issue["assignees"][0]["login"]),
        (&json!("By gh"), &json!("bug"), &json!("ben"))
    );
    assert_eq!(issue["milestone"]["title"], "First release");
    let listed = gh.runs(&["issue", "list", "--limit", "1"]);
    assert!(listed.starts_with("80\tOPEN\tBy gh\t"), "{listed}");
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_lists_releases_and_labels() {
    let gh = Gh::new();
    let text = gh.runs(&["release", "list"]);
    assert!(text.starts_with("One\tLatest\tv1.0.0\t"), "{text}");
    let labels = gh.reads(&["label", "list", "--limit", "100", "--json", "name,color"]);
    let names: BTreeSet<&str> =
        labels.as_array().expect("labels").iter().filter_map(|one| one["name"].as_str()).collect();
    let path = format!("repos/{REPOSITORY}/labels?per_page=100");
    let truth = gh.runs(&["api", &path, "--jq", ".[].name"]);
    assert_eq!(names, truth.lines().collect());
    let text = gh.runs(&["label", "list", "--search", "bug"]);
    assert!(text.starts_with("bug\t"), "{text}");
    gh.setup.assert_only_own_accounts_were_seen();
}
