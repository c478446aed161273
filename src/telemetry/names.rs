//! The name of every metric (SPECIFICATION, "Metrics"). `metrics` has their measurement.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Requests,
    RequestDuration,
    UpstreamRequests,
    UpstreamDuration,
    UpstreamLimited,
    Refused,
    BudgetLimit,
    BudgetRemaining,
    BudgetReserved,
    BudgetReset,
    SecondaryInUse,
    Waiting,
    Wait,
    Writes,
    WritesOldest,
    WriteAttempts,
    WriteQueue,
    CacheEntries,
    CacheBytes,
    CacheEvictions,
    PredictedEtags,
    TokenHealthy,
    WebhookDeliveries,
    InvariantBroken,
}

impl Metric {
    /// In the order of SPECIFICATION, "Metrics".
    #[cfg(test)]
    pub const ALL: [Self; 24] = [
        Self::Requests,
        Self::RequestDuration,
        Self::UpstreamRequests,
        Self::UpstreamDuration,
        Self::UpstreamLimited,
        Self::Refused,
        Self::BudgetLimit,
        Self::BudgetRemaining,
        Self::BudgetReserved,
        Self::BudgetReset,
        Self::SecondaryInUse,
        Self::Waiting,
        Self::Wait,
        Self::Writes,
        Self::WritesOldest,
        Self::WriteAttempts,
        Self::WriteQueue,
        Self::CacheEntries,
        Self::CacheBytes,
        Self::CacheEvictions,
        Self::PredictedEtags,
        Self::TokenHealthy,
        Self::WebhookDeliveries,
        Self::InvariantBroken,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "weir_requests_total",
            Self::RequestDuration => "weir_request_duration_seconds",
            Self::UpstreamRequests => "weir_upstream_requests_total",
            Self::UpstreamDuration => "weir_upstream_duration_seconds",
            Self::UpstreamLimited => "weir_upstream_limited_total",
            Self::Refused => "weir_refused_total",
            Self::BudgetLimit => "weir_budget_limit",
            Self::BudgetRemaining => "weir_budget_remaining",
            Self::BudgetReserved => "weir_budget_reserved",
            Self::BudgetReset => "weir_budget_reset_timestamp_seconds",
            Self::SecondaryInUse => "weir_secondary_in_use",
            Self::Waiting => "weir_waiting",
            Self::Wait => "weir_wait_seconds",
            Self::Writes => "weir_writes",
            Self::WritesOldest => "weir_writes_oldest_seconds",
            Self::WriteAttempts => "weir_write_attempts",
            Self::WriteQueue => "weir_write_queue_seconds",
            Self::CacheEntries => "weir_cache_entries",
            Self::CacheBytes => "weir_cache_bytes",
            Self::CacheEvictions => "weir_cache_evictions_total",
            Self::PredictedEtags => "weir_predicted_etags_total",
            Self::TokenHealthy => "weir_token_healthy",
            Self::WebhookDeliveries => "weir_webhook_deliveries_total",
            Self::InvariantBroken => "weir_invariant_broken_total",
        }
    }

    /// Returns the name for the registry: the encoder appends a counter's `_total` itself.
    #[must_use]
    pub fn registered_name(self) -> &'static str {
        self.name().strip_suffix("_total").unwrap_or(self.name())
    }

    /// Returns the help text, without a full stop: the encoder adds one.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::Requests => "Client requests finished",
            Self::RequestDuration => "Time from a client request's head to the end of its answer",
            Self::UpstreamRequests => {
                "Requests sent upstream; status none means that no answer came"
            }
            Self::UpstreamDuration => {
                "Time from sending a request upstream to the head of its answer"
            }
            Self::UpstreamLimited => "Requests the upstream refused for a limit",
            Self::Refused => "Requests the gateway refused itself",
            Self::BudgetLimit => "Size of a budget in requests per window",
            Self::BudgetRemaining => "What the upstream says is left of a budget",
            Self::BudgetReserved => "What requests in flight have reserved of a budget",
            Self::BudgetReset => "When a budget is whole again, in seconds since the epoch",
            Self::SecondaryInUse => "What is used of a secondary limit, in the limit's own unit",
            Self::Waiting => "Requests being held",
            Self::Wait => "How long requests were held",
            Self::Writes => "Writes in the queue's store by state",
            Self::WritesOldest => {
                "How long the oldest unfinished write of the queue has waited; 0 when there is none"
            }
            Self::WriteAttempts => {
                "How often a write of the queue was tried, by the state it ended in"
            }
            Self::WriteQueue => {
                "Time from accepting a write into the queue to its end, by the state it ended in"
            }
            Self::CacheEntries => "Stored answers",
            Self::CacheBytes => "Bytes of the stored answers",
            Self::CacheEvictions => "Stored answers thrown out to make room",
            Self::PredictedEtags => "Predicted ETags sent upstream by what came back",
            Self::TokenHealthy => "1 when the token can be used, else 0",
            Self::WebhookDeliveries => "Webhook deliveries received",
            Self::InvariantBroken => "Invariants found broken; must stay 0",
        }
    }
}
