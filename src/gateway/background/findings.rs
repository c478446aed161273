//! Findings of answers on their way between replicas: names of tokens that all share, in place of
//! the numbers of this process.

use http::Method;

use crate::api::{Denial, OperationKey};
use crate::decision::permissions::{Holder, Observation};
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::findings::Finding;
use crate::gateway::dispatch::graphql_prices::Price;
use crate::state::finding::{Denied, Observed};
use crate::state::{FarNames, SharedFinding};
use crate::tokens::SlotId;

/// The form of a finding for the others; `None` without a common name of its token.
pub fn shared(finding: Finding, names: &FarNames) -> Option<SharedFinding> {
    Some(match finding {
        Finding::Permission { holder, method, path, observation, accepted } => {
            let token = names.slots.get(&holder.token)?.clone();
            let accepted = accepted.map(|(name, access)| (name, access.to_string()));
            let (method, observation) = (method.to_string(), observed(observation));
            SharedFinding::Permission { token, method, path, observation, accepted }
        }
        Finding::Price(OperationKey(operation), Price { units, proven, higher }) => {
            SharedFinding::Price { operation, units, proven, higher }
        }
        Finding::Spent(spent) => SharedFinding::Spent(spent),
    })
}

/// The finding of another replica; `None` if this one has no such token, or cannot read it.
pub fn read(finding: SharedFinding, names: &FarNames, dispatcher: &Dispatcher) -> Option<Finding> {
    Some(match finding {
        SharedFinding::Permission { token, method, path, observation, accepted } => {
            let token = *names.slot_of.get(&token)?;
            let account = dispatcher.tokens().owner(SlotId(token.0))?;
            let accepted = match accepted {
                Some((name, access)) => Some((name, access.parse().ok()?)),
                None => None,
            };
            Finding::Permission {
                holder: Holder { account, token },
                method: Method::from_bytes(method.as_bytes()).ok()?,
                path,
                observation: observation_of(observation),
                accepted,
            }
        }
        SharedFinding::Price { operation, units, proven, higher } => {
            Finding::Price(OperationKey(operation), Price { units, proven, higher })
        }
        SharedFinding::Spent(spent) => Finding::Spent(spent),
    })
}

fn observed(observation: Observation) -> Observed {
    let denied = |denial| match denial {
        Denial::MissingPermission { by_token: false } => Denied::Permission,
        Denial::MissingPermission { by_token: true } => Denied::AcceptedPermission,
        Denial::Forbidden => Denied::Forbidden,
        Denial::NotFound => Denied::NotFound,
    };
    match observation {
        Observation::Served => Observed::Served,
        Observation::Denied(denial) => Observed::Denied(denied(denial)),
        Observation::ServedElsewhere(denial) => Observed::ServedElsewhere(denied(denial)),
    }
}

fn observation_of(observed: Observed) -> Observation {
    let denial = |denied| match denied {
        Denied::Permission => Denial::MissingPermission { by_token: false },
        Denied::AcceptedPermission => Denial::MissingPermission { by_token: true },
        Denied::Forbidden => Denial::Forbidden,
        Denied::NotFound => Denial::NotFound,
    };
    match observed {
        Observed::Served => Observation::Served,
        Observed::Denied(denied) => Observation::Denied(denial(denied)),
        Observed::ServedElsewhere(denied) => Observation::ServedElsewhere(denial(denied)),
    }
}
