//! Members of an organisation and public members. The upstream documents the routes without their
//! shapes.

use http::{StatusCode, header};

use super::{Filter, WRITE_AS_MEMBER, WRITE_AS_OWNER, filter};
use crate::emulator::auth::access::REJECTED_APP;
use crate::emulator::http::{ApiError, Reply, segment};
use crate::emulator::resources::teams::joining;
use crate::emulator::routing::{Call, MembersNeed, Need, Outcome, READ_SCOPES, Route};

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
    let organization = call.organization()?;
    let Some(token) = call.caller.token() else { return Ok(View::Outside) };
    let belongs = match token.user {
        Some(user) => organization.members.contains(&user),
        None => token.installed_on == Some(organization.id),
    };
    let has_read_scope =
        !token.is_scoped() || READ_SCOPES.iter().any(|scope| token.has_scope(scope));
    Ok(if belongs && has_read_scope { View::Inside } else { View::Outside })
}

fn list(call: &mut Call<'_>) -> Outcome {
    let (view, filter) = (view(call)?, filter(call)?);
    let role = call.query.get("role").unwrap_or("");
    if !matches!(role, "" | "all" | "admin" | "member") {
        return Err(ApiError::invalid("Member", "role", "role must be all, admin or member"));
    }
    let organization = call.organization()?;
    let is_wanted = |user: &u64| {
        let is_owner = organization.owners.contains(user);
        let has_role = match role {
            "admin" => is_owner,
            "member" => !is_owner,
            _ => true,
        };
        has_role
            && filter == Filter::All
            && (view == View::Inside || organization.people.public.contains(user))
    };
    let shown = organization.members.iter().copied().filter(is_wanted);
    call.page_of_users(shown)
}

/// Answers 204 or 404 to callers who see all members; redirects others to the public ones.
fn get(call: &mut Call<'_>) -> Outcome {
    let organization = call.organization()?;
    if view(call)? == View::Outside {
        let (org, username) = (segment(&organization.login), segment(call.params.get("username")));
        let address = format!("{}/orgs/{org}/public_members/{username}", call.urls.api);
        return Ok(Reply::empty(StatusCode::FOUND).with(header::LOCATION, &address));
    }
    let user = call.user("username")?.id;
    Reply::no_content_if(organization.members.contains(&user))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    joining::leave_organization(call, user)?;
    Ok(Reply::no_content())
}

fn list_public(call: &mut Call<'_>) -> Outcome {
    call.page_of_users(call.organization()?.people.public.iter().copied())
}

fn get_public(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    Reply::no_content_if(call.organization()?.people.public.contains(&user))
}

/// Returns the caller, if it is the member in the path. An installation is no member.
fn oneself(call: &Call<'_>) -> Result<u64, ApiError> {
    let me = call.caller.user().ok_or(ApiError::Forbidden(REJECTED_APP))?;
    if call.user("username")?.id != me {
        return Err(ApiError::Forbidden("Members can show or hide only their own membership."));
    }
    Ok(me)
}

fn publish(call: &mut Call<'_>) -> Outcome {
    let me = oneself(call)?;
    call.organization_mut()?.people.public.insert(me);
    Ok(Reply::no_content())
}

fn conceal(call: &mut Call<'_>) -> Outcome {
    let me = oneself(call)?;
    call.organization_mut()?.people.public.remove(&me);
    Ok(Reply::no_content())
}
