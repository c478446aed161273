//! `gh` against the emulator, through the gateway's Unix socket. It asks by REST and by GraphQL,
//! and contacts nobody but the gateway. `over_tls` has it with the gateway as its host.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::processes::Upstream;
use super::setup::{Account, KEY, Setup, Shape, TRUSTING};

const REPOSITORY: &str = "acme/widgets";

/// `gh` with a configuration of its own, in front of a gateway and an emulator.
pub struct Gh {
    pub setup: Setup,
    home: TempDir,
    /// The gateway's `HOST:PORT`. `None`: it is reached by the socket.
    host: Option<String>,
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
        let setup = Setup::on_socket(Upstream::emulated(), accounts, &socket);
        Self { setup, home, host: None }
    }

    /// A gateway that listens for TLS is the host.
    pub fn over_tls(setup: Setup) -> Self {
        let home = TempDir::new().expect("a directory for the configuration");
        let base_url = setup.base_url(Shape::Hosted);
        let host = base_url.strip_prefix("https://").expect("TLS").to_owned();
        Self { setup, home, host: Some(host) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut gh = Command::new("gh");
        gh.args(arguments)
            .current_dir(self.home.path())
            .env("GH_CONFIG_DIR", self.home.path())
            .env("HOME", self.home.path())
            .env("GH_PROMPT_DISABLED", "1")
            .env("GH_NO_UPDATE_NOTIFIER", "1")
            .env("NO_PROXY", "*")
            .env_remove("GITHUB_TOKEN");
        match &self.host {
            None => gh.env("GH_TOKEN", KEY).env("GH_REPO", REPOSITORY).env_remove("GH_HOST"),
            Some(host) => gh
                .env("GH_ENTERPRISE_TOKEN", KEY)
                .env("GH_REPO", format!("{host}/{REPOSITORY}"))
                .env("GH_HOST", host)
                .env_remove("GH_TOKEN")
                .envs(TRUSTING),
        };
        gh
    }

    /// Runs a command to its end and returns its output, which is not for a terminal.
    pub fn runs(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output();
        let output = output.expect("the client tests need gh (Debian: apt-get install gh)");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "gh {arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    pub fn reads(&self, arguments: &[&str]) -> Value {
        let text = self.runs(arguments);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("gh {arguments:?}: {text}"))
    }

    pub fn numbers(&self, arguments: &[&str]) -> BTreeSet<u64> {
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

impl Gh {
    /// Runs a command that may fail, and returns its output and whether it succeeded.
    fn tries(&self, arguments: &[&str]) -> (String, bool) {
        let output = self.command(arguments).output().expect("gh runs");
        let both = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&both).into_owned(), output.status.success())
    }

    /// Sends a JSON body by `gh api`.
    fn sends(&self, method: &str, path: &str, body: &Value) -> Value {
        let file = self.home.path().join("body.json");
        fs::write(&file, body.to_string()).expect("the body is written");
        let file = file.to_str().expect("a path in UTF-8");
        let path = format!("repos/{REPOSITORY}{path}");
        self.reads(&["api", "--method", method, &path, "--input", file])
    }

    /// Makes a branch with a commit of its own, and returns the commit.
    fn branches(&self, name: &str) -> String {
        let main = self.reads(&["api", &format!("repos/{REPOSITORY}/git/ref/heads/main")]);
        let branch = json!({ "ref": format!("refs/heads/{name}"), "sha": main["object"]["sha"] });
        self.sends("POST", "/git/refs", &branch);
        let change = json!({ "message": name, "content": "eA==", "branch": name });
        let made = self.sends("PUT", &format!("/contents/{name}.txt"), &change);
        made["commit"]["sha"].as_str().expect("a commit").to_owned()
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(self.home.path()).env("HOME", self.home.path());
        assert!(git.status().expect("gh needs git").success(), "git {arguments:?}");
    }

    /// Opens a pull request from a new branch; returns its number and head. For that, `gh` runs in
    /// a clone.
    fn opens(&self, branch: &str) -> (String, String) {
        let sha = self.branches(branch);
        self.git(&["init", "--quiet"]);
        let origin = format!("https://github.com/{REPOSITORY}.git");
        self.git(&["remote", "add", "origin", &origin]);
        let wanted =
            ["pr", "create", "--title", branch, "--body", "B", "--head", branch, "--base", "main"];
        let url = self.runs(&wanted);
        (url.trim_end().rsplit('/').next().expect("a number").to_owned(), sha)
    }
}

#[test]
fn gh_creates_checks_and_merges_a_pull_request() {
    let gh = Gh::new();
    let (number, sha) = gh.opens("better");
    assert_eq!(number, "80");
    let (text, succeeds) = gh.tries(&["pr", "checks", &number]);
    assert!(!succeeds && text.contains("no checks reported"), "{text}");
    let status = json!({ "state": "success", "context": "ci/gh" });
    gh.sends("POST", &format!("/statuses/{sha}"), &status);
    let text = gh.runs(&["pr", "checks", &number]);
    assert!(text.starts_with("ci/gh\tpass\t"), "{text}");
    gh.runs(&["pr", "edit", &number, "--add-label", "bug", "--add-assignee", "ben"]);
    gh.runs(&["pr", "comment", &number, "--body", "going in"]);
    gh.runs(&["pr", "merge", &number, "--merge"]);
    let fields = "state,mergedBy,labels,assignees,comments";
    let pull = gh.reads(&["pr", "view", &number, "--json", fields]);
    assert_eq!((&pull["state"], &pull["mergedBy"]["login"]), (&json!("MERGED"), &json!("ada")));
    assert_eq!(pull["labels"][0]["name"], "bug");
    assert_eq!(pull["assignees"][0]["login"], "ben");
    assert_eq!(pull["comments"][0]["body"], "going in");
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_merges_automatically_once_the_checks_pass() {
    let gh = Gh::new();
    let allowed = json!({ "allow_auto_merge": true });
    gh.sends("PATCH", "", &allowed);
    let protection = json!({ "required_status_checks": { "strict": false, "contexts": ["ci"] }, "required_pull_request_reviews": null, "enforce_admins": null, "restrictions": null });
    gh.sends("PUT", "/branches/main/protection", &protection);
    let (number, sha) = gh.opens("later");
    let (text, succeeds) = gh.tries(&["pr", "merge", &number, "--merge"]);
    assert!(!succeeds && text.contains("--auto"), "{text}");
    gh.runs(&["pr", "merge", &number, "--auto", "--squash"]);
    let pull = gh.reads(&["api", &format!("repos/{REPOSITORY}/pulls/{number}")]);
    assert_eq!(pull["auto_merge"]["merge_method"], "squash", "{pull}");
    let status = json!({ "state": "success", "context": "ci" });
    gh.sends("POST", &format!("/statuses/{sha}"), &status);
    let pull = gh.reads(&["pr", "view", &number, "--json", "state"]);
    assert_eq!(pull["state"], "MERGED");
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_shows_the_status_of_a_branch() {
    let gh = Gh::new();
    gh.opens("better");
    gh.git(&["checkout", "--quiet", "-b", "better"]);
    let status = gh.reads(&["pr", "status", "--json", "number,headRefName,state"]);
    assert_eq!(status["currentBranch"]["headRefName"], "better", "{status}");
    assert_eq!(status["createdBy"][0]["number"], 80, "{status}");
    assert_eq!(status["needsReview"], json!([]));
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_edits_closes_and_comments_an_issue() {
    let gh = Gh::new();
    gh.runs(&["issue", "edit", "2", "--add-label", "bug", "--title", "Renamed"]);
    gh.runs(&["issue", "edit", "2", "--milestone", "First release"]);
    gh.runs(&["issue", "comment", "2", "--body", "by gh"]);
    gh.runs(&["issue", "close", "2"]);
    let issue =
        gh.reads(&["issue", "view", "2", "--json", "state,title,labels,comments,milestone"]);
    assert_eq!((&issue["state"], &issue["title"]), (&json!("CLOSED"), &json!("Renamed")));
    let labels = issue["labels"].as_array().expect("labels");
    assert!(labels.iter().any(|label| label["name"] == "bug"), "{issue}");
    assert_eq!(issue["comments"][0]["body"], "by gh");
    assert_eq!(issue["milestone"]["title"], "First release");
    gh.runs(&["issue", "reopen", "2"]);
    gh.runs(&["issue", "edit", "2", "--remove-label", "bug"]);
    let issue = gh.reads(&["issue", "view", "2", "--json", "state,labels"]);
    let labels = issue["labels"].as_array().expect("labels");
    assert!(labels.iter().all(|label| label["name"] != "bug"), "{issue}");
    assert_eq!(issue["state"], "OPEN");
    gh.setup.assert_only_own_accounts_were_seen();
}

#[test]
fn gh_lists_and_views_repositories() {
    let gh = Gh::new();
    let listed =
        gh.reads(&["repo", "list", "acme", "--limit", "100", "--json", "nameWithOwner,isPrivate"]);
    let listed = listed.as_array().expect("a list");
    assert!(listed.iter().any(|one| one["nameWithOwner"] == REPOSITORY));
    let private =
        gh.reads(&["repo", "list", "acme", "--visibility", "private", "--json", "nameWithOwner"]);
    let private = private.as_array().expect("a list").len();
    assert_eq!(private, listed.iter().filter(|one| one["isPrivate"] == true).count());
    let rust = gh.reads(&["repo", "list", "acme", "--language", "rust", "--json", "nameWithOwner"]);
    assert!(!rust.as_array().expect("a list").is_empty());
    let text = gh.runs(&["repo", "view", REPOSITORY]);
    assert!(text.contains("name:\tacme/widgets") && text.contains("# widgets"), "{text}");
    let seen = gh.reads(&["repo", "view", REPOSITORY, "--json", "name,defaultBranchRef,isFork"]);
    assert_eq!(seen["defaultBranchRef"]["name"], "main");
    gh.setup.assert_only_own_accounts_were_seen();
}
