//! The documented successes of webhook, team, notification and migration endpoints, row by row.
//! Errors are the same for every route.

/// Method, route, statuses of success, and `array` for an array response. Parameters have no names.
const ROWS: &str = "
GET /orgs/{}/teams/{}/invitations 200 array
GET /orgs/{}/teams/{}/members 200 array
GET /orgs/{}/teams/{}/memberships/{} 200
PUT /orgs/{}/teams/{}/memberships/{} 200
DELETE /orgs/{}/teams/{}/memberships/{} 204
GET /organizations/{}/team/{}/invitations 200 array
GET /organizations/{}/team/{}/memberships/{} 200
PUT /organizations/{}/team/{}/memberships/{} 200
DELETE /organizations/{}/team/{}/memberships/{} 204
GET /teams/{}/invitations 200 array
GET /teams/{}/members 200 array
GET /teams/{}/members/{} 204
PUT /teams/{}/members/{} 204
DELETE /teams/{}/members/{} 204
GET /teams/{}/memberships/{} 200
GET /orgs/{}/properties/schema 200 array
PATCH /orgs/{}/properties/schema 200 array
GET /orgs/{}/properties/schema/{} 200
PUT /orgs/{}/properties/schema/{} 200
DELETE /orgs/{}/properties/schema/{} 204
GET /orgs/{}/properties/values 200 array
PATCH /orgs/{}/properties/values 204
GET /enterprises/{}/teams/{}/organizations 200 array
POST /enterprises/{}/teams/{}/organizations/add 200 array
POST /enterprises/{}/teams/{}/organizations/remove 204
GET /enterprises/{}/teams/{}/organizations/{} 200
PUT /enterprises/{}/teams/{}/organizations/{} 201
DELETE /enterprises/{}/teams/{}/organizations/{} 204
GET /orgs/{}/issue-fields 200 array
POST /orgs/{}/issue-fields 200
PATCH /orgs/{}/issue-fields/{} 200
DELETE /orgs/{}/issue-fields/{} 204
GET /notifications 200,304 array
PUT /notifications 202,205,304
GET /notifications/threads/{} 200,304
PATCH /notifications/threads/{} 205,304
DELETE /notifications/threads/{} 204
GET /notifications/threads/{}/subscription 200,304
PUT /notifications/threads/{}/subscription 200,304
DELETE /notifications/threads/{}/subscription 204,304
GET /repos/{}/{}/notifications 200 array
GET /app/hook/config 200
PATCH /app/hook/config 200
GET /app/hook/deliveries 200 array
GET /app/hook/deliveries/{} 200
POST /app/hook/deliveries/{}/attempts 202
GET /orgs/{}/hooks 200 array
POST /orgs/{}/hooks 201
GET /orgs/{}/hooks/{} 200
PATCH /orgs/{}/hooks/{} 200
DELETE /orgs/{}/hooks/{} 204
GET /orgs/{}/hooks/{}/config 200
PATCH /orgs/{}/hooks/{}/config 200
GET /orgs/{}/hooks/{}/deliveries 200 array
GET /orgs/{}/hooks/{}/deliveries/{} 200
POST /orgs/{}/hooks/{}/deliveries/{}/attempts 202
POST /orgs/{}/hooks/{}/pings 204
GET /user/migrations 200,304 array
POST /user/migrations 201,304
GET /user/migrations/{} 200,304
GET /user/migrations/{}/archive 302,304
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Array,
    Any,
}

pub fn row(method: &str, template: &str) -> Option<(Vec<u16>, Form)> {
    let nameless: Vec<&str> = template
        .split('/')
        .map(|segment| if segment.starts_with('{') { "{}" } else { segment })
        .collect();
    let nameless = nameless.join("/");
    let mut rows = ROWS.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = rows
        .find(|words| words.first() == Some(&method) && words.get(1) == Some(&nameless.as_str()))?;
    let statuses = found.get(2)?.split(',').filter_map(|status| status.parse().ok()).collect();
    Some((statuses, if found.get(3) == Some(&"array") { Form::Array } else { Form::Any }))
}
