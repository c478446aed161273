//! Members of an organisation and public members. The upstream documents the routes without their
//! shapes.

use http::{StatusCode, header};

use super::{Filter, WRITE_AS_MEMBER, WRITE_AS_OWNER, filter, named_user};
use crate::emulator::events::webhooks::organizations::{Memberships, publish_membership_changes};
use crate::emulator::http::{ApiError, Reply, segment};
use crate::emulator::render::Renderer;
use crate::emulator::resources::teams::joining::{self, Left};
use crate::emulator::resources::teams::{organization, organization_mut};
use crate::emulator::routing::{
    Call, MembersNeed, Need, Outcome, READ_SCOPES, Route, USUAL, pagination,
};

const PUBLIC: Need = Need::Members(MembersNeed::Public);

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/members", PUBLIC, list),
    Route::get("/orgs/{org}/members/{username}", PUBLIC, get),
    Route::delete("/orgs/{org}/members/{username}", WRITE_AS_OWNER, delete),
    Route::get("/orgs/{org}/public_members", PUBLIC, list_public),
    Route::get("/orgs/{org}/public_members/{username}", PUBLIC, get_public),
    Route::put("/orgs/{org}/public_members/{username}", WRITE_AS_MEMBER, publish),
    Route::delete("/orgs/{org}/public_members/{username}", WRITE_AS_MEMBER, conceal),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Inside,
    Outside,
}

/// Members and the installation see everybody; others, and members without the scope `read:org`,
/// see public members only.
fn view(call: &Call<'_>) -> Result<View, ApiError> {
    let organization = organization(call)?;
    let Some(token) = call.caller.token() else { return Ok(View::Outside) };
    let belongs = match token.user {
        Some(user) => organization.members.contains(&user),
        None => token.installed_on == Some(organization.id),
    };
    let may_look = !token.is_scoped() || READ_SCOPES.iter().any(|scope| token.has_scope(scope));
    Ok(if belongs && may_look { View::Inside } else { View::Outside })
}

fn list(call: &mut Call<'_>) -> Outcome {
    let (view, filter, wanted) = (view(call)?, filter(call)?, role(call)?);
    let organization = organization(call)?;
    let is_wanted = |user: &u64| {
        let is_owner = organization.owners.contains(user);
        let has_role = match wanted {
            Wanted::Everyone => true,
            Wanted::Owners => is_owner,
            Wanted::OthersThanOwners => !is_owner,
        };
        has_role
            && filter == Filter::All
            && (view == View::Inside || organization.people.public.contains(user))
    };
    let shown = organization.members.iter().copied().filter(is_wanted).collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, shown, |user| renderer.user_summary(user)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Everyone,
    Owners,
    OthersThanOwners,
}

fn role(call: &Call<'_>) -> Result<Wanted, ApiError> {
    match call.query.get("role") {
        None | Some("" | "all") => Ok(Wanted::Everyone),
        Some("admin") => Ok(Wanted::Owners),
        Some("member") => Ok(Wanted::OthersThanOwners),
        Some(_) => Err(ApiError::invalid("Member", "role", "role must be all, admin or member")),
    }
}

/// Answers 204 or 404 to callers who see all members; redirects others to the public ones.
fn get(call: &mut Call<'_>) -> Outcome {
    let organization = organization(call)?;
    if view(call)? == View::Outside {
        let (org, username) = (segment(&organization.login), segment(call.params.get("username")));
        let address = format!("{}/orgs/{org}/public_members/{username}", call.urls.api);
        return Ok(Reply::empty(StatusCode::FOUND).with(header::LOCATION, &address));
    }
    let user = named_user(call)?;
    if organization.members.contains(&user) {
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    } else {
        Err(ApiError::NotFound)
    }
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let user = named_user(call)?;
    let now = call.now;
    let before = Memberships::of(call.world, call.organization, user);
    match joining::leave_organization(organization_mut(call)?, now, user)? {
        Left::Yes => {
            publish_membership_changes(call, call.organization, user, &before);
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        Left::No => Err(ApiError::NotFound),
    }
}

fn list_public(call: &mut Call<'_>) -> Outcome {
    let shown = organization(call)?.people.public.iter().copied().collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, shown, |user| renderer.user_summary(user)))
}

fn get_public(call: &mut Call<'_>) -> Outcome {
    let user = named_user(call)?;
    let is_public = organization(call)?.people.public.contains(&user);
    if is_public { Ok(Reply::empty(StatusCode::NO_CONTENT)) } else { Err(ApiError::NotFound) }
}

/// Returns the caller, if it is the member in the path. An installation is no member.
fn oneself(call: &Call<'_>) -> Result<u64, ApiError> {
    let me =
        call.caller.user().ok_or(ApiError::Forbidden("Resource not accessible by integration"))?;
    if named_user(call)? == me {
        Ok(me)
    } else {
        Err(ApiError::Forbidden("Members can show or hide only their own membership."))
    }
}

fn publish(call: &mut Call<'_>) -> Outcome {
    let me = oneself(call)?;
    organization_mut(call)?.people.public.insert(me);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn conceal(call: &mut Call<'_>) -> Outcome {
    let me = oneself(call)?;
    organization_mut(call)?.people.public.remove(&me);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
