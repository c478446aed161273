//! The name and the help of every metric (SPECIFICATION, "Metrics"). `metrics` has their
//! measurement.

use strum::{EnumMessage, IntoStaticStr};

use super::registry::{Description, Named};

/// A metric by its name without the prefix. The message is its help, without a full stop: the
/// encoder adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantArray))]
#[strum(serialize_all = "snake_case", prefix = "weir_")]
pub enum Metric {
    #[strum(message = "Client requests finished")]
    RequestsTotal,
    #[strum(message = "Time from a client request's head to the end of its answer")]
    RequestDurationSeconds,
    #[strum(message = "Requests sent upstream; status none means that no answer came")]
    UpstreamRequestsTotal,
    #[strum(message = "Time from sending a request upstream to the head of its answer")]
    UpstreamDurationSeconds,
    #[strum(message = "Requests the upstream refused for a limit")]
    UpstreamLimitedTotal,
    #[strum(message = "Units of budgets that requests have spent or may have spent")]
    UnitsTotal,
    #[strum(message = "Points of the secondary limit that requests have taken")]
    PointsTotal,
    #[strum(message = "Requests the gateway refused itself")]
    RefusedTotal,
    #[strum(message = "Requests that a rule in shadow mode would have refused or held")]
    ShadowedTotal,
    #[strum(message = "Units per window of a client's own budget")]
    ClientBudgetLimit,
    #[strum(message = "What a client has used of its own budget in this window")]
    ClientBudgetUsed,
    #[strum(message = "When a client's own budget is whole again, in seconds since the epoch")]
    ClientBudgetResetTimestampSeconds,
    #[strum(message = "Open connections by listener and state")]
    Connections,
    #[strum(message = "Connections accepted")]
    ConnectionsAcceptedTotal,
    #[strum(message = "Connections that the gateway ended or refused, by reason")]
    ConnectionsEndedTotal,
    #[strum(message = "How often no connection was accepted for a while, by reason")]
    AcceptPausesTotal,
    #[strum(message = "Size of a budget in requests per window")]
    BudgetLimit,
    #[strum(message = "What the upstream says is left of a budget")]
    BudgetRemaining,
    #[strum(message = "What requests in flight have reserved of a budget")]
    BudgetReserved,
    #[strum(message = "When a budget is whole again, in seconds since the epoch")]
    BudgetResetTimestampSeconds,
    #[strum(message = "What is used of a secondary limit, in the limit's own unit")]
    SecondaryInUse,
    #[strum(message = "Requests being held")]
    Waiting,
    #[strum(message = "How long requests were held")]
    WaitSeconds,
    #[strum(message = "Writes in the queue's store by state")]
    Writes,
    #[strum(
        message = "How long the oldest unfinished write of the queue has waited; 0 when there is none"
    )]
    WritesOldestSeconds,
    #[strum(message = "How often a write of the queue was tried, by the state it ended in")]
    WriteAttempts,
    #[strum(
        message = "Time from accepting a write into the queue to its end, by the state it ended in"
    )]
    WriteQueueSeconds,
    #[strum(message = "Stored answers")]
    CacheEntries,
    #[strum(message = "Bytes of the stored answers")]
    CacheBytes,
    #[strum(message = "When the snapshot of the cache was written; 0 without one")]
    CacheSnapshotTimestampSeconds,
    #[strum(message = "Stored answers thrown out to make room")]
    CacheEvictionsTotal,
    #[strum(message = "Open temporary files of large answers")]
    SpoolFiles,
    #[strum(message = "Bytes that the temporary files of large answers may take at the moment")]
    SpoolBytes,
    #[strum(message = "Stored answers on disk thrown out to make room")]
    SpoolEvictionsTotal,
    #[strum(message = "Stored answers revalidated in the background")]
    BackgroundRevalidationsTotal,
    #[strum(message = "Predicted ETags sent upstream by what came back")]
    PredictedEtagsTotal,
    #[strum(message = "1 while the upstream is down and only probed, else 0")]
    UpstreamDown,
    #[strum(message = "1 when the token can be used, else 0")]
    TokenHealthy,
    #[strum(
        message = "Days until a certificate of a listener, or the one for the upstream, ends; negative afterwards"
    )]
    CertificateDaysLeft,
    #[strum(message = "Seconds until a client's key ends; negative after its end")]
    ClientKeyExpirySeconds,
    #[strum(message = "Tokens of issuers verified, by what came of it")]
    IssuerTokensTotal,
    #[strum(message = "When the keys of an issuer were fetched last; 0 before that")]
    IssuerKeysTimestampSeconds,
    #[strum(message = "Webhook deliveries received")]
    WebhookDeliveriesTotal,
    #[strum(message = "Reports to the shared records of the accounts, by result")]
    ReplicaSyncsTotal,
    #[strum(message = "Repetitions of such reports because another replica came between")]
    ReplicaSyncConflictsTotal,
    #[strum(message = "Time of a report to a shared record until its answer")]
    ReplicaSyncSeconds,
    #[strum(message = "Accounts whose parts have ended because no report was answered")]
    ReplicaLeasesLostTotal,
    #[strum(message = "Part of an account's limit that this replica holds")]
    ReplicaPart,
    #[strum(message = "Replicas that were heard in the last seconds, this one among them")]
    ReplicasHeard,
    #[strum(message = "Looks for answers of other replicas")]
    FarLookupsTotal,
    #[strum(message = "Queued writes of replicas that are gone, which go on here")]
    WritesTakenOverTotal,
    #[strum(message = "1 while the Redis of all replicas is in reach, else 0")]
    RedisUp,
    #[strum(message = "Invariants found broken; must stay 0")]
    InvariantBrokenTotal,
    #[strum(message = "Reloads of the config, by result")]
    ConfigReloadsTotal,
    #[strum(message = "1 if the latest reload of the config was applied, or none was made, else 0")]
    ConfigReloadSuccessful,
    #[strum(message = "When the config in force was read")]
    ConfigTimestampSeconds,
    #[strum(message = "Lines of the log that were dropped because its reader was too slow")]
    LogLinesDroppedTotal,
    #[strum(message = "Spans and log records that were dropped before their export by OTLP")]
    OtlpDroppedTotal,
    #[strum(message = "Exports by OTLP, by signal and result")]
    OtlpExportsTotal,
    #[strum(message = "Version and commit of the program; always 1")]
    BuildInfo,
}

/// A metric of the process by the name that all Prometheus clients give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantArray))]
#[strum(serialize_all = "snake_case", prefix = "process_")]
pub enum ProcessMetric {
    #[strum(message = "When the process began, in seconds since the epoch")]
    StartTimeSeconds,
    #[strum(message = "CPU time that the process has used")]
    CpuSecondsTotal,
    #[strum(message = "Virtual memory of the process")]
    VirtualMemoryBytes,
    #[strum(message = "Resident memory of the process")]
    ResidentMemoryBytes,
    #[strum(message = "Open file descriptors of the process")]
    OpenFds,
    #[strum(message = "Most open file descriptors that the system allows the process")]
    MaxFds,
}

/// A metric by its name in OpenTelemetry's semantic conventions. The export by OTLP has it beside
/// the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantArray))]
pub enum SemanticMetric {
    /// Also `weir_request_duration_seconds`.
    #[strum(serialize = "http.server.request.duration")]
    #[strum(message = "Duration of HTTP server requests")]
    ServerRequestDuration,
    /// Also `weir_upstream_duration_seconds`.
    #[strum(serialize = "http.client.request.duration")]
    #[strum(message = "Duration of HTTP client requests")]
    ClientRequestDuration,
    /// Also `process_cpu_seconds_total`.
    #[strum(serialize = "process.cpu.time")]
    #[strum(message = "CPU time that the process has used")]
    ProcessCpuTime,
    /// Also `process_resident_memory_bytes`.
    #[strum(serialize = "process.memory.usage")]
    #[strum(message = "Resident memory of the process")]
    ProcessMemoryUsage,
    /// Also `process_virtual_memory_bytes`.
    #[strum(serialize = "process.memory.virtual")]
    #[strum(message = "Virtual memory of the process")]
    ProcessMemoryVirtual,
    /// Also `process_open_fds`.
    #[strum(serialize = "process.unix.file_descriptor.count")]
    #[strum(message = "Open file descriptors of the process")]
    ProcessFileDescriptors,
}

impl Named for Metric {
    fn description(self) -> Description {
        let help = self.get_message().unwrap_or_default();
        Description { name: self.into(), help, is_semantic: false }
    }
}

impl Named for ProcessMetric {
    fn description(self) -> Description {
        let help = self.get_message().unwrap_or_default();
        Description { name: self.into(), help, is_semantic: false }
    }
}

impl Named for SemanticMetric {
    fn description(self) -> Description {
        let help = self.get_message().unwrap_or_default();
        Description { name: self.into(), help, is_semantic: true }
    }
}

#[cfg(test)]
impl Metric {
    /// In the order of SPECIFICATION, "Metrics".
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

#[cfg(test)]
impl ProcessMetric {
    /// In the order of SPECIFICATION, "Metrics".
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

#[cfg(test)]
impl SemanticMetric {
    /// In the order of SPECIFICATION, "Metrics".
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}
