//! Subscriptions to notification threads (SPECIFICATION, "Notifications").

use http::StatusCode;
use serde_json::{Value, json};

use super::{CLASSIC, change_my_thread, is_unchanged_since, my_thread};
use crate::emulator::events::notifications;
use crate::emulator::http::{ApiError, Fields, Reply, iso};
use crate::emulator::routing::{Call, Outcome, Route, polling};
use crate::emulator::world::notifications::thread::Subscription;
use crate::emulator::world::{Reason, Thread};

pub const ROUTES: &[Route] = &[
    Route::get("/notifications/threads/{thread_id}/subscription", CLASSIC, get),
    Route::put("/notifications/threads/{thread_id}/subscription", CLASSIC, put),
    Route::delete("/notifications/threads/{thread_id}/subscription", CLASSIC, delete),
];

fn get(call: &mut Call<'_>) -> Outcome {
    let thread = my_thread(call)?;
    // Only participation creates a subscription; a watcher has none.
    let value = render(call, thread).ok_or(ApiError::NotFound)?;
    let reply = Reply::ok(value).changed_at(thread.changed_at);
    Ok(polling::paced(call, reply))
}

/// `ignored: false` subscribes, even to an ignored thread. 304 if nothing changes.
fn put(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("ThreadSubscription", call.body)?;
    let ignored = fields.boolean("ignored").unwrap_or(false);
    fields.check()?;
    let thread = my_thread(call)?;
    let key = (thread.user, thread.repository, thread.topic);
    let is_so_already = match thread.subscription {
        Some(Subscription::Ignored { .. }) => ignored,
        Some(Subscription::Subscribed { .. }) => !ignored,
        Some(Subscription::Muted) | None => false,
    };
    if is_so_already && is_unchanged_since(call, thread.changed_at) {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED));
    }
    let since = call.now;
    if !is_so_already && ignored {
        change_my_thread(call)?.subscription = Some(Subscription::Ignored { since });
    } else if !is_so_already {
        change_my_thread(call)?.subscription =
            Some(Subscription::Subscribed { since, reason: Reason::Manual });
        // The next notification has the reason `manual`.
        notifications::took_part(call.world, key, Reason::Manual);
    }
    let thread = my_thread(call)?;
    Ok(Reply::ok(render(call, thread).ok_or(ApiError::NotFound)?))
}

/// Mutes the thread from any state; 304 for a conditional request that changes nothing.
fn delete(call: &mut Call<'_>) -> Outcome {
    let thread = my_thread(call)?;
    if thread.subscription != Some(Subscription::Muted) {
        change_my_thread(call)?.subscription = Some(Subscription::Muted);
    } else if is_unchanged_since(call, thread.changed_at) {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED));
    }
    Ok(Reply::no_content())
}

fn render(call: &Call<'_>, thread: &Thread) -> Option<Value> {
    let (ignored, since, reason) = match thread.subscription? {
        Subscription::Subscribed { since, reason } => (false, since, Some(reason.into_str())),
        Subscription::Ignored { since } => (true, since, None),
        Subscription::Muted => return None,
    };
    let thread_url = format!("{}/notifications/threads/{}", call.urls.api, thread.id);
    Some(json!({
        "subscribed": !ignored,
        "ignored": ignored,
        "reason": reason,
        "created_at": iso(since),
        "url": format!("{thread_url}/subscription"),
        "thread_url": thread_url,
    }))
}
