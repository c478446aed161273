//! The messages of other replicas. Each replica says every quarter of a second that it is there, so
//! a connection without messages is a lost one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::Msg;
use redis::aio::PubSub;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use crate::state::message::{Heard, News};

/// A connection that is silent for longer is lost. Ours: three messages of this replica alone.
const SILENT_FOR: Duration = Duration::from_millis(750);
/// Messages that wait for this replica. With more of them it begins anew. Ours: minutes of them.
const HEARD_MAX: usize = 10_000;
/// The pause after a failed attempt, or a lost connection.
const PAUSE: Duration = Duration::from_millis(50);

/// The channel of all messages.
pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:messages")
}

/// Begins to listen.
pub(super) fn begin(connection: &Arc<Connection>, prefix: &str) -> News {
    let (sender, receiver) = mpsc::channel(HEARD_MAX);
    tokio::spawn(keep_listening(Arc::downgrade(connection), channel(prefix), sender));
    News(receiver)
}

async fn keep_listening(
    connection: Weak<Connection>,
    channel: String,
    sender: mpsc::Sender<Heard>,
) {
    while !sender.is_closed() {
        let Some(connection) = connection.upgrade() else { return };
        let opened = connection.open_for_messages().await;
        drop(connection);
        if let Ok(mut opened) = opened
            && matches!(timeout(SILENT_FOR, opened.subscribe(&channel)).await, Ok(Ok(())))
            && sender.send(Heard::Gap).await.is_ok()
        {
            listen(opened, &sender).await;
        }
        sleep(PAUSE).await;
    }
}

/// Passes messages on until the connection is lost.
async fn listen(opened: PubSub, sender: &mpsc::Sender<Heard>) {
    let mut messages = opened.into_on_message();
    while let Ok(Some(message)) = timeout(SILENT_FOR, messages.next()).await {
        if sender.try_send(read(&message)).is_err() {
            return;
        }
    }
}

/// Reads a message. One of another version counts as lost.
fn read(message: &Msg) -> Heard {
    serde_json::from_slice(message.get_payload_bytes()).map_or(Heard::Gap, Heard::Message)
}
