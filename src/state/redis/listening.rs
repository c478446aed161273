//! The messages of other replicas. A connection that says nothing is asked, because one that was
//! cut looks like a quiet one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::Msg;
use redis::aio::PubSub;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use crate::state::message::{Heard, News};

/// The distance of questions to a connection. Ours: a lost message costs a quarter of a second.
const ASKED_EVERY: Duration = Duration::from_millis(250);
/// The pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// The channel of all messages.
pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:messages")
}

/// Begins to listen.
pub(super) fn begin(connection: &Arc<Connection>, prefix: &str) -> News {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(keep_listening(Arc::downgrade(connection), channel(prefix), sender));
    News(receiver)
}

async fn keep_listening(
    connection: Weak<Connection>,
    channel: String,
    sender: mpsc::UnboundedSender<Heard>,
) {
    while !sender.is_closed() {
        let Some(connection) = connection.upgrade() else { return };
        let opened = connection.open_for_messages().await;
        drop(connection);
        if let Ok(mut opened) = opened
            && matches!(timeout(ASKED_EVERY * 4, opened.subscribe(&channel)).await, Ok(Ok(())))
            && sender.send(Heard::Gap).is_ok()
        {
            listen(opened, &sender).await;
        }
        sleep(PAUSE).await;
    }
}

/// Passes messages on until the connection is lost.
async fn listen(opened: PubSub, sender: &mpsc::UnboundedSender<Heard>) {
    let (mut asking, mut messages) = opened.split();
    loop {
        match timeout(ASKED_EVERY, messages.next()).await {
            Ok(Some(message)) => {
                if let Some(heard) = read(&message)
                    && sender.send(heard).is_err()
                {
                    return;
                }
            }
            Ok(None) => return,
            Err(_) if sender.is_closed() => return,
            Err(_) => {
                let asked = timeout(ASKED_EVERY, asking.ping::<redis::Value>()).await;
                if !matches!(asked, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

/// Reads a message. One of another version counts as lost.
fn read(message: &Msg) -> Option<Heard> {
    let text = message.get_payload_bytes();
    Some(serde_json::from_slice(text).map_or(Heard::Gap, Heard::Message))
}
