//! Label sets of the metrics. Every value is a name from the config, a route template or a word of
//! a closed set. None is a request's path, a token or a key (SPECIFICATION, "Metrics").
//!
//! Names are shared: a label set for a lookup allocates nothing if its names are `Arc<str>`
//! already.

use std::fmt::{Debug, Display, Formatter};
use std::hash::Hash;
use std::sync::Arc;

use super::registry::{LabelText, Labels};

/// Label value that all label sets beyond a family's bound share.
const OVERFLOW: &str = "_overflow";

/// A label set of a bounded family.
pub(super) trait LabelSet: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// Returns the label set that counts all those without room.
    fn overflow() -> Self;

    /// Returns the names and the texts of its labels.
    fn labels(&self) -> Labels;
}

/// A value of a label.
trait Label {
    fn text(&self) -> LabelText;
}

impl Label for &'static str {
    fn text(&self) -> LabelText {
        LabelText::Word(self)
    }
}

impl Label for u32 {
    fn text(&self) -> LabelText {
        LabelText::Number(*self)
    }
}

/// A name from the config, or one that the upstream gave to a budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(Arc<str>);

impl Name {
    /// Longest label that the upstream or a webhook can cause.
    const BYTES_MAX: usize = 128;

    /// Returns the client's name, or `_none` when no key was accepted.
    pub(super) fn of_client(client: Option<&Arc<str>>) -> Self {
        client.map_or_else(|| Self::from("_none"), |name| Self(Arc::clone(name)))
    }
}

impl Name {
    /// Returns the name.
    pub(super) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self(Arc::from(&name[..name.floor_char_boundary(Self::BYTES_MAX)]))
    }
}

impl Label for Name {
    fn text(&self) -> LabelText {
        LabelText::Name(Arc::clone(&self.0))
    }
}

/// An HTTP status; `none` for no answer, `_other` for one outside 100 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Status(u16);

impl Status {
    pub(super) const NONE: Self = Self(0);
    const OTHER: Self = Self(u16::MAX);

    /// Returns the number of a usual status; `None` without an answer.
    pub(super) fn number(self) -> Option<u32> {
        (self != Self::NONE).then_some(self.0.into())
    }
}

impl From<u16> for Status {
    fn from(status: u16) -> Self {
        if status == 0 || (100..600).contains(&status) { Self(status) } else { Self::OTHER }
    }
}

impl Label for Status {
    fn text(&self) -> LabelText {
        match *self {
            Self::NONE => LabelText::Word("none"),
            Self::OTHER => LabelText::Word("_other"),
            Self(status) => LabelText::Number(status.into()),
        }
    }
}

/// Declares a label set with an overflow value for every field.
macro_rules! label_set {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty = $overflow:expr),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(super) struct $name {
            $(pub(super) $field: $kind,)+
        }

        impl LabelSet for $name {
            fn overflow() -> Self {
                Self { $($field: $overflow,)+ }
            }

            fn labels(&self) -> Labels {
                vec![$((stringify!($field), self.$field.text())),+]
            }
        }
    };
}

label_set!(RequestLabels {
    client: Name = OVERFLOW.into(),
    method: &'static str = OVERFLOW,
    endpoint: &'static str = OVERFLOW,
    status: Status = Status::OTHER,
    cache: &'static str = OVERFLOW,
});
label_set!(
    /// The labels of both metrics of the same duration.
    RequestDurationLabels {
        scheme: &'static str = OVERFLOW,
        method: &'static str = OVERFLOW,
        endpoint: &'static str = OVERFLOW,
        status: Status = Status::OTHER,
        cache: &'static str = OVERFLOW,
    }
);
label_set!(
    /// The labels of both metrics of the same duration.
    UpstreamDurationLabels {
        upstream: Name = OVERFLOW.into(),
        method: &'static str = OVERFLOW,
        endpoint: &'static str = OVERFLOW,
        status: Status = Status::OTHER,
    }
);
label_set!(UpstreamLabels {
    account: Name = OVERFLOW.into(),
    resource: Name = OVERFLOW.into(),
    endpoint: &'static str = OVERFLOW,
    status: Status = Status::OTHER,
});
label_set!(SpendingLabels {
    client: Name = OVERFLOW.into(),
    account: Name = OVERFLOW.into(),
    resource: Name = OVERFLOW.into(),
    endpoint: &'static str = OVERFLOW,
});
label_set!(AccountLimitLabels { account: Name = OVERFLOW.into(), limit: &'static str = OVERFLOW });
label_set!(RefusedLabels { client: Name = OVERFLOW.into(), reason: &'static str = OVERFLOW });
label_set!(BudgetLabels { account: Name = OVERFLOW.into(), resource: Name = OVERFLOW.into() });
label_set!(PartLabels { account: Name = OVERFLOW.into(), limit: Name = OVERFLOW.into() });
label_set!(ClientBudgetLabels { client: Name = OVERFLOW.into(), resource: Name = OVERFLOW.into() });
label_set!(ShadowLabels {
    client: Name = OVERFLOW.into(),
    rule: &'static str = OVERFLOW,
    effect: &'static str = OVERFLOW,
});
label_set!(ClientLabels { client: Name = OVERFLOW.into() });
label_set!(ReasonLabels { reason: &'static str = OVERFLOW });
label_set!(ResultLabels { result: &'static str = OVERFLOW });
label_set!(ListenerLabels { listener: &'static str = OVERFLOW });
label_set!(ConnectionLabels { listener: &'static str = OVERFLOW, state: &'static str = OVERFLOW });
label_set!(StateLabels { state: &'static str = OVERFLOW });
label_set!(
    /// `token` is its position in the config, or its origin.
    TokenLabels { account: Name = OVERFLOW.into(), token: Name = OVERFLOW.into() }
);
label_set!(
    /// `listener` is its key in the config, `certificate` the file.
    CertificateLabels { listener: &'static str = OVERFLOW, certificate: Name = OVERFLOW.into() }
);
label_set!(
    /// `key` is its position among the client's keys.
    ClientKeyLabels { client: Name = OVERFLOW.into(), key: u32 = u32::MAX }
);
label_set!(IssuerLabels { issuer: Name = OVERFLOW.into() });
label_set!(IssuerTokenLabels { issuer: Name = OVERFLOW.into(), outcome: &'static str = OVERFLOW });
label_set!(AddressLabels { upstream: Name = OVERFLOW.into() });
label_set!(WebhookLabels { event: Name = OVERFLOW.into(), outcome: &'static str = OVERFLOW });
label_set!(PredictionLabels { endpoint: &'static str = OVERFLOW, outcome: &'static str = OVERFLOW });
label_set!(InvariantLabels { invariant: &'static str = OVERFLOW });
