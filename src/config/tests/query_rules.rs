//! Rules for GraphQL queries in `[[cache.rules]]`: their order, and their faults.

use super::*;

fn with_rules(rules: &str) -> String {
    spoilt("\"64MiB\"", &format!("\"64MiB\"\nrules = [{rules}]"))
}

#[test]
fn the_first_rule_that_covers_a_query_applies() {
    let text = with_rules(
        "{ graphql = \"A\", ttl = \"1m\" }, { route = \"/meta\", ttl = \"1h\" }, { graphql = \"*\", ttl = \"5s\" }",
    );
    let cache = accepted(&text).cache;
    assert_eq!((cache.rules.len(), cache.query_rules.len()), (1, 2));
    let ttl_of = |name: Option<&str>| {
        let rule = cache.query_rules.iter().find(|rule| rule.covers(name)).unwrap();
        rule.ttl.as_secs()
    };
    assert_eq!([Some("A"), Some("B"), None].map(ttl_of), [60, 5, 5]);
}

#[test]
fn a_faulty_rule_makes_no_other_key_unknown() {
    let rules = "{ route = \"/no/such/route\", ttl = \"1m\" }";
    let text = with_rules(rules).replace("rules = ", "freshness = \"revalidate\"\nrules = ");
    let faults = parsed(&text).unwrap_err();
    let [fault] = faults.0.as_slice() else { panic!("one fault: {faults}") };
    assert_eq!(fault.key, "cache.rules[0].route");
}

#[test]
fn each_fault_of_a_rule_names_what_is_accepted() {
    for (rules, key, message) in [
        ("{ graphql = \"A\" }", "[0].ttl", "missing (accepted: a duration"),
        (
            "{ graphql = \"A\", ttl = \"1m\", route = \"/meta\" }",
            "[0].route",
            "not beside graphql, which names queries of any path (accepted: route or graphql)",
        ),
        (
            "{ graphql = \"A\", ttl = \"1m\", webhook_ttl = \"1h\" }",
            "[0].webhook_ttl",
            "no webhook tells of all changes of a query's answer (accepted: ttl alone)",
        ),
        (
            "{ graphql = \"open issues\", ttl = \"1m\" }",
            "[0].graphql",
            "no name of an operation: `open issues` (accepted: the name of an operation",
        ),
        ("{ graphql = \"\", ttl = \"1m\" }", "[0].graphql", "bad text ``"),
        ("{ graphql = 5, ttl = \"1m\" }", "[0].graphql", "wrong type: an integer"),
        (
            "{ graphql = \"*\", ttl = \"1m\" }, { graphql = \"A\", ttl = \"1m\" }",
            "[1].graphql",
            "never applies: an earlier rule matches first (accepted: each operation once",
        ),
        ("{ graphql = \"A\", ttl = \"1m\", vary = \"x\" }", "[0].vary", "unknown key"),
        ("{ graphqll = \"A\", route = \"/meta\", ttl = \"1m\" }", "[0].graphqll", "`graphql`?"),
    ] {
        let faults = parsed(&with_rules(rules)).unwrap_err();
        let [fault] = faults.0.as_slice() else { panic!("one fault of {rules}: {faults}") };
        assert_eq!((fault.line, &*fault.key), (Some(36), &*format!("cache.rules{key}")));
        assert!(fault.to_string().contains(message), "{fault}");
    }
}
