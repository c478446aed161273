//! The choice of the requests whose spans are made.
//!
//! It comes before the span of a request: a span that is made and not exported costs nearly as much
//! as one that is. Left out: the spans (`spans`), and their export (`otlp`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::{
    Link, SpanContext, SpanKind, TraceContextExt as _, TraceFlags, TraceId,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision, SamplingResult, ShouldSample,
};

use super::otlp::Sampling;

/// The part of the traces that is kept, where no caller has decided. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct RatioControl(Arc<AtomicU64>);

impl RatioControl {
    fn new(ratio: f64) -> Self {
        Self(Arc::new(AtomicU64::new(ratio.to_bits())))
    }

    pub(super) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, ratio: f64) {
        self.0.store(ratio.to_bits(), Ordering::Relaxed);
    }
}

impl ShouldSample for RatioControl {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let sampler = Sampler::TraceIdRatioBased(self.get());
        sampler.should_sample(parent, trace, name, kind, attributes, links)
    }
}

/// Marks the context of a request that is chosen: the library that makes its span asks again.
#[derive(Debug)]
struct Chosen;

/// See the module. Clones share the ratio.
#[derive(Clone, Debug)]
pub(super) struct RequestSampler {
    ratio: RatioControl,
    /// Leaves the choice to the caller, and to the ratio without one; `None`: always the ratio.
    by_caller: Option<Sampler>,
}

/// The choice for a request that begins.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// Its span is made in this context.
    Sampled(Context),
    /// It has no span. Its trace goes on by this context.
    Unsampled(SpanContext),
}

impl RequestSampler {
    pub(super) fn new(sampling: Sampling) -> Self {
        let ratio = RatioControl::new(sampling.ratio);
        let by_ratio = || Box::new(ratio.clone());
        let by_caller = sampling.is_parent_based.then(|| Sampler::ParentBased(by_ratio()));
        Self { ratio, by_caller }
    }

    pub(super) fn ratio(&self) -> &RatioControl {
        &self.ratio
    }

    /// Chooses for a request with its caller's context, if it has one.
    pub(super) fn choose(&self, caller: Option<Context>) -> Choice {
        let ids = RandomIdGenerator::default();
        let known = caller.as_ref().map(|caller| caller.span().span_context().trace_id());
        let trace = known.filter(|trace| *trace != TraceId::INVALID);
        let trace = trace.unwrap_or_else(|| ids.new_trace_id());
        let chosen =
            self.should_sample(caller.as_ref(), trace, "request", &SpanKind::Server, &[], &[]);
        if chosen.decision == SamplingDecision::Drop {
            let (own, flags) = (ids.new_span_id(), TraceFlags::NOT_SAMPLED);
            Choice::Unsampled(SpanContext::new(trace, own, flags, false, chosen.trace_state))
        } else {
            Choice::Sampled(caller.unwrap_or_default().with_value(Chosen))
        }
    }
}

impl ShouldSample for RequestSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let is_chosen = parent.is_some_and(|parent| parent.get::<Chosen>().is_some());
        let sampler: &dyn ShouldSample = match &self.by_caller {
            _ if is_chosen => &Sampler::AlwaysOn,
            Some(by_caller) => by_caller,
            None => &self.ratio,
        };
        sampler.should_sample(parent, trace, name, kind, attributes, links)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceState};

    use super::*;

    const TRACE: u128 = 0xaf7_6519_16cd_43dd_8448_eb21_1c80_319c;

    fn caller(is_sampled: bool) -> Context {
        let flags = TraceFlags::default().with_sampled(is_sampled);
        let state = TraceState::from_key_value([("vendor", "1")]).unwrap();
        let (trace, span) = (TraceId::from(TRACE), SpanId::from(7));
        let context = SpanContext::new(trace, span, flags, true, state);
        Context::new().with_remote_span_context(context)
    }

    fn choice(ratio: f64, is_parent_based: bool, caller: Option<Context>) -> Option<SpanContext> {
        match RequestSampler::new(Sampling { ratio, is_parent_based }).choose(caller) {
            Choice::Sampled(_) => None,
            Choice::Unsampled(context) => Some(context),
        }
    }

    #[test]
    fn a_request_out_of_the_ratio_begins_an_unsampled_trace() {
        let contexts = [(); 2].map(|()| choice(0.0, true, None).unwrap());
        assert!(contexts.iter().all(|context| context.is_valid() && !context.is_sampled()));
        assert_ne!(contexts[0].trace_id(), contexts[1].trace_id());
        assert_eq!(choice(1.0, true, None), None);
    }

    #[test]
    fn a_callers_choice_counts_more_than_the_ratio() {
        assert_eq!(choice(0.0, true, Some(caller(true))), None);
        let unsampled = choice(1.0, true, Some(caller(false))).unwrap();
        assert_eq!(unsampled.trace_id(), TraceId::from(TRACE));
        assert_ne!(unsampled.span_id(), SpanId::from(7), "the gateway is a step of its own");
        assert_eq!(unsampled.trace_state().get("vendor"), Some("1"));
        assert!(!unsampled.is_remote());
    }

    #[test]
    fn the_ratio_alone_counts_where_it_is_to() {
        assert!(choice(0.0, false, Some(caller(true))).is_some());
        assert_eq!(choice(1.0, false, Some(caller(false))), None);
    }

    #[test]
    fn the_ratio_is_the_share_of_the_requests() {
        let sampled = (0..10_000).filter(|_| choice(0.2, true, None).is_none()).count();
        assert!((1_800..2_200).contains(&sampled), "{sampled}");
    }

    #[test]
    fn the_library_keeps_to_the_choice() {
        let sampler = RequestSampler::new(Sampling { ratio: 1.0, is_parent_based: true });
        let Choice::Sampled(context) = sampler.choose(None) else { panic!() };
        sampler.ratio().set(0.0);
        let trace = TraceId::from(TRACE);
        let kept =
            sampler.should_sample(Some(&context), trace, "request", &SpanKind::Server, &[], &[]);
        assert_eq!(kept.decision, SamplingDecision::RecordAndSample);
    }
}
