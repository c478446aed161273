//! Gates: a test holds the requests it chooses until it lets them go, instead of sleeping and
//! hoping.
//!
//! The emulator only keeps the books: which request is held by which gate. Waiting is the socket
//! shell's business.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;

use crate::emulator::limits::RequestId;

/// More gates than this are refused: a test that leaks them should notice.
const GATES_MAX: usize = 1_000;

/// Names a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateId(pub u64);

#[derive(Debug)]
struct Gate {
    method: Option<Method>,
    path: String,
    held: BTreeSet<RequestId>,
}

/// All gates that are shut.
#[derive(Debug, Default)]
pub struct Gates {
    next: u64,
    shut: BTreeMap<GateId, Gate>,
    /// Which gate holds a request.
    holder: BTreeMap<RequestId, GateId>,
}

impl Gates {
    /// No gates, and none that will be taken for one of `before`: what those held goes on.
    pub fn after(before: &Self) -> Self {
        Self { next: before.next, ..Self::default() }
    }

    /// Shuts a new gate for requests with this method (any, when absent) and this path: as sent
    /// without the query, with `*` for any run of characters. `None` when there are too many gates.
    pub fn shut(&mut self, method: Option<Method>, path: String) -> Option<GateId> {
        if self.shut.len() >= GATES_MAX {
            return None;
        }
        self.next += 1;
        let id = GateId(self.next);
        self.shut.insert(id, Gate { method, path, held: BTreeSet::new() });
        Some(id)
    }

    /// Opens a gate and lets go what it holds; how many that were, or `None` when there is no such
    /// gate.
    pub fn open(&mut self, id: GateId) -> Option<usize> {
        let gate = self.shut.remove(&id)?;
        self.holder.retain(|_, holder| *holder != id);
        Some(gate.held.len())
    }

    /// Opens every gate; how many requests that lets go.
    pub fn open_all(&mut self) -> usize {
        let held = self.holder.len();
        *self = Self::after(self);
        held
    }

    pub fn is_open(&self, id: GateId) -> bool {
        !self.shut.contains_key(&id)
    }

    pub fn held(&self, id: GateId) -> usize {
        self.shut.get(&id).map_or(0, |gate| gate.held.len())
    }

    /// The first gate that holds such a request, which is then counted as held.
    pub fn hold(&mut self, request: RequestId, method: &Method, path: &str) -> Option<GateId> {
        let (id, gate) = self.shut.iter_mut().find(|(_, gate)| gate.matches(method, path))?;
        gate.held.insert(request);
        self.holder.insert(request, *id);
        Some(*id)
    }

    /// The request was answered or its client went away.
    pub fn release(&mut self, request: RequestId) {
        if let Some(gate) = self.holder.remove(&request).and_then(|id| self.shut.get_mut(&id)) {
            gate.held.remove(&request);
        }
    }

    /// Each gate's id, method, path and number of held requests.
    pub fn list(&self) -> impl Iterator<Item = (GateId, Option<&Method>, &str, usize)> {
        self.shut
            .iter()
            .map(|(id, gate)| (*id, gate.method.as_ref(), gate.path.as_str(), gate.held.len()))
    }
}

impl Gate {
    fn matches(&self, method: &Method, path: &str) -> bool {
        self.method.as_ref().is_none_or(|wanted| wanted == method)
            && matches_pattern(&self.path, path)
    }
}

/// Whether `text` is `pattern`, in which each `*` stands for any run of characters.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let mut pieces: Vec<&str> = pieces.collect();
    let last = pieces.pop().unwrap_or("");
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_a_gates_path_stands_for_anything() {
        assert!(matches_pattern("/repos/*/issues", "/repos/acme/widgets/issues"));
        assert!(matches_pattern("*", "/"));
        assert!(!matches_pattern("/repos/*/issues", "/repos/acme/widgets/issues/1"));
        assert!(!matches_pattern("/user", "/user/repos"));
        assert!(matches_pattern("/a*b*c", "/axxbyyc"));
        assert!(!matches_pattern("/aa*aa", "/aaa"));
    }

    #[test]
    fn a_gate_shut_after_a_reset_is_none_that_was_shut_before() {
        let mut before = Gates::default();
        let old = before.shut(None, "*".to_owned()).expect("there is room");
        before.hold(RequestId(1), &Method::GET, "/user");
        let mut gates = Gates::after(&before);
        assert!(gates.is_open(old));
        assert_ne!(gates.shut(None, "*".to_owned()), Some(old));
        assert!(gates.is_open(old), "what the old one held may go on");
    }

    #[test]
    fn a_request_is_held_by_one_gate_and_goes_on_when_that_one_opens() {
        let mut gates = Gates::default();
        let first = gates.shut(None, "/user".to_owned()).expect("there is room");
        let second = gates.shut(None, "*".to_owned()).expect("there is room");
        assert_eq!(gates.hold(RequestId(1), &Method::GET, "/user"), Some(first));
        assert_eq!(gates.hold(RequestId(2), &Method::GET, "/meta"), Some(second));
        assert_eq!((gates.held(first), gates.held(second)), (1, 1));
        gates.release(RequestId(2));
        assert_eq!(gates.open(first), Some(1));
        gates.hold(RequestId(3), &Method::GET, "/user");
        assert_eq!(gates.open_all(), 1, "what went on before is not let go again");
        assert!(gates.is_open(first) && gates.is_open(second));
    }

    #[test]
    fn more_than_a_thousand_gates_are_refused() {
        let mut gates = Gates::default();
        for _ in 0..GATES_MAX {
            assert!(gates.shut(None, "/".to_owned()).is_some());
        }
        assert_eq!(gates.shut(None, "/".to_owned()), None);
    }

    #[test]
    fn a_gate_counts_what_it_holds_until_it_is_opened() {
        let mut gates = Gates::default();
        let gate = gates.shut(Some(Method::GET), "/user".to_owned()).expect("there is room");
        assert_eq!(gates.hold(RequestId(1), &Method::POST, "/user"), None);
        assert_eq!(gates.hold(RequestId(2), &Method::GET, "/user"), Some(gate));
        assert_eq!(gates.held(gate), 1);
        assert_eq!(gates.open(gate), Some(1));
        assert!(gates.is_open(gate));
        assert_eq!(gates.open(gate), None);
    }
}
