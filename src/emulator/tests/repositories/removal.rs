//! Tests that a deleted repository or organisation leaves no data behind.

use serde_json::json;

use crate::emulator::accounts::Permissions;
use crate::emulator::tests::*;
use crate::emulator::world::{HookKey, InstallationGrant, Target};

const OID: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
const WIDGETS: u64 = 1_001;

#[test]
fn a_deleted_repository_leaves_no_objects_values_or_templates() {
    let mut upstream = Upstream::new();
    upstream
        .put(ADA, "/orgs/acme/properties/schema/tier", &json!({ "value_type": "string" }))
        .assert_status(200);
    let set = json!({ "repository_names": ["widgets"], "properties": [{ "property_name": "tier", "value": "one" }] });
    upstream.patch(ADA, "/orgs/acme/properties/values", &set).assert_status(204);
    let mut upload = request(
        Method::PUT,
        ADA,
        &format!("/acme/widgets.git/info/lfs/objects/{OID}"),
        &[],
        &Value::Null,
    );
    *upload.body_mut() = Bytes::from_static(b"hello");
    upstream.send(&upload).assert_status(200);
    let world = &upstream.emulator.state.world;
    assert!(world.template_of.values().any(|from| *from == WIDGETS));
    assert!(world.lfs.holds(WIDGETS) && world.properties.has_values(WIDGETS));
    upstream.delete(ADA, "/repos/acme/widgets").assert_status(204);
    let world = &upstream.emulator.state.world;
    assert!(!world.template_of.iter().any(|(made, from)| [*made, *from].contains(&WIDGETS)));
    assert!(!world.lfs.holds(WIDGETS) && !world.properties.has_values(WIDGETS));
}

#[test]
fn a_deleted_organization_leaves_no_data_behind() {
    let mut upstream = Upstream::new();
    let hook =
        json!({ "name": "web", "config": { "url": "http://receiver.test/" }, "events": ["*"] });
    let hook = upstream.post(ADA, "/orgs/acme/hooks", &hook).assert_status(201).body["id"]
        .as_u64()
        .expect("an id");
    upstream.post(ADA, &format!("/orgs/acme/hooks/{hook}/pings"), &json!({})).assert_status(204);
    upstream
        .put(ADA, "/orgs/acme/properties/schema/tier", &json!({ "value_type": "string" }))
        .assert_status(200);
    let id = upstream.get(ADA, "/orgs/acme").body["id"].as_u64().expect("an id");
    let world = &mut upstream.emulator.state.world;
    let installations: Vec<u64> = world
        .apps
        .iter()
        .flat_map(|app| &app.installations)
        .filter(|(_, on)| *on == id)
        .map(|(installation, _)| *installation)
        .collect();
    assert!(
        !installations.is_empty()
            && !world.delivery_queue.is_empty()
            && world.issue_fields.contains_key(&id)
    );
    for installation in &installations {
        world.installation_grants.insert(
            *installation,
            InstallationGrant { permissions: Permissions::All, repositories: None },
        );
    }
    upstream.delete(ADA, "/orgs/acme").assert_status(202);
    let world = &upstream.emulator.state.world;
    assert_eq!(
        (world.properties.definitions(id).count(), world.issue_fields.contains_key(&id)),
        (0, false)
    );
    assert!(!world.delivery_queue.has(HookKey { target: Target::Organization(id), hook }));
    assert!(installations.iter().all(|installation| world.installation(*installation).is_none()));
    assert!(
        installations
            .iter()
            .all(|installation| !world.installation_grants.contains_key(installation))
    );
}

#[test]
fn a_name_that_a_repository_had_twice_is_remembered_once() {
    let mut upstream = Upstream::new();
    let world = &mut upstream.emulator.state.world;
    let before = world.former_names_count();
    for name in ["gizmos", "widgets"].iter().cycle().take(10) {
        assert!(world.rename_repository(WIDGETS, name));
    }
    assert_eq!(world.former_names_count(), before + 2);
}
