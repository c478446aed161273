//! Subscriptions to notification threads (Document 2, Thread subscription and its state machine).

use http::StatusCode;
use serde_json::{Value, json};

use super::notifications::{CLASSIC, Reason, Thread, change_my_thread};
use crate::clock::Timestamp;
use crate::emulator::call::Call;
use crate::emulator::fault::Fault;
use crate::emulator::fields::Fields;
use crate::emulator::reply::Reply;
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::timestamps::iso;

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/notifications/threads/{thread_id}/subscription", CLASSIC, get),
    Route::new(Verb::Put, "/notifications/threads/{thread_id}/subscription", CLASSIC, put),
    Route::new(Verb::Delete, "/notifications/threads/{thread_id}/subscription", CLASSIC, delete),
];

/// How a user stands to a thread, if it ever took part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    Subscribed {
        since: Timestamp,
    },
    /// "All notifications from the thread blocked."
    Ignored {
        since: Timestamp,
    },
    /// "Muted until the user comments or is @mentioned." Such a subscription does not exist for a reader.
    Muted,
}

fn get(call: &mut Call<'_>) -> Outcome {
    let id = call.params.id("thread_id")?;
    let thread = call.world.threads.get(&id).filter(|thread| Some(thread.user) == call.caller.user()).ok_or(Fault::NotFound)?;
    // "Subscriptions are created only when the user participates": a watcher has none.
    let value = render(call, thread).ok_or(Fault::NotFound)?;
    Ok(Reply::ok(value).changed_at(thread.changed_at))
}

/// `ignored: false` subscribes, also to a thread that was ignored before.
fn put(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("ThreadSubscription", call.body)?;
    let ignored = fields.boolean("ignored").unwrap_or(false);
    fields.check()?;
    let since = call.now;
    let thread = change_my_thread(call)?;
    thread.subscription = Some(if ignored { Subscription::Ignored { since } } else { Subscription::Subscribed { since } });
    let id = thread.id;
    let thread = call.world.threads.get(&id).ok_or(Fault::NotFound)?;
    Ok(Reply::ok(render(call, thread).ok_or(Fault::NotFound)?))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    change_my_thread(call)?.subscription = Some(Subscription::Muted);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Document 2, Thread subscription; none when there is no subscription to show.
fn render(call: &Call<'_>, thread: &Thread) -> Option<Value> {
    let (ignored, since) = match thread.subscription? {
        Subscription::Subscribed { since } => (false, since),
        Subscription::Ignored { since } => (true, since),
        Subscription::Muted => return None,
    };
    let thread_url = format!("{}/notifications/threads/{}", call.urls.api, thread.id);
    let reason = (thread.reason != Reason::Subscribed).then(|| thread.reason.name());
    Some(json!({
        "subscribed": !ignored,
        "ignored": ignored,
        "reason": reason,
        "created_at": iso(since),
        "url": format!("{thread_url}/subscription"),
        "thread_url": thread_url,
    }))
}
