//! Requests that wait for a kept write until its end.

use crate::clock::Timestamp;
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::GatewayError;
use crate::gateway::write::queue::{Queue, Watched};
use crate::gateway::write::writes::Writes;
use crate::writes::record::Response;
use crate::writes::{StoreError, WriteId, WriteState};
use std::sync::Arc;

/// Guard: counts as one waiter of a write until it is dropped.
pub struct SyncWait<'q> {
    pub queue: &'q Arc<Queue>,
    pub id: WriteId,
    pub watched: Option<Arc<Watched>>,
}

impl Drop for SyncWait<'_> {
    fn drop(&mut self) {
        self.queue.left(self.id);
    }
}

impl Writes {
    pub async fn attended(
        &self,
        attending: SyncWait<'_>,
        route: &Route,
        deadline: Timestamp,
    ) -> Result<Response, GatewayError> {
        let id = attending.id;
        let ended = self.queue.attend(id, attending.watched.as_deref());
        tokio::pin!(ended);
        let error = tokio::select! {
            biased;
            error = &mut ended => error,
            () = self.env.wait_until(deadline) => {
                if self.queue.standing(id).is_some_and(|standing| standing.state == WriteState::Queued) {
                    return Err(self.turn_did_not_come(route, self.queue.ahead(id)));
                }
                // The write is on its way.
                ended.await
            }
        };
        if let Some(error) = error {
            return Err(error);
        }
        let Some(progress) = self.queue.outcome(id).await.map_err(not_readable)? else {
            return Err(GatewayError::NotReadable);
        };
        match (progress.state, progress.response, progress.reason) {
            (WriteState::Done | WriteState::Failed, Some(response), _) => Ok(*response),
            (WriteState::Unknown, ..) => Err(GatewayError::OutcomeUnknown),
            (_, _, Some(reason)) => Err(GatewayError::Ended(reason)),
            _ => Err(GatewayError::OutcomeUnknown),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` hands over")]
pub fn not_readable(fault: StoreError) -> GatewayError {
    tracing::error!(error = %fault, "what became of a write cannot be told");
    GatewayError::NotReadable
}
