//! `[[issuers]]` and `clients[].oidc`.

use super::*;

const CLAIMS: &str = "claims = { repository = \"acme/tools\" }";

/// A config with this section of an issuer, and a client by its tokens.
fn with(issuer: &str, oidc: &str) -> String {
    format!(
        "{VALID}\n[[issuers]]\n{issuer}\n[[clients]]\nname = \"jobs\"\nreads = \"all\"\n{oidc}\n"
    )
}

fn issuer(url: &str) -> String {
    format!("name = \"actions\"\nurl = \"{url}\"\naudience = \"weir\"")
}

fn oidc(claims: &str) -> String {
    format!("oidc = {{ issuer = \"actions\", {claims} }}")
}

#[test]
fn a_client_may_be_known_by_the_tokens_of_an_issuer_alone() {
    let config = accepted(&with(&issuer("https://Issuer.example/a/"), &oidc(CLAIMS)));
    let [issuer] = config.issuers.as_slice() else { panic!("one issuer") };
    assert_eq!(&*issuer.url, "https://Issuer.example/a/", "as tokens write it");
    let IssuerKeys::Discovery(url) = &issuer.keys else { panic!("{:?}", issuer.keys) };
    assert_eq!(
        (url.base.host(), url.target.as_str()),
        ("issuer.example", "/a/.well-known/openid-configuration")
    );
    let client = config.clients.last().unwrap();
    assert!(client.keys.is_empty() && client.oidc.as_ref().unwrap().issuer == 0);
    let direct = issuer_text("jwks_url = \"https://[::1]:8443/keys?v=2\"");
    let config = accepted(&with(&direct, &oidc(CLAIMS)));
    let IssuerKeys::Url(url) = &config.issuers[0].keys else { panic!("an address") };
    assert_eq!((url.base.host(), url.base.port(), url.target.as_str()), ("::1", 8443, "/keys?v=2"));
}

fn issuer_text(more: &str) -> String {
    format!("{}\n{more}", issuer("https://issuer.example"))
}

#[test]
fn a_file_of_keys_is_read_with_the_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    let section = issuer_text(&format!("jwks_file = \"{}\"", file.display()));
    for (content, problem) in [
        (None, "cannot be read: No such file"),
        (Some("{}"), "no set of keys"),
        (Some("{\"keys\": []}"), "no key with a name"),
        (Some("{\"keys\": [{\"kty\": \"RSA\", \"n\": \"AQAB\", \"e\": \"AQAB\"}]}"), "no key with"),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let faults = parsed(&with(&section, &oidc(CLAIMS))).unwrap_err();
        assert_eq!(faults.0[0].key, "issuers[0].jwks_file", "{faults}");
        assert!(faults.0[0].problem.contains(problem), "{faults}");
    }
    let key = |n: &str| {
        format!(
            "{{\"keys\": [{{\"kty\": \"RSA\", \"kid\": \"a\", \"n\": \"{n}\", \"e\": \"AQAB\"}}]}}"
        )
    };
    std::fs::write(&file, key(&("q".repeat(170) + "A"))).unwrap();
    let faults = parsed(&with(&section, &oidc(CLAIMS))).unwrap_err();
    assert!(faults.0[0].problem.contains("RSA from 2,048 bits"), "{faults}");
    std::fs::write(&file, key(&("q".repeat(341) + "A"))).unwrap();
    let config = accepted(&with(&section, &oidc(CLAIMS)));
    assert!(matches!(&config.issuers[0].keys, IssuerKeys::File(path, _) if *path == file));
}

#[test]
fn issuers_of_no_use_are_refused() {
    let good = issuer("https://issuer.example");
    for (issuer, oidc, key, message) in [
        (issuer("http://issuer.example"), oidc(CLAIMS), "issuers[0].url", "plain HTTP to another"),
        (issuer("ftp://issuer.example"), oidc(CLAIMS), "issuers[0].url", "neither http nor https"),
        (issuer("https://u:p@issuer.example"), oidc(CLAIMS), "issuers[0].url", "a user name"),
        (issuer("https://issuer.example?a=b"), oidc(CLAIMS), "issuers[0].url", "a query"),
        (
            issuer_text("jwks_url = \"http://issuer.example/keys\""),
            oidc(CLAIMS),
            "issuers[0].jwks_url",
            "plain HTTP to another",
        ),
        (good.replace("audience = \"weir\"", ""), oidc(CLAIMS), "issuers[0].audience", "missing"),
    ] {
        assert_refused(&issuer, &oidc, key, message);
    }
}

/// Asserts a fault of this key and text.
fn assert_refused(issuer: &str, oidc: &str, key: &str, message: &str) {
    let faults = parsed(&with(issuer, oidc)).unwrap_err();
    let found = faults.0.iter().find(|fault| fault.key == key);
    assert!(found.is_some_and(|fault| fault.problem.contains(message)), "{key}: {faults}");
}

#[test]
fn a_pattern_that_fits_strangers_is_warned_of() {
    let url = issuer("https://issuer.example");
    for (claim, is_warned_of) in [
        ("repository = \"acme*\"", true),
        ("repository = [\"acme/tools\", \"acme*\"]", true),
        ("sub = \"repo:acme*\"", true),
        ("repository = \"acme/*\"", false),
        ("repository = \"acme/tools*\"", false),
        ("sub = \"repo:acme/tools:*\"", false),
        ("sub = \"system:serviceaccount:ci:*\"", false),
        ("ref = \"release*\"", false),
    ] {
        let config = accepted(&with(&url, &oidc(&format!("claims = {{ {claim} }}"))));
        let warned = config.warnings().into_iter().any(|warning| {
            warning.key == "clients[2].oidc.claims" && warning.problem.contains("strangers")
        });
        assert_eq!(warned, is_warned_of, "{claim}");
    }
}

#[test]
fn claims_that_accept_too_much_are_refused() {
    let good = issuer("https://issuer.example");
    for (issuer, oidc, key, message) in [
        (good.clone(), oidc("claims = {}"), "clients[2].oidc.claims", "any token of the issuer"),
        (
            good.clone(),
            oidc("claims = { iss = \"https://issuer.example\", aud = \"weir\" }"),
            "clients[2].oidc.claims",
            "any token of the issuer",
        ),
        (
            format!("{good}\n[[issuers]]\n{}", good.replace("\"actions\"", "\"again\"")),
            oidc(CLAIMS),
            "issuers[1]",
            "the same url and audience",
        ),
        (
            good.clone(),
            "oidc = { issuer = \"actions\" }".to_owned(),
            "clients[2].oidc.claims",
            "missing",
        ),
        (
            good.clone(),
            oidc("claims = { repository = \"*\" }"),
            "clients[2].oidc.claims.repository",
            "every value",
        ),
        (
            good.clone(),
            oidc("claims = { repository = [] }"),
            "clients[2].oidc.claims.repository",
            "empty",
        ),
        (
            good.clone(),
            "oidc = { issuer = \"other\", claims = { a = \"b\" } }".to_owned(),
            "clients[2].oidc.issuer",
            "unknown issuer `other`",
        ),
        (
            good.clone(),
            format!(
                "{}\n[[clients]]\nname = \"more\"\nreads = \"all\"\n{}",
                oidc(CLAIMS),
                oidc(CLAIMS)
            ),
            "clients[3].oidc",
            "client `jobs` has the same",
        ),
    ] {
        assert_refused(&issuer, &oidc, key, message);
    }
}
