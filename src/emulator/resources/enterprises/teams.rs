//! The teams of an enterprise: list, create, show, change, delete. The upstream documents the
//! routes without their shapes (SPECIFICATION, "Enterprise teams").

use std::collections::BTreeSet;

use super::{READ, WRITE, enterprise, enterprise_mut, team, team_mut};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::resources::teams::description::{self, NAME_CHARS_MAX};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{Enterprise, EnterpriseTeam, SLUG_PREFIX};

pub const ROUTES: &[Route] = &[
    Route::get("/enterprises/{enterprise}/teams", READ, list),
    Route::post("/enterprises/{enterprise}/teams", WRITE, create),
    Route::get("/enterprises/{enterprise}/teams/{enterprise-team}", READ, get),
    Route::patch("/enterprises/{enterprise}/teams/{enterprise-team}", WRITE, patch),
    Route::delete("/enterprises/{enterprise}/teams/{enterprise-team}", WRITE, delete),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let enterprise = enterprise(call)?;
    call.page(enterprise.teams.values(), |renderer, team| {
        renderer.enterprise_team(enterprise, team)
    })
}

fn get(call: &mut Call<'_>) -> Outcome {
    let (enterprise, team) = (enterprise(call)?, team(call)?);
    let body = call.renderer().enterprise_team(enterprise, team);
    Ok(Reply::ok(body).changed_at(team.updated_at))
}

/// Returns the name's slug with the prefix `ent:`. It must be non-empty and free.
fn free_slug(
    fields: &mut Fields,
    enterprise: &Enterprise,
    name: &str,
    except: Option<u64>,
) -> String {
    let plain = description::slug(name);
    let slug = format!("{SLUG_PREFIX}{plain}");
    if plain.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        let message =
            format!("name must have a letter or digit and at most {NAME_CHARS_MAX} characters");
        fields.invalid("name", message);
    } else if enterprise.teams.values().any(|team| team.slug == slug && Some(team.id) != except) {
        fields.reject("name", Code::AlreadyExists, "name must be unique in the enterprise");
    }
    slug
}

fn create(call: &mut Call<'_>) -> Outcome {
    let enterprise = enterprise(call)?;
    ApiError::unless_spammed("EnterpriseTeam", enterprise.teams.len())?;
    let mut fields = Fields::parse("EnterpriseTeam", call.body)?;
    let name = fields.required_string("name");
    let slug = if name.is_empty() {
        String::new()
    } else {
        free_slug(&mut fields, enterprise, &name, None)
    };
    let description = description::description(&mut fields).value();
    fields.check()?;
    let (now, id) = (call.now, call.world.next_id());
    let team = EnterpriseTeam {
        id,
        slug,
        name,
        description,
        members: BTreeSet::new(),
        organizations: BTreeSet::new(),
        created_at: now,
        updated_at: now,
    };
    let value = call.renderer().enterprise_team(self::enterprise(call)?, &team);
    enterprise_mut(call)?.teams.insert(id, team);
    Ok(Reply::created_at_url(value))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let id = team(call)?.id;
    let mut fields = Fields::parse("EnterpriseTeam", call.body)?;
    let name =
        fields.has("name").then(|| fields.required_string("name")).filter(|name| !name.is_empty());
    let enterprise = enterprise(call)?;
    let named = name.map(|name| {
        let slug = free_slug(&mut fields, enterprise, &name, Some(id));
        (name, slug)
    });
    let description = description::description(&mut fields);
    fields.check()?;
    let team = team_mut(call)?;
    if let Some((name, slug)) = named {
        team.name = name;
        team.slug = slug;
    }
    team.description = description.of(team.description.take());
    let enterprise = self::enterprise(call)?;
    let team = enterprise.teams.get(&id).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().enterprise_team(enterprise, team)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = team(call)?.id;
    enterprise_mut(call)?.teams.remove(&id);
    Ok(Reply::no_content())
}
