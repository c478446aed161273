//! Faults: each with its line, its key and the accepted values.

use super::*;

/// A replacement in the valid config, and the only fault it causes: its line, its key and a part of
/// its message.
type Case = (&'static str, &'static str, usize, &'static str, &'static str);

const FAULTS_OF_VALUES: &[Case] = &[
    (
        "connect_timeout",
        "conect_timeout",
        3,
        "upstream.conect_timeout",
        "unknown key, did you mean `connect_timeout`?",
    ),
    ("[limits]", "[limit]", 36, "limit", "did you mean `limits`?"),
    (
        "name = \"scan\"",
        "name = \"scan\"\ncolour = 1",
        32,
        "clients[1].colour",
        "unknown key (accepted: name, ",
    ),
    (
        "store = \"memory\"",
        "store = { path = \"a\", size = 1 }",
        39,
        "writes.store.size",
        "unknown key",
    ),
    ("name = \"ci\"", "name = 7", 25, "clients[0].name", "wrong type: an integer"),
    (
        "\"5s\"",
        "5",
        3,
        "upstream.connect_timeout",
        "wrong type: an integer (accepted: a duration such as \"30s\"",
    ),
    (
        "\"5s\"",
        "\"5 parsecs\"",
        3,
        "upstream.connect_timeout",
        "bad duration `5 parsecs` (accepted: a duration such as \"30s\": a whole number and ms, s",
    ),
    ("\"5s\"", "\"99999999999999999999d\"", 3, "upstream.connect_timeout", "bad duration"),
    ("\"5s\"", "\"400d\"", 3, "upstream.connect_timeout", "bad duration"),
    ("\"5s\"", "\"0s\"", 3, "upstream.connect_timeout", "zero (accepted: more than zero"),
    (
        "\"64MiB\"",
        "\"64MB\"",
        35,
        "cache.max_size",
        "bad size `64MB` (accepted: a size such as \"64MiB\": a whole number and B, KiB",
    ),
    ("\"64MiB\"", "\"0B\"", 35, "cache.max_size", "zero"),
    (
        "\"64MiB\"",
        "\"64MiB\"\nmax_object = \"65MiB\"",
        36,
        "cache.max_object",
        "larger than max_size (accepted: at most 64MiB)",
    ),
    (
        "\"64MiB\"",
        "\"64MiB\"\nfreshness = \"fresh\"",
        36,
        "cache.freshness",
        "unknown value `fresh` (accepted: revalidate, rfc9111)",
    ),
    (
        "\"64MiB\"",
        "\"64MiB\"\nfreshness = \"rfc9111\"\nrevalidate_at_most = \"1s\"",
        37,
        "cache.revalidate_at_most",
        "not with freshness = \"rfc9111\", which serves every fresh answer (accepted: \"0s\", or",
    ),
    (
        "\"64MiB\"",
        "\"64MiB\"\nrules = [{ route = \"repos\", ttl = \"1m\" }]",
        36,
        "cache.rules[0].route",
        "unknown route `repos` (accepted: a readable route",
    ),
    (
        "\"64MiB\"",
        "\"64MiB\"\nrules = [{ route = \"/meta\", webhook_ttl = \"1h\" }]",
        36,
        "cache.rules[0].webhook_ttl",
        "no webhook tells of changes of this route (accepted: ttl alone)",
    ),
    (
        "\"64MiB\"",
        "\"64MiB\"\nrules = [{ route = \"/orgs/{org}/hooks\", webhook_ttl = \"1h\" }]",
        36,
        "cache.rules[0].webhook_ttl",
        "no webhook tells of changes of this route (accepted: ttl alone)",
    ),
    (
        "\"64MiB\"",
        "\"64MiB\"\nsnapshot_interval = \"10ms\"",
        36,
        "cache.snapshot_interval",
        "out of bounds (accepted: a duration from \"1s\" to \"1d\")",
    ),
    (
        "\"64MiB\"",
        "\"64MiB\"\nrules = [{ route = \"/meta\" }]",
        36,
        "cache.rules[0].ttl",
        "missing (accepted: a duration",
    ),
    (
        "[limits]",
        "[webhooks]\nsecret = { value = \"x\" }\nhooks = [{ at = \"/orgs/acme\", account = \"bot\" }]\n[limits]",
        38,
        "webhooks.hooks[0].at",
        "no webhook's address: `/orgs/acme`",
    ),
    (
        "[limits]",
        "[webhooks]\nsecret = { value = \"x\" }\nhooks = [{ at = \"/app/hook\", account = \"bot\" }]\n[limits]",
        38,
        "webhooks.hooks[0].reach",
        "missing (accepted: the owners",
    ),
    (
        "[limits]",
        "[webhooks]\nsecret = { value = \"x\" }\nhooks = [{ at = \"/orgs/acme/hooks/7\", account = \"nobody\" }]\n[limits]",
        38,
        "webhooks.hooks[0].account",
        "unknown account `nobody`",
    ),
    (
        "[limits]",
        "[webhooks]\nsecret = { value = \"x\" }\nhooks = [{ at = \"/orgs/acme/hooks/7\", account = \"bot\", check_every = \"1s\" }]\n[limits]",
        38,
        "webhooks.hooks[0].check_every",
        "too often",
    ),
    (
        "concurrency = 10",
        "concurrency = 0",
        37,
        "limits.concurrency",
        "out of bounds (accepted: a whole number from 1",
    ),
    ("concurrency = 10", "concurrency = -1", 37, "limits.concurrency", "out of bounds"),
    ("concurrency = 10", "concurrency = 4294967296", 37, "limits.concurrency", "out of bounds"),
    (
        "concurrency = 10",
        "batch_floor = 1.5",
        37,
        "limits.batch_floor",
        "out of bounds (accepted: a number from 0 to 1)",
    ),
    ("concurrency = 10", "batch_floor = nan", 37, "limits.batch_floor", "out of bounds"),
    (
        "[cache]",
        "[telemetry]\notlp_protocol = \"http/json\"\n[cache]",
        35,
        "telemetry.otlp_protocol",
        "unknown value",
    ),
    (
        "[limits]\n",
        "[[limits]]\n",
        36,
        "limits",
        "wrong type: an array (accepted: a table, written [limits]",
    ),
    (
        "[cache]",
        "[passthrough]\nenabled = \"yes\"\n[cache]",
        35,
        "passthrough.enabled",
        "wrong type: a string (accepted: true or false)",
    ),
    (
        "[cache]",
        "[passthrough]\ncredentials_max = 0\n[cache]",
        35,
        "passthrough.credentials_max",
        "out of bounds (accepted: a whole number from 1",
    ),
    (
        "[cache]",
        "[passthrough]\ncredentials_max = 10001\n[cache]",
        35,
        "passthrough.credentials_max",
        "out of bounds (accepted: a whole number from 1 to 10000)",
    ),
    (
        "store = \"memory\"",
        "store = \"redis://:s3cret@r\"",
        39,
        "writes.store",
        "unknown value (accepted: \"memory\", \"redis\" or { path",
    ),
    (
        "\"127.0.0.1:9090\"",
        "\"0.0.0.0:9090\"",
        41,
        "listen.admin",
        "there is no admin_token (accepted: a loopback address",
    ),
    (
        "\"127.0.0.1:9090\"",
        "\"localhost\"",
        41,
        "listen.admin",
        "bad address `localhost` (accepted: an IP address and a port",
    ),
    (
        "\"127.0.0.1:9090\"",
        "\"127.0.0.1:8080\"",
        41,
        "listen.admin",
        "duplicate address 127.0.0.1:8080",
    ),
    (
        "\"127.0.0.1:9090\"",
        "\"0.0.0.0:8080\"\nadmin_token = { value = \"t\" }",
        41,
        "listen.admin",
        "0.0.0.0:8080 cannot be taken beside 127.0.0.1:8080",
    ),
    ("admin =", "http = []\nadmin =", 41, "listen.http", "no listener is left"),
    ("admin =", "unix = \"\"\nadmin =", 41, "listen.unix", "bad path"),
    (
        "\"https://api.example.com\"",
        "\"api.example.com\"",
        2,
        "upstream.url",
        "bad URL: it has no scheme",
    ),
    (
        "\"https://api.example.com\"",
        "\"ftp://api.example.com\"",
        2,
        "upstream.url",
        "neither http nor https",
    ),
    (
        "\"https://api.example.com\"",
        "\"https://me:s3cret@api.example.com\"",
        2,
        "upstream.url",
        "user name or password",
    ),
    (
        "\"https://api.example.com\"",
        "\"https://api.example.com?token=s3cret\"",
        2,
        "upstream.url",
        "query",
    ),
    (
        "\"https://api.example.com\"",
        "\"https://api.example.com:99999\"",
        2,
        "upstream.url",
        "bad URL",
    ),
    ("\"https://api.example.com\"", "\"https://\"", 2, "upstream.url", "bad URL"),
    ("url = \"https://api.example.com\"\n", "", 1, "upstream.url", "missing (accepted: an address"),
];

const FAULTS_OF_ENTRIES: &[Case] = &[
    (
        "name = \"acme-app\"",
        "name = \"bot\"",
        8,
        "accounts[1].name",
        "duplicate account name `bot`",
    ),
    ("name = \"all\"", "name = \"readers\"", 22, "pools[1].name", "duplicate pool name `readers`"),
    ("name = \"scan\"", "name = \"ci\"", 31, "clients[1].name", "duplicate client name `ci`"),
    ("name = \"scan\"\n", "", 30, "clients[1].name", "missing"),
    ("name = \"scan\"", "name = \" \"", 31, "clients[1].name", "bad text"),
    (
        "kind = \"user\"",
        "kind = \"robot\"",
        6,
        "accounts[0].kind",
        "unknown value `robot` (accepted: user, installation, app",
    ),
    (
        "kind = \"user\"",
        "kind = \"user\"\nreach = []",
        7,
        "accounts[0].reach",
        "the account can see nothing",
    ),
    (
        "kind = \"user\"",
        "kind = \"user\"\nreach = [\"a\", \"b/c/d\"]",
        7,
        "accounts[0].reach[1]",
        "bad owner or repository `b/c/d`",
    ),
    (
        "account = \"bot\"",
        "account = \"bto\"",
        11,
        "tokens[0].account",
        "unknown account `bto` (accepted: bot, acme-app)",
    ),
    (
        "kind = \"classic\"",
        "kind = \"installation\"",
        12,
        "tokens[0].kind",
        "does not belong to an account of kind `user` (accepted: classic, fine",
    ),
    ("accounts = [\"bot\"]", "accounts = []", 20, "pools[0].accounts", "the pool is empty"),
    (
        "accounts = [\"bot\"]",
        "accounts = [\"bot\", \"bot\"]",
        20,
        "pools[0].accounts[1]",
        "duplicate account",
    ),
    (
        "accounts = [\"bot\"]",
        "accounts = [\"x\"]",
        20,
        "pools[0].accounts[0]",
        "unknown account `x`",
    ),
    (
        "reads = \"readers\"",
        "reads = \"x\"",
        27,
        "clients[0].reads",
        "unknown pool `x` (accepted: readers, all)",
    ),
    (
        "reads = \"readers\"\n",
        "",
        24,
        "clients[0].reads",
        "missing, and there is not exactly one pool (accepted: readers, all)",
    ),
    ("writes = \"bot\"", "writes = \"x\"", 28, "clients[0].writes", "unknown account `x`"),
    ("writes = \"bot\"", "weight = 0", 28, "clients[0].weight", "out of bounds"),
    (
        "writes = \"bot\"",
        "priority = \"high\"",
        28,
        "clients[0].priority",
        "unknown value `high` (accepted: interactive, normal, batch)",
    ),
    ("key_sha256 = \"aaaa", "key_sha256 = \"aaa", 26, "clients[0].key_sha256", "not 64 hex digits"),
    (
        "key_sha256 = \"aaaa",
        "key_sha256 = \"weir_aaaa",
        26,
        "clients[0].key_sha256",
        "a key instead of its hash",
    ),
    (
        "\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"",
        "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"",
        32,
        "clients[1].key_sha256",
        "duplicate key: client `ci` has the same",
    ),
    (
        "\"GET *\"",
        "\"GET\"",
        29,
        "clients[0].allow[0]",
        "bad pattern `GET`: a rule is a method and a path",
    ),
    ("\"GET *\"", "\"get *\"", 29, "clients[0].allow[0]", "the method is written in capitals"),
    ("\"GET *\"", "\"GET repos\"", 29, "clients[0].allow[0]", "the path is * or begins with /"),
    ("\"GET *\"", "\"GET /repos/a*\"", 29, "clients[0].allow[0]", "* stands for a whole segment"),
    ("\"GET *\"", "\"GET /repos//x\"", 29, "clients[0].allow[0]", "a path has no empty segments"),
    ("\"GET *\"", "\"GET /api/v3/repos\"", 29, "clients[0].allow[0]", "without /api/v3"),
    ("\"GET *\"", "\"PSOT *\"", 29, "clients[0].allow[0]", "clients may use GET, HEAD, POST"),
    ("\"GET *\"", "\"GET /repos/a%2Fb\"", 29, "clients[0].allow[0]", "a percent sign"),
    ("[\"GET *\"]", "[]", 29, "clients[0].allow", "the client may do nothing"),
    ("[\"GET *\"]", "\"GET *\"", 29, "clients[0].allow", "wrong type: a string (accepted: a list"),
    (
        "[cache]",
        "[[accounts]]\nname = \"idle\"\nkind = \"workflow\"\n[cache]",
        34,
        "accounts[2]",
        "the account has no token",
    ),
    (
        "[cache]",
        "[[accounts]]\nname = \"idle\"\nkind = \"app\"\n[cache]",
        34,
        "accounts[2]",
        "the account has no credential",
    ),
];

const FAULTS_OF_SECRETS: &[Case] = &[
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ env = \"NO_SUCH\" }",
        13,
        "tokens[0].secret.env",
        "environment variable NO_SUCH is not set",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ env = \"ghp_s3cret\" }",
        13,
        "tokens[0].secret.env",
        "the environment variable named here is not set",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ env = \"EMPTY\" }",
        13,
        "tokens[0].secret",
        "the secret is empty",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ env = \"TWO_LINES\" }",
        13,
        "tokens[0].secret",
        "a character that a header cannot hold",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ file = \"no-such-file\" }",
        13,
        "tokens[0].secret.file",
        "the file named here cannot be read",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ file = \"/\" }",
        13,
        "tokens[0].secret.file",
        "the file named here is not a regular file",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ value = \"value-s3cret\" }",
        17,
        "tokens[1].secret",
        "duplicate token",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ env = \"BOT_TOKEN\", value = \"s3cret\" }",
        13,
        "tokens[0].secret",
        "more than one source",
    ),
    ("{ env = \"BOT_TOKEN\" }", "{}", 13, "tokens[0].secret", "the secret's source is missing"),
    (
        "{ env = \"BOT_TOKEN\" }",
        "\"s3cret\"",
        13,
        "tokens[0].secret",
        "wrong type: a string (accepted: { env = \"NAME\" }",
    ),
    (
        "{ env = \"BOT_TOKEN\" }",
        "{ value = 5 }",
        13,
        "tokens[0].secret.value",
        "wrong type: an integer",
    ),
    ("secret = { env = \"BOT_TOKEN\" }\n", "", 10, "tokens[0].secret", "missing"),
    ("[cache]", "[webhooks]\n[cache]", 34, "webhooks.secret", "missing"),
    (
        "[cache]",
        "[[apps]]\napp_id = 1\nprivate_key = { value = \"s3cret\" }\n[cache]",
        36,
        "apps[0].private_key",
        "not a private key in PEM form",
    ),
];

#[test]
fn each_fault_has_a_line_a_key_and_accepted_values() {
    for (from, to, line, key, message) in
        [FAULTS_OF_VALUES, FAULTS_OF_ENTRIES, FAULTS_OF_SECRETS].concat()
    {
        let Err(faults) = parsed(&spoilt(from, to)) else { panic!("accepted: {to}") };
        let [fault] = faults.0.as_slice() else { panic!("not one fault for {to}:\n{faults}") };
        assert_eq!((fault.line, fault.key.as_str()), (Some(line), key), "{to}: {fault}");
        assert!(fault.to_string().contains(message), "{to}: {fault}");
        assert!(fault.accepted.is_some(), "{to}: {fault}");
        assert!(!fault.to_string().contains("s3cret"), "{to}: {fault}");
    }
}

#[test]
fn a_file_with_ten_faults_gets_ten_lines_in_their_order() {
    let text = r#"[listen]
http = "127.0.0.1:8080"
drain = "soon"
[upstream]
url = "api"
[[accounts]]
name = "a"
kind = "human"
[[tokens]]
account = "b"
kind = "classic"
secret = { env = "NO_SUCH" }
[[pools]]
name = "p"
accounts = []
[[clients]]
name = "c"
key_sha256 = "12"
weight = -3
colour = "red"
"#;
    let faults = parsed(text).unwrap_err();
    let lines: Vec<usize> = faults.iter().filter_map(|fault| fault.line).collect();
    assert_eq!(lines, [2, 3, 5, 8, 10, 12, 15, 18, 19, 20], "{faults}");
    assert_eq!(faults.to_string().lines().count(), 10);
    assert!(
        faults
            .to_string()
            .starts_with("weir.toml:2: listen.http: wrong type: a string (accepted: a list"),
        "{faults}"
    );
}

#[test]
fn an_empty_file_lists_the_required_keys() {
    let faults = parsed("").unwrap_err();
    let keys: Vec<&str> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["upstream.url", "accounts", "clients"], "{faults}");
}

#[test]
fn a_misshapen_section_causes_no_faults_elsewhere() {
    for (from, to) in [
        ("[[accounts]]\nname = \"bot\"", "[accounts]\nname = \"bot\""),
        ("[upstream]", "upstream = 3\n[other]"),
    ] {
        let faults = parsed(&spoilt(from, to)).unwrap_err();
        assert!(
            !faults.to_string().contains("unknown account")
                && !faults.to_string().contains("upstream.url: missing"),
            "{faults}"
        );
    }
}

#[test]
fn a_truncated_list_of_faults_ends_with_a_note() {
    let keys: Vec<String> = (0..1_100).map(|number| format!("key{number} = 1")).collect();
    let faults = parsed(&keys.join("\n")).unwrap_err();
    assert_eq!(faults.0.len(), 1_001);
    assert!(
        faults.to_string().ends_with("weir.toml: 1000 faults and more; only these are listed"),
        "{faults}"
    );
}
