//! Team membership: its objects, states, endpoints and legacy routes.

use crate::document_2::{
    legacy_teams, membership_rules, membership_states, memberships, team_invitations,
};
use crate::evidence::{Evidence, Granted, Outcome, Trigger};
use crate::objects::user::USER_SUMMARY;
use crate::shape::{Object, Type, field};
use crate::table::{
    CredentialRow, EndpointRow, RuleRow, StateRow, Table, ValueRow, credential, endpoint, rule,
    transition, value,
};
use crate::tests;

pub static TEAM_INVITATION: Object = Object {
    name: "Team invitation",
    fields: &[
        field("id", Type::Integer),
        field("login", Type::Nullable(&Type::Text)),
        field("node_id", Type::Text),
        field("email", Type::Text),
        field(
            "role",
            Type::OneOf(&[
                "direct_member",
                "admin",
                "billing_manager",
                "hiring_manager",
                "reinstate",
            ]),
        ),
        field("created_at", Type::Timestamp),
        field("failed_at", Type::String),
        field("failed_reason", Type::String),
        field("inviter", Type::Object(&USER_SUMMARY)),
        field("team_count", Type::Integer),
        field("invitation_teams_url", Type::Url),
        field("invitation_source", Type::Text),
    ],
};

pub static TEAM_MEMBERSHIP: Object = Object {
    name: "Team membership",
    fields: &[
        field("url", Type::Url),
        field("role", Type::OneOf(&["member", "maintainer"])),
        field("state", Type::OneOf(&["pending", "active"])),
    ],
};

const INVITATION_ROLES: &[ValueRow] = &[
    value(
        "Team invitation",
        "role",
        "direct_member",
        tests![team_invitations::the_role_is_one_of_five],
    ),
    value("Team invitation", "role", "admin", tests![team_invitations::the_role_is_one_of_five]),
    value(
        "Team invitation",
        "role",
        "billing_manager",
        tests![team_invitations::the_role_is_one_of_five],
    ),
    value(
        "Team invitation",
        "role",
        "hiring_manager",
        tests![team_invitations::the_role_is_one_of_five],
    ),
    value(
        "Team invitation",
        "role",
        "reinstate",
        tests![team_invitations::the_role_is_one_of_five],
    ),
];

const INVITATION_NOTES: &[RuleRow] = &[
    rule(
        "login",
        "null when the invitee is not an existing account",
        &[],
        tests![team_invitations::the_login_is_null_without_an_existing_account],
    ),
    rule(
        "failed_at, failed_reason",
        "empty when no failure",
        &[],
        tests![team_invitations::a_failure_has_a_time_and_a_reason_and_both_may_be_empty],
    ),
    rule(
        "team_count, invitation_teams_url",
        "how many teams, and where they are",
        &[],
        tests![team_invitations::team_count_counts_the_teams_that_the_url_lists],
    ),
];

const MEMBERSHIP_VALUES: &[ValueRow] = &[
    value("Team membership", "role", "member", tests![memberships::a_membership_is_set]),
    value("Team membership", "role", "maintainer", tests![memberships::a_membership_is_set]),
    value("Team membership", "state", "pending", tests![memberships::a_membership_is_set]),
    value("Team membership", "state", "active", tests![memberships::a_membership_is_set]),
];

const MEMBERSHIP: &str = "/orgs/{org}/teams/{team_slug}/memberships/{username}";
const MEMBERSHIP_BY_IDS: &str = "/organizations/{org_id}/team/{team_id}/memberships/{username}";
const MEMBERS: &str = "/orgs/{org}/teams/{team_slug}/members";
const MACHINE: &str = "Team membership";

const STATES: &[StateRow] = &[
    transition(
        "(none) | PUT team membership | target is an organization member",
        MACHINE,
        &["(none)"],
        Trigger::Request("PUT", MEMBERSHIP),
        "active",
        tests![membership_states::an_organization_member_is_added_at_once_in_the_given_role],
    ),
    transition(
        "(none) | PUT team membership | target is not an organization member and the caller is an organization owner",
        MACHINE,
        &["(none)"],
        Trigger::Request("PUT", MEMBERSHIP),
        "pending",
        tests![
            membership_states::an_outsider_is_invited_by_mail_and_pending,
            membership_states::only_an_organization_owner_invites_outsiders
        ],
    ),
    transition(
        "pending | invitation accepted by the person",
        MACHINE,
        &["pending"],
        Trigger::Request("PATCH", "/user/memberships/orgs/{org}"),
        "active",
        tests![membership_states::accepting_an_invitation_makes_a_team_member],
    ),
    transition(
        "active | PUT team membership",
        MACHINE,
        &["active"],
        Trigger::Request("PUT", MEMBERSHIP),
        "active",
        tests![membership_states::putting_a_member_again_sets_the_new_role],
    ),
    transition(
        "active or pending | DELETE team membership",
        MACHINE,
        &["active", "pending"],
        Trigger::Request("DELETE", MEMBERSHIP),
        "(none)",
        tests![
            membership_states::an_active_or_pending_membership_ends_and_the_account_stays,
            membership_states::only_a_team_administrator_or_organization_owner_removes
        ],
    ),
];

const ENDPOINTS: &[EndpointRow] = &[
    endpoint(
        "GET /orgs/{org}/teams/{team_slug}/invitations",
        "GET",
        "/orgs/{org}/teams/{team_slug}/invitations",
        &[200, 422],
        tests![
            team_invitations::invitations_are_listed,
            team_invitations::an_enterprise_team_is_not_modified_at_organization_level
        ],
    ),
    endpoint(
        "GET /orgs/{org}/teams/{team_slug}/invitations",
        "GET",
        "/organizations/{org_id}/team/{team_id}/invitations",
        &[200, 422],
        tests![
            team_invitations::invitations_are_listed,
            team_invitations::an_enterprise_team_is_not_modified_at_organization_level
        ],
    ),
    endpoint(
        "GET /orgs/{org}/teams/{team_slug}/members",
        "GET",
        MEMBERS,
        &[200],
        tests![memberships::members_are_listed_as_user_summaries],
    ),
    endpoint(
        "GET /orgs/{org}/teams/{team_slug}/members",
        "GET",
        "/organizations/{org_id}/team/{team_id}/members",
        &[200],
        tests![memberships::members_are_listed_as_user_summaries],
    ),
    endpoint(
        "GET /orgs/{org}/teams/{team_slug}/memberships/{username}",
        "GET",
        MEMBERSHIP,
        &[200, 404],
        tests![memberships::a_membership_is_read],
    ),
    endpoint(
        "GET /orgs/{org}/teams/{team_slug}/memberships/{username}",
        "GET",
        MEMBERSHIP_BY_IDS,
        &[200, 404],
        tests![memberships::a_membership_is_read],
    ),
    endpoint(
        "PUT /orgs/{org}/teams/{team_slug}/memberships/{username}",
        "PUT",
        MEMBERSHIP,
        &[200, 403, 422],
        tests![memberships::a_membership_is_set],
    ),
    endpoint(
        "PUT /orgs/{org}/teams/{team_slug}/memberships/{username}",
        "PUT",
        MEMBERSHIP_BY_IDS,
        &[200, 403, 422],
        tests![memberships::a_membership_is_set],
    ),
    endpoint(
        "DELETE /orgs/{org}/teams/{team_slug}/memberships/{username}",
        "DELETE",
        MEMBERSHIP,
        &[204, 403],
        tests![memberships::a_membership_is_removed],
    ),
    endpoint(
        "DELETE /orgs/{org}/teams/{team_slug}/memberships/{username}",
        "DELETE",
        MEMBERSHIP_BY_IDS,
        &[204, 403],
        tests![memberships::a_membership_is_removed],
    ),
];

const CREDENTIALS: &[CredentialRow] = &[
    credential(
        "Team membership",
        "fine-grained tokens allowed",
        &[
            ("bearer", "classic"),
            ("bearer", "app-user"),
            ("bearer", "installation"),
            ("bearer", "fine-grained"),
            ("bearer", "oauth"),
        ],
        &[],
        tests![membership_rules::fine_grained_tokens_are_allowed],
    ),
    credential(
        "authenticated",
        "open to authenticated members of the organization",
        &[("bearer", "classic")],
        &[("", "none"), ("bearer", "bad")],
        tests![
            membership_rules::authenticated_members_of_the_organization_may_call,
            membership_rules::a_request_without_a_valid_credential_is_a_401
        ],
    ),
    credential(
        "read:org",
        "classic OAuth tokens need read:org",
        &[("bearer", "classic")],
        &[("bearer", "classic")],
        tests![membership_rules::classic_tokens_need_read_org],
    ),
];

const SOMETHING: Granted = Granted::Something;
const NOTHING: Granted = Granted::Nothing;

/// An installation token with these permissions was accepted or refused.
const fn granted(
    method: &'static str,
    template: &'static str,
    granted: Granted,
    outcome: Outcome,
) -> Evidence {
    Evidence::Grant { method, template, kind: "installation", granted, outcome }
}

const RULES: &[RuleRow] = &[
    rule(
        "permission",
        "'Members' organization: read for GET, write for PUT/DELETE",
        &[
            granted("GET", MEMBERS, NOTHING, Outcome::Refused),
            granted("GET", MEMBERS, SOMETHING, Outcome::Accepted),
            granted("GET", MEMBERSHIP, NOTHING, Outcome::Refused),
            granted("GET", MEMBERSHIP, SOMETHING, Outcome::Accepted),
            granted("PUT", MEMBERSHIP, SOMETHING, Outcome::Refused),
            granted("PUT", MEMBERSHIP, SOMETHING, Outcome::Accepted),
            granted("DELETE", MEMBERSHIP, SOMETHING, Outcome::Refused),
            granted("DELETE", MEMBERSHIP, SOMETHING, Outcome::Accepted),
        ],
        tests![membership_rules::the_permission_members_is_read_for_get_and_write_for_changes],
    ),
    rule(
        "synchronization",
        "with team synchronization changing membership through the API fails",
        &[],
        tests![membership_rules::changing_membership_of_a_synchronized_team_fails],
    ),
    rule(
        "pull and push",
        "map to the Read and Write roles",
        &[],
        tests![membership_rules::pull_and_push_map_to_the_roles_read_and_write],
    ),
    rule(
        "org",
        "case-insensitive",
        &[],
        tests![membership_rules::the_organization_is_named_in_any_case],
    ),
    rule(
        "child teams",
        "includes members of child teams",
        &[],
        tests![memberships::members_of_child_teams_are_listed_too],
    ),
    rule(
        "role filter",
        "string filter on role in the team",
        &[],
        tests![memberships::the_role_filter_selects_by_the_role_in_the_team],
    ),
    rule(
        "visible",
        "team must be visible to the caller",
        &[Evidence::Answer { method: "GET", template: MEMBERS, status: 404 }],
        tests![memberships::the_team_must_be_visible_to_the_caller],
    ),
    rule(
        "per_page, page",
        "of the lists",
        &[Evidence::Header("link")],
        tests![memberships::invitations_and_members_are_paged],
    ),
    rule(
        "per_page, page by default",
        "default 30, max 100; default 1",
        &[],
        tests![team_invitations::a_page_has_30_invitations_by_default_and_100_at_most],
    ),
    rule(
        "enterprise team",
        "422 when an enterprise team is modified at organization level",
        &[
            Evidence::Answer { method: "PUT", template: MEMBERSHIP, status: 422 },
            Evidence::Answer { method: "DELETE", template: MEMBERSHIP, status: 422 },
        ],
        tests![membership_rules::an_enterprise_team_is_not_modified_at_organization_level],
    ),
    rule("role", "optional", &[], tests![memberships::the_role_is_optional]),
    rule(
        "caller",
        "Caller must be organization owner or team maintainer",
        &[Evidence::Answer { method: "PUT", template: MEMBERSHIP, status: 403 }],
        tests![membership_rules::an_owner_or_a_maintainer_changes_memberships],
    ),
    rule(
        "owners",
        "organization owners show maintainer",
        &[],
        tests![membership_rules::organization_owners_show_maintainer],
    ),
    rule(
        "url",
        "of the membership",
        &[],
        tests![memberships::the_address_of_a_membership_leads_to_it],
    ),
    rule(
        "slug",
        "generated from the team name",
        &[],
        tests![membership_rules::a_teams_slug_is_generated_from_its_name],
    ),
    rule(
        "Accept",
        "recommended as application/vnd.service+json",
        &[],
        tests![membership_rules::the_media_type_is_recommended_and_not_required],
    ),
];

const LEGACY: &[EndpointRow] = &[
    endpoint(
        "GET /teams/{team_id}/invitations",
        "GET",
        "/teams/{team_id}/invitations",
        &[200],
        tests![legacy_teams::invitations_are_listed],
    ),
    endpoint(
        "GET /teams/{team_id}/members (query role, per_page, page)",
        "GET",
        "/teams/{team_id}/members",
        &[200, 404],
        tests![legacy_teams::members_are_listed],
    ),
    endpoint(
        "GET /teams/{team_id}/members/{username}",
        "GET",
        "/teams/{team_id}/members/{username}",
        &[204, 404],
        tests![legacy_teams::a_member_is_204_and_any_other_user_404],
    ),
    endpoint(
        "PUT /teams/{team_id}/members/{username} (Content-Length 0)",
        "PUT",
        "/teams/{team_id}/members/{username}",
        &[204, 403, 404, 422],
        tests![
            legacy_teams::a_person_of_another_team_is_added_by_an_empty_put,
            legacy_teams::only_an_owner_or_a_maintainer_adds,
            legacy_teams::organizations_and_people_of_no_other_team_are_not_added,
            legacy_teams::a_synchronised_team_is_not_found_by_a_change
        ],
    ),
    endpoint(
        "DELETE /teams/{team_id}/members/{username}",
        "DELETE",
        "/teams/{team_id}/members/{username}",
        &[204, 404],
        tests![
            legacy_teams::a_member_is_removed,
            legacy_teams::a_synchronised_team_is_not_found_by_a_change
        ],
    ),
    endpoint(
        "GET /teams/{team_id}/memberships/{username}",
        "GET",
        "/teams/{team_id}/memberships/{username}",
        &[200, 404],
        tests![legacy_teams::a_membership_is_read],
    ),
];

const LEGACY_RULES: &[RuleRow] = &[
    rule(
        "PUT and DELETE /teams/{team_id}/memberships/{username}",
        "request and response details: not shown",
        &[
            Evidence::Known { method: "PUT", template: "/teams/{team_id}/memberships/{username}" },
            Evidence::Known {
                method: "DELETE",
                template: "/teams/{team_id}/memberships/{username}",
            },
        ],
        tests![legacy_teams::memberships_are_set_and_removed],
    ),
    rule(
        "caller",
        "Caller must be organization owner or team maintainer",
        &[],
        tests![legacy_teams::only_an_owner_or_a_maintainer_adds],
    ),
    rule(
        "member",
        "204 member; 404 not a member, nor who is only invited",
        &[Evidence::Answer {
            method: "GET",
            template: "/teams/{team_id}/members/{username}",
            status: 404,
        }],
        tests![legacy_teams::an_invited_person_is_not_a_member_yet],
    ),
    rule(
        "person",
        "the person must already belong to the organization",
        &[],
        tests![legacy_teams::the_person_must_already_belong_to_the_organization],
    ),
    rule(
        "422",
        "an organization, or a user who is not a member of at least one other team",
        &[Evidence::Status(422)],
        tests![legacy_teams::organizations_and_people_of_no_other_team_are_not_added],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::fields(
            2,
            7,
            &USER_SUMMARY,
            tests![memberships::members_are_listed_as_user_summaries],
        ),
        Table::fields(2, 12, &TEAM_INVITATION, tests![team_invitations::invitations_are_listed]),
        Table::new(2, "Team invitation, roles", 5, INVITATION_ROLES),
        Table::new(2, "Team invitation, notes", 3, INVITATION_NOTES),
        Table::fields(2, 3, &TEAM_MEMBERSHIP, tests![memberships::a_membership_is_read]),
        Table::new(2, "Team membership, values", 4, MEMBERSHIP_VALUES),
        Table::new(2, "Team membership, states and transitions", 5, STATES),
        Table::new(2, "Team membership, endpoints", 5, ENDPOINTS),
        Table::new(2, "Team membership, credentials", 3, CREDENTIALS),
        Table::new(2, "Team membership, rules", 16, RULES),
        Table::new(2, "Team membership, legacy routes", 6, LEGACY),
        Table::new(2, "Team membership, legacy rules", 5, LEGACY_RULES),
    ]
}
