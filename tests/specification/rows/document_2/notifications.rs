//! Notifications: threads, reasons, subscriptions, their states and endpoints.

use crate::document_2::{inbox, inbox_rules, not_modified, reasons, thread_subscriptions, threads};
use crate::evidence::{Evidence, Trigger};
use crate::objects::repository::REPOSITORY;
use crate::shape::{Object, Type, field};
use crate::table::{
    CredentialRow, EndpointRow, RuleRow, StateRow, Table, ValueRow, credential, endpoint, rule,
    transition, value,
};
use crate::tests;

static SUBJECT: Object = Object {
    name: "Notification subject",
    fields: &[
        field("title", Type::Text),
        field("url", Type::MaybeNull(&Type::Url)),
        field("latest_comment_url", Type::MaybeNull(&Type::Url)),
        field("type", Type::Text),
    ],
};

const REASONS: &[&str] = &[
    "approval_requested",
    "assign",
    "author",
    "ci_activity",
    "comment",
    "invitation",
    "manual",
    "member_feature_requested",
    "mention",
    "review_requested",
    "state_change",
    "subscribed",
    "team_mention",
];

pub static THREAD: Object = Object {
    name: "Notification thread",
    fields: &[
        field("id", Type::Text),
        field("repository", Type::Object(&REPOSITORY)),
        field("subject", Type::Object(&SUBJECT)),
        field("reason", Type::OneOf(REASONS)),
        field("unread", Type::Boolean),
        field("updated_at", Type::Timestamp),
        field("last_read_at", Type::Timestamp),
        field("url", Type::Url),
        field("subscription_url", Type::Url),
    ],
};

pub static SUBSCRIPTION: Object = Object {
    name: "Thread subscription",
    fields: &[
        field("subscribed", Type::Boolean),
        field("ignored", Type::Boolean),
        field("reason", Type::Nullable(&Type::Text)),
        field("created_at", Type::Timestamp),
        field("url", Type::Url),
        field("thread_url", Type::Url),
    ],
};

const NAME: &str = "Notification thread";

const REASON_VALUES: &[ValueRow] = &[
    value(
        NAME,
        "reason",
        "approval_requested",
        tests![reasons::approval_requested_is_a_deployment_to_approve],
    ),
    value(NAME, "reason", "assign", tests![reasons::assign_is_an_assignment_to_the_issue]),
    value(NAME, "reason", "author", tests![reasons::author_is_the_creation_of_the_thread]),
    value(
        NAME,
        "reason",
        "ci_activity",
        tests![reasons::ci_activity_is_a_workflow_run_that_completed],
    ),
    value(NAME, "reason", "comment", tests![reasons::comment_is_a_comment_of_ones_own]),
    value(
        NAME,
        "reason",
        "invitation",
        tests![reasons::invitation_is_an_accepted_repository_invitation],
    ),
    value(NAME, "reason", "manual", tests![reasons::manual_is_a_subscription_to_the_thread]),
    value(
        NAME,
        "reason",
        "member_feature_requested",
        tests![reasons::member_feature_requested_is_a_members_request_to_an_owner],
    ),
    value(NAME, "reason", "mention", tests![reasons::mention_is_a_mention_by_name]),
    value(
        NAME,
        "reason",
        "review_requested",
        tests![
            reasons::review_requested_is_a_review_by_a_person,
            reasons::review_requested_is_a_review_by_a_team
        ],
    ),
    value(NAME, "reason", "state_change", tests![reasons::state_change_is_a_change_of_the_state]),
    value(NAME, "reason", "subscribed", tests![reasons::subscribed_is_a_watched_repository]),
    value(
        NAME,
        "reason",
        "team_mention",
        tests![reasons::team_mention_is_a_mention_of_an_own_team],
    ),
];

const REASON_RULES: &[RuleRow] = &[
    rule(
        "kept",
        "the reason is kept per thread and replaced only when a later notification carries a different reason",
        &[],
        tests![
            reasons::the_reason_is_kept_by_thread,
            reasons::a_mention_replaces_an_earlier_reason,
            reasons::a_later_reason_replaces_an_earlier_one
        ],
    ),
    rule(
        "mention",
        "after a mention it stays mention even if you are never mentioned again",
        &[],
        tests![reasons::the_reason_stays_mention_after_a_mention],
    ),
];

const INBOX: &str = "/notifications";
const THREAD_BY_ID: &str = "/notifications/threads/{thread_id}";
const SUBSCRIPTION_OF: &str = "/notifications/threads/{thread_id}/subscription";
const OF_REPOSITORY: &str = "/repos/{owner}/{repo}/notifications";

const THREAD_STATES: &[StateRow] = &[
    transition(
        "unread | PATCH thread",
        NAME,
        &["unread"],
        Trigger::Request("PATCH", THREAD_BY_ID),
        "read",
        tests![threads::a_thread_is_marked_read],
    ),
    transition(
        "unread | PUT /notifications",
        NAME,
        &["unread"],
        Trigger::Request("PUT", INBOX),
        "read",
        tests![
            threads::all_threads_are_marked_read_without_last_read_at,
            threads::threads_up_to_last_read_at_are_marked_read
        ],
    ),
    transition(
        "read or unread | DELETE thread",
        NAME,
        &["read", "unread"],
        Trigger::Request("DELETE", THREAD_BY_ID),
        "done",
        tests![threads::a_thread_is_marked_done],
    ),
];

const SUBSCRIPTIONS: &str = "Thread subscription";

const SUBSCRIPTION_STATES: &[StateRow] = &[
    transition(
        "any | PUT subscription with ignored=false",
        SUBSCRIPTIONS,
        &["(none)", "subscribed", "ignored", "muted"],
        Trigger::Request("PUT", SUBSCRIPTION_OF),
        "subscribed",
        tests![
            thread_subscriptions::a_put_without_ignored_subscribes_from_any_state,
            thread_subscriptions::a_put_on_a_muted_thread_subscribes_or_ignores
        ],
    ),
    transition(
        "any | PUT subscription with ignored=true",
        SUBSCRIPTIONS,
        &["(none)", "subscribed", "ignored", "muted"],
        Trigger::Request("PUT", SUBSCRIPTION_OF),
        "ignored",
        tests![
            thread_subscriptions::a_put_with_ignored_blocks_everything_from_any_state,
            thread_subscriptions::a_put_on_a_muted_thread_subscribes_or_ignores
        ],
    ),
    transition(
        "any | DELETE subscription",
        SUBSCRIPTIONS,
        &["subscribed", "ignored", "muted"],
        Trigger::Request("DELETE", SUBSCRIPTION_OF),
        "muted",
        tests![
            thread_subscriptions::a_delete_mutes_from_any_state,
            thread_subscriptions::a_muted_thread_stays_so_until_the_person_is_mentioned,
            thread_subscriptions::a_muted_thread_stays_so_until_the_person_comments
        ],
    ),
];

const ENDPOINTS: &[EndpointRow] = &[
    endpoint(
        "GET /notifications",
        "GET",
        INBOX,
        &[200, 304, 401, 403, 422],
        tests![inbox::the_inbox_is_listed],
    ),
    endpoint(
        "PUT /notifications",
        "PUT",
        INBOX,
        &[202, 205, 401, 403],
        tests![inbox::the_inbox_is_marked_read, inbox::a_large_volume_is_marked_in_the_background],
    ),
    endpoint(
        "PUT /notifications",
        "PUT",
        INBOX,
        &[304],
        tests![not_modified::an_inbox_that_is_read_is_not_modified],
    ),
    endpoint(
        "GET /notifications/threads/{thread_id}",
        "GET",
        THREAD_BY_ID,
        &[200, 304, 401, 403],
        tests![threads::a_thread_is_read],
    ),
    endpoint(
        "PATCH /notifications/threads/{thread_id}",
        "PATCH",
        THREAD_BY_ID,
        &[205, 403],
        tests![threads::a_thread_is_marked_read],
    ),
    endpoint(
        "PATCH /notifications/threads/{thread_id}",
        "PATCH",
        THREAD_BY_ID,
        &[304],
        tests![not_modified::a_thread_that_is_read_is_not_modified],
    ),
    endpoint(
        "DELETE /notifications/threads/{thread_id}",
        "DELETE",
        THREAD_BY_ID,
        &[204],
        tests![threads::a_thread_is_marked_done],
    ),
    endpoint(
        "GET /notifications/threads/{thread_id}/subscription",
        "GET",
        SUBSCRIPTION_OF,
        &[200, 304, 401, 403],
        tests![thread_subscriptions::a_subscription_is_read],
    ),
    endpoint(
        "PUT /notifications/threads/{thread_id}/subscription",
        "PUT",
        SUBSCRIPTION_OF,
        &[200, 401, 403],
        tests![thread_subscriptions::a_subscription_is_set],
    ),
    endpoint(
        "PUT /notifications/threads/{thread_id}/subscription",
        "PUT",
        SUBSCRIPTION_OF,
        &[304],
        tests![not_modified::an_unchanged_subscription_is_not_modified],
    ),
    endpoint(
        "DELETE /notifications/threads/{thread_id}/subscription",
        "DELETE",
        SUBSCRIPTION_OF,
        &[204, 401, 403],
        tests![thread_subscriptions::a_subscription_is_deleted],
    ),
    endpoint(
        "DELETE /notifications/threads/{thread_id}/subscription",
        "DELETE",
        SUBSCRIPTION_OF,
        &[304],
        tests![not_modified::a_deleted_subscription_is_not_modified],
    ),
    endpoint(
        "GET /repos/{owner}/{repo}/notifications",
        "GET",
        OF_REPOSITORY,
        &[200],
        tests![inbox::a_repositorys_notifications_are_listed],
    ),
];

const CREDENTIALS: &[CredentialRow] = &[
    credential(
        "Auth",
        "only classic personal access tokens; app tokens and fine-grained tokens are rejected",
        &[("bearer", "classic")],
        &[
            ("bearer", "app-user"),
            ("bearer", "installation"),
            ("bearer", "fine-grained"),
            ("", "none"),
        ],
        tests![inbox_rules::only_classic_personal_access_tokens_are_accepted],
    ),
    credential(
        "Auth",
        "only classic personal access tokens",
        &[],
        &[("bearer", "oauth")],
        tests![inbox_rules::tokens_of_oauth_apps_are_not_accepted],
    ),
    credential(
        "scope notifications",
        "is enough",
        &[("bearer", "classic")],
        &[],
        tests![inbox_rules::the_scope_notifications_is_enough],
    ),
    credential(
        "scope repo",
        "is enough",
        &[("bearer", "classic")],
        &[],
        tests![inbox_rules::the_scope_repo_is_enough],
    ),
    credential(
        "scope",
        "notifications or repo",
        &[],
        &[("bearer", "classic")],
        tests![inbox_rules::another_scope_is_not_enough],
    ),
];

const LIST_RULES: &[RuleRow] = &[
    rule(
        "all",
        "default false; true includes read",
        &[],
        tests![inbox::read_threads_are_listed_only_with_all],
    ),
    rule(
        "participating",
        "default false",
        &[],
        tests![inbox::participating_leaves_out_watched_repositories],
    ),
    rule(
        "since, before",
        "timestamps",
        &[Evidence::Status(422)],
        tests![inbox::since_and_before_select_by_the_time_of_the_update],
    ),
    rule(
        "per_page, page",
        "max 50, default 50; default 1",
        &[],
        tests![inbox::a_page_of_the_inbox_has_50_threads_at_most_and_by_default],
    ),
    rule(
        "sorted",
        "by most recent update",
        &[],
        tests![inbox::the_inbox_is_sorted_by_the_most_recent_update],
    ),
    rule(
        "owner, repo",
        "case-insensitive, no .git",
        &[Evidence::Answer { method: "GET", template: OF_REPOSITORY, status: 404 }],
        tests![inbox::owner_and_repository_are_named_in_any_case_and_without_git],
    ),
    rule(
        "per_page of a repository's",
        "max 100, default 30",
        &[],
        tests![inbox::a_repositorys_page_has_30_threads_by_default_and_100_at_most],
    ),
];

const RULES: &[RuleRow] = &[
    rule(
        "repo",
        "needed to reach issues and commits",
        &[],
        tests![inbox_rules::the_scope_repo_is_needed_to_reach_issues],
    ),
    rule(
        "Last-Modified, If-Modified-Since",
        "threads are optimized for polling",
        &[Evidence::Header("last-modified"), Evidence::Status(304)],
        tests![
            inbox_rules::threads_are_polled_by_last_modified,
            inbox_rules::an_unchanged_poll_costs_nothing
        ],
    ),
    rule(
        "Last-Modified of an empty inbox",
        "responses of polling endpoints carry it",
        &[Evidence::Header("last-modified"), Evidence::Status(304)],
        tests![inbox_rules::an_empty_inbox_is_polled_like_any_other],
    ),
    rule(
        "X-Poll-Interval",
        "threads are optimized for polling",
        &[Evidence::Header("x-poll-interval")],
        tests![inbox_rules::the_poll_interval_is_stated_with_the_threads],
    ),
    rule(
        "last_read_at",
        "default now; later updates stay unread; omitted marks all read",
        &[],
        tests![
            inbox::last_read_at_is_now_by_default_and_later_updates_stay_unread,
            threads::an_update_makes_a_thread_unread_again
        ],
    ),
    rule(
        "202",
        "with a message when the volume is too large and marking continues in the background",
        &[Evidence::Answer { method: "PUT", template: INBOX, status: 202 }],
        tests![inbox::a_large_volume_is_marked_in_the_background],
    ),
    rule("thread_id", "the thread id", &[], tests![threads::a_thread_is_its_owners_alone]),
    rule(
        "url, subject",
        "where the thread and its subject are",
        &[],
        tests![threads::the_addresses_of_a_thread_lead_to_it_and_its_subject],
    ),
    rule(
        "ignored",
        "boolean, default false",
        &[Evidence::Status(422)],
        tests![thread_subscriptions::ignored_is_false_by_default_and_a_boolean],
    ),
    rule(
        "url, thread_url",
        "of the subscription",
        &[],
        tests![thread_subscriptions::the_addresses_of_a_subscription_lead_to_their_objects],
    ),
    rule(
        "ignore",
        "use to ignore a watched thread",
        &[],
        tests![thread_subscriptions::a_watched_thread_can_be_ignored],
    ),
    rule(
        "subscribe",
        "or to subscribe to an unwatched or previously ignored one",
        &[],
        tests![
            thread_subscriptions::a_previously_ignored_thread_can_be_subscribed_to,
            thread_subscriptions::a_put_on_a_muted_thread_subscribes_or_ignores
        ],
    ),
    rule(
        "DELETE subscription",
        "equivalent to ignoring when the repository is not watched; watched repository still notifies",
        &[],
        tests![
            thread_subscriptions::deleting_is_like_ignoring_when_the_repository_is_not_watched,
            thread_subscriptions::a_watched_repository_still_notifies
        ],
    ),
    rule(
        "participates",
        "subscriptions are created only when the user replies, is @mentioned or subscribes manually",
        &[],
        tests![thread_subscriptions::only_participation_creates_a_subscription],
    ),
];

pub fn tables() -> Vec<Table> {
    vec![
        Table::fields(2, 9, &THREAD, tests![inbox::the_inbox_is_listed]),
        Table::fields(2, 4, &SUBJECT, tests![inbox::the_inbox_is_listed]),
        Table::new(2, "Notification reasons", 13, REASON_VALUES),
        Table::new(2, "Notification reasons, rules", 2, REASON_RULES),
        Table::fields(2, 6, &SUBSCRIPTION, tests![thread_subscriptions::a_subscription_is_read]),
        Table::new(2, "Notification thread, states and transitions", 3, THREAD_STATES),
        Table::new(2, "Thread subscription, states and transitions", 3, SUBSCRIPTION_STATES),
        Table::new(2, "Notifications, endpoints", 9, ENDPOINTS),
        Table::new(2, "Notifications, credentials", 4, CREDENTIALS),
        Table::new(2, "Notifications, lists", 7, LIST_RULES),
        Table::new(2, "Notifications, rules", 14, RULES),
    ]
}
