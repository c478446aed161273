//! Custom properties with values, issue fields and a template of the seed world. Independent of the
//! seed.

use super::DAY;
use super::people::{ACME, BEN, CLEO, WIDGETS};
use crate::clock::Timestamp;
use crate::emulator::world::organizations::issue_fields::{FieldOption, IssueField};
use crate::emulator::world::organizations::membership::{DEFINITIONS_MANAGER, VALUES_EDITOR};
use crate::emulator::world::organizations::property::ValueType;
use crate::emulator::world::{Definition, Editors, PropertyValue, World};

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
    let owners = PropertyValue::Many(vec!["platform".to_owned(), "bots".to_owned()]);
    world.properties.set(WIDGETS, "teams", Some(owners));
    world.properties.set(WIDGETS + 1, "audited", one("true"));
    add_issue_fields(world, now - DAY * 60);
    // acme/sprockets was generated from acme/widgets.
    world.template_of.insert(WIDGETS + 2, WIDGETS);
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
