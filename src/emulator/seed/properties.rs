//! Custom properties with values, issue fields, a template and narrow tokens of the seed world.
//! Independent of the seed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::people::{ACME, ADA, APP, BEN, CLEO, WIDGETS, personal};
use crate::api::TokenKind;
use crate::clock::Timestamp;
use crate::emulator::accounts::{Level, Permissions, Token};
use crate::emulator::world::organizations::issue_fields::{FieldOption, IssueField};
use crate::emulator::world::organizations::membership::{DEFINITIONS_MANAGER, VALUES_EDITOR};
use crate::emulator::world::organizations::property::ValueType;
use crate::emulator::world::{Definition, Editors, PropertyValue, World};

const DAY: Duration = Duration::from_hours(24);

pub fn add(world: &mut World, now: Timestamp) {
    if let Some(acme) = world.organizations.get_mut(&ACME) {
        acme.roles.entry(DEFINITIONS_MANAGER).or_default().insert(BEN);
        acme.roles.entry(VALUES_EDITOR).or_default().insert(CLEO);
    }
    for definition in definitions() {
        world.define_property(ACME, definition);
    }
    let one = |text: &str| Some(PropertyValue::One(text.to_owned()));
    world.properties.set(WIDGETS, "environment", one("production"));
    world.properties.set(WIDGETS, "service", one("widgets"));
    world.properties.set(
        WIDGETS,
        "teams",
        Some(PropertyValue::Many(vec!["platform".to_owned(), "bots".to_owned()])),
    );
    world.properties.set(WIDGETS + 1, "audited", one("true"));
    add_issue_fields(world, now - DAY * 60);
    // acme/sprockets was generated from acme/widgets.
    world.template_of.insert(WIDGETS + 2, WIDGETS);
    for token in tokens() {
        world.add_token(token);
    }
}

/// One of every value type, one required with a default, one with editors in the repository.
fn definitions() -> [Definition; 4] {
    let definition = |name: &str, value_type, description: &str| Definition {
        name: name.to_owned(),
        value_type,
        required: false,
        default_value: None,
        description: Some(description.to_owned()),
        allowed_values: None,
        editors: Editors::OrgActors,
        require_explicit_values: false,
    };
    let list = |values: &[&str]| Some(values.iter().map(|value| (*value).to_owned()).collect());
    [
        Definition {
            required: true,
            default_value: Some(PropertyValue::One("development".to_owned())),
            allowed_values: list(&["production", "staging", "development"]),
            ..definition("environment", ValueType::SingleSelect, "Where it runs")
        },
        Definition {
            editors: Editors::OrgAndRepoActors,
            ..definition("service", ValueType::Text, "What it serves")
        },
        Definition {
            allowed_values: list(&["platform", "platform-core", "bots"]),
            ..definition("teams", ValueType::MultiSelect, "Who owns it")
        },
        definition("audited", ValueType::TrueFalse, "Whether auditors look at it"),
    ]
}

fn add_issue_fields(world: &mut World, at: Timestamp) {
    let levels = [("High", "red"), ("Medium", "yellow"), ("Low", "green")];
    let options: Vec<FieldOption> = (1..)
        .zip(levels)
        .map(|(priority, (name, color))| FieldOption {
            id: world.next_id(),
            name: name.to_owned(),
            description: None,
            color,
            priority,
            created_at: at,
            updated_at: at,
        })
        .collect();
    for (name, data_type, options) in
        [("Priority", "single_select", options), ("Customer", "text", Vec::new())]
    {
        let id = world.next_id();
        let field = IssueField {
            id,
            name: name.to_owned(),
            description: None,
            data_type,
            visibility: "organization_members_only".to_owned(),
            options,
            created_at: at,
            updated_at: at,
        };
        world.issue_fields.entry(ACME).or_default().insert(id, field);
    }
}

/// Tokens that permit one operation and not its neighbour.
fn tokens() -> Vec<Token> {
    let token = |value: &str, kind, user: u64, scopes: &[&'static str], permissions, note| Token {
        app: (kind == TokenKind::AppUser).then_some(APP),
        ..personal(value, kind, user, scopes, permissions, note)
    };
    let classic = |value, user, scopes, note| {
        token(value, TokenKind::Classic, user, scopes, Permissions::NotApplicable, note)
    };
    let only = |granted: &[(&'static str, Level)]| {
        Permissions::Only(granted.iter().copied().collect::<BTreeMap<_, _>>())
    };
    let reads = [
        ("metadata", Level::Read),
        ("organization_custom_properties", Level::Read),
        ("issue_fields", Level::Read),
    ];
    let writes = [
        ("metadata", Level::Read),
        ("organization_custom_properties", Level::Write),
        ("issue_fields", Level::Write),
    ];
    vec![
        classic(
            "emu_classic_ada_notifications",
            ADA,
            &["notifications"],
            "owner of acme, notifications only: no private threads",
        ),
        classic(
            "emu_classic_ada_repo",
            ADA,
            &["repo"],
            "owner of acme, repositories and what is in them",
        ),
        classic(
            "emu_classic_ada_read_org",
            ADA,
            &["read:org"],
            "owner of acme, reads organisations",
        ),
        token(
            "emu_fine_grained_ada_reads_properties",
            TokenKind::FineGrained,
            ADA,
            &[],
            only(&reads),
            "owner of acme, reads properties and issue fields",
        ),
        token(
            "emu_app_user_ada_writes_properties",
            TokenKind::AppUser,
            ADA,
            &[],
            only(&writes),
            "owner of acme, writes values and issue fields",
        ),
    ]
}
