//! Export of queued records: one batch after another, each until the collector takes or refuses it.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::health::Health;
use super::transport::{Client, ExportError};
use super::{Signal, counts};

/// Longest wait of a record for others to share its export.
const BATCH_EVERY: Duration = Duration::from_secs(1);
/// First and longest pause before a batch is sent again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// An export message with the number of its records.
pub(super) struct Batch {
    pub message: Bytes,
    pub records: u64,
}

/// A bounded queue of records.
pub(super) trait Queue {
    /// Takes the oldest records as one batch.
    fn take(&self) -> Option<Batch>;

    /// Notified when a batch is complete before its time.
    fn is_filled(&self) -> &Notify;
}

/// Exports a queue until `ending`, and then what is left in it, as long as the collector takes it.
pub(super) async fn export(
    queue: &impl Queue,
    mut client: Client,
    health: &Health,
    mut ending: watch::Receiver<bool>,
) {
    loop {
        let is_last = *ending.borrow_and_update();
        while let Some(batch) = queue.take() {
            send(&batch, &mut client, health, &mut ending).await;
        }
        if is_last {
            return;
        }
        tokio::select! {
            () = sleep(BATCH_EVERY) => {}
            () = queue.is_filled().notified() => {}
            // Fails when the exporter is gone, which is the end too.
            changed = ending.changed() => if changed.is_err() { return },
        }
    }
}

async fn send(
    batch: &Batch,
    client: &mut Client,
    health: &Health,
    ending: &mut watch::Receiver<bool>,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let is_last = *ending.borrow_and_update();
        match sent_once(&batch.message, client, health).await {
            Ok(()) => return,
            Err(ExportError::Away(_)) if !is_last => {}
            Err(_) => return counts::drop_records(client.signal, batch.records),
        }
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            changed = ending.changed() => if changed.is_err() {
                return counts::drop_records(client.signal, batch.records);
            },
        }
    }
}

/// Sends a message once, with its counts and its line in the log.
pub(super) async fn sent_once(
    message: &Bytes,
    client: &mut Client,
    health: &Health,
) -> Result<(), ExportError> {
    let signal = client.signal;
    match client.export(message).await {
        Ok(None) => health.succeeded(signal, client.collector()),
        Ok(Some((records, reason))) => {
            // A rejected point of a metric comes again with the next export.
            if signal != Signal::Metrics {
                counts::drop_records(signal, records);
            }
            let error = ExportError::Refused(format!("{records} records rejected: {reason}"));
            health.failed(signal, client.collector(), &error);
        }
        Err(error) => {
            counts::failed(signal);
            health.failed(signal, client.collector(), &error);
            return Err(error);
        }
    }
    counts::sent(signal);
    Ok(())
}
