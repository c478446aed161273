//! Apps, their keys and accounts, and budgets that belong together.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::*;

/// `VALID` with further sections.
fn with(more: &str) -> String {
    spoilt("[cache]", &format!("{more}\n[cache]"))
}

fn app(id: u64, key: &str, more: &str) -> String {
    format!("[[apps]]\napp_id = {id}\nprivate_key = {{ env = \"{key}\" }}\n{more}\n")
}

fn app_account(name: &str) -> String {
    format!("[[accounts]]\nname = \"{name}\"\nkind = \"app\"\n")
}

fn only_fault(text: &str) -> Fault {
    let Err(faults) = parsed(text) else { panic!("accepted:\n{text}") };
    let [fault] = faults.0.as_slice() else { panic!("not one fault:\n{faults}") };
    fault.clone()
}

/// Names the accounts of the apps.
fn payers(text: &str) -> Vec<String> {
    let config = accepted(text);
    config.apps.iter().map(|app| config.accounts[app.account].name.to_string()).collect()
}

#[test]
fn an_app_and_the_only_account_of_kind_app_belong_together() {
    assert_eq!(payers(&with(&(app_account("acme") + &app(1, "APP_KEY", "")))), ["acme"]);
}

#[test]
fn an_app_without_an_account_gets_one_of_its_own() {
    assert_eq!(
        payers(&with(&(app(1, "APP_KEY", "") + &app(2, "OTHER_APP_KEY", "")))),
        ["app 1", "app 2"]
    );
    let config = accepted(&with(&app(1, "APP_KEY", "")));
    assert_eq!(config.accounts[2].kind, AccountKind::App);
    assert!(config.warnings().is_empty(), "{:?}", config.warnings());
    assert!(config.pools.iter().all(|pool| !pool.accounts.contains(&2)));
    let taken = "[[accounts]]\nname = \"app 1\"\nkind = \"anonymous\"\n".to_owned()
        + &app(1, "APP_KEY", "");
    assert_eq!(payers(&with(&taken)), ["app 1'"]);
}

#[test]
fn an_app_names_its_account_among_several() {
    let apps =
        app(1, "APP_KEY", "account = \"two\"") + &app(2, "OTHER_APP_KEY", "account = \"one\"");
    assert_eq!(payers(&with(&(app_account("one") + &app_account("two") + &apps))), ["two", "one"]);
}

#[test]
fn each_app_has_its_own_account_of_kind_app() {
    let shared = app_account("one")
        + &app(1, "APP_KEY", "account = \"one\"")
        + &app(2, "OTHER_APP_KEY", "account = \"one\"");
    let fault = only_fault(&with(&shared));
    assert_eq!((fault.line, fault.key.as_str()), (Some(44), "apps[1].account"), "{fault}");
    let fault = only_fault(&with(&app(1, "APP_KEY", "account = \"bot\"")));
    assert!(
        fault
            .to_string()
            .contains("the account is of kind `user` (accepted: an account of kind `app`"),
        "{fault}"
    );
    let fault = only_fault(&with(
        &(app_account("one") + &app_account("two") + &app(1, "APP_KEY", "account = \"two\"")),
    ));
    assert_eq!(
        (fault.key.as_str(), fault.problem.as_str()),
        ("accounts[2]", "the account has no credential")
    );
    let twice =
        "installations = [{ id = 5, account = \"acme-app\" }, { id = 5, account = \"acme-app\" }]";
    assert_eq!(only_fault(&with(&app(1, "APP_KEY", twice))).key, "apps[0].installations[1].id");
}

#[test]
fn two_installations_never_share_an_account() {
    let shared =
        "installations = [{ id = 5, account = \"acme-app\" }, { id = 6, account = \"acme-app\" }]";
    let fault = only_fault(&with(&app(1, "APP_KEY", shared)));
    assert_eq!(fault.key, "apps[0].installations[1].account");
    assert!(fault.to_string().contains("their budgets are not the same"), "{fault}");
}

#[test]
fn pkcs_1_and_pkcs_8_keys_are_accepted() {
    let der = BASE64_STANDARD
        .decode(APP_KEY.lines().filter(|line| !line.starts_with('-')).collect::<String>())
        .unwrap();
    // RFC 5208: version 0, rsaEncryption without parameters, the PKCS#1 key.
    let length = |bytes: usize| {
        [0x82, u8::try_from(bytes >> 8).unwrap(), u8::try_from(bytes & 0xff).unwrap()]
    };
    let mut inner =
        vec![2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0, 4];
    inner.extend(length(der.len()));
    inner.extend(&der);
    let mut outer = vec![0x30];
    outer.extend(length(inner.len()));
    outer.extend(inner);
    let pkcs_8 = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        BASE64_STANDARD.encode(outer)
    );
    for pem in
        [APP_KEY.to_owned(), pkcs_8, APP_KEY.replace('\n', "\\n"), APP_KEY.replace('\n', "\r\n")]
    {
        assert!(rsa_key(&pem).is_ok(), "{:?}", rsa_key(&pem).err());
    }
}

#[test]
fn an_unusable_key_is_a_fault_with_its_line() {
    let cut = &APP_KEY[..800];
    let damaged = APP_KEY.replacen("MII", "M*I", 1);
    let other = APP_KEY.replacen("MIIEpQ", "MIIEqQ", 1);
    for (pem, problem) in [
        ("s3cret", "not a private key in PEM form"),
        (
            "-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----",
            "not a private key in PEM form",
        ),
        (
            "-----BEGIN EC PRIVATE KEY-----\nczNjcmV0\n-----END EC PRIVATE KEY-----",
            "not an RSA key",
        ),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nczNjcmV0\n-----END OPENSSH PRIVATE KEY-----",
            "not an RSA key",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nczNjcmV0\n-----END ENCRYPTED PRIVATE KEY-----",
            "is encrypted",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nczNjcmV0\n-----END RSA PRIVATE KEY-----",
            "is encrypted",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nczNjcmV0\n-----END RSA PRIVATE KEY-----",
            "not an RSA key that can sign",
        ),
        (cut, "cut off"),
        (&damaged, "not base64"),
        (&other, "not an RSA key that can sign"),
    ] {
        let fault = only_fault(&with(&format!(
            "[[apps]]\napp_id = 1\nprivate_key = {{ value = '''{pem}''' }}\n"
        )));
        assert_eq!((fault.line, fault.key.as_str()), (Some(36), "apps[0].private_key"), "{fault}");
        assert!(fault.problem.contains(problem), "{fault}");
        assert!(
            fault.accepted.as_deref().is_some_and(|accepted| accepted.contains("RSA key of 2048")),
            "{fault}"
        );
        assert!(
            !fault.to_string().contains("czNjcmV0") && !fault.to_string().contains("MII"),
            "{fault}"
        );
    }
}

#[test]
fn an_account_may_spend_another_users_budget_as_well() {
    let apps_token = "[[accounts]]\nname = \"through-app\"\nkind = \"user\"\nalso_spends = \"bot\"\n\
        [[tokens]]\naccount = \"through-app\"\nkind = \"app-user\"\nsecret = { value = \"x\" }\n";
    let config = accepted(&with(apps_token));
    assert_eq!(config.accounts[2].also_spends, Some(0));
    assert!(
        config.redacted_toml().contains(
            "name = \"through-app\"\nkind = \"user\"\nreserve = 0\nalso_spends = \"bot\"\n"
        )
    );
    for (from, to, problem) in [
        ("also_spends = \"bot\"", "also_spends = \"through-app\"", "its own budget twice"),
        (
            "also_spends = \"bot\"",
            "also_spends = \"acme-app\"",
            "the account is of kind `installation`",
        ),
        ("also_spends = \"bot\"", "also_spends = \"nobody\"", "unknown account `nobody`"),
    ] {
        let fault = only_fault(&with(&apps_token.replacen(from, to, 1)));
        assert_eq!(
            (fault.line, fault.key.as_str()),
            (Some(37), "accounts[2].also_spends"),
            "{fault}"
        );
        assert!(fault.problem.contains(problem) && fault.accepted.is_some(), "{fault}");
    }
    let chain = with(apps_token).replacen(
        "kind = \"user\"",
        "kind = \"user\"\nalso_spends = \"through-app\"",
        1,
    );
    let faults = parsed(&chain).unwrap_err();
    assert!(faults.iter().all(|fault| fault.problem.contains("a third one's budget")), "{faults}");
    let of_installation =
        spoilt("kind = \"installation\"", "kind = \"installation\"\nalso_spends = \"bot\"");
    assert!(only_fault(&of_installation).problem.contains("only an account of kind `user`"));
}

#[test]
fn only_one_account_may_be_anonymous() {
    let anonymous = |name| format!("[[accounts]]\nname = \"{name}\"\nkind = \"anonymous\"\n");
    accepted(&with(&anonymous("a")));
    let fault = only_fault(&with(&(anonymous("a") + &anonymous("b"))));
    assert_eq!((fault.line, fault.key.as_str()), (Some(39), "accounts[3].kind"), "{fault}");
}

#[test]
fn a_questionable_budget_is_worth_a_warning() {
    let budget_warnings = |text: &str| {
        let warnings = accepted(text).warnings().into_iter();
        warnings
            .map(|warning| warning.problem)
            .filter(|problem| !problem.contains("never spent"))
            .collect::<Vec<_>>()
    };
    let token = |account: &str, kind: &str| {
        format!(
            "[[tokens]]\naccount = \"{account}\"\nkind = \"{kind}\"\nsecret = {{ value = \"x\" }}\n"
        )
    };
    let workflow = |reach: &str| {
        with(
            &(format!("[[accounts]]\nname = \"run\"\nkind = \"workflow\"\n{reach}\n")
                + &token("run", "workflow")),
        )
    };
    assert!(budget_warnings(&workflow("reach = [\"acme/widgets\"]")).is_empty());
    for reach in ["", "reach = [\"acme\"]", "reach = [\"acme/widgets\", \"acme/other\"]"] {
        assert!(
            matches!(budget_warnings(&workflow(reach)).as_slice(), [problem] if problem.contains("exactly one repository")),
            "{reach}"
        );
    }
    assert!(
        matches!(budget_warnings(&with(&token("bot", "oauth"))).as_slice(), [problem] if problem.contains("also_spends"))
    );
}
