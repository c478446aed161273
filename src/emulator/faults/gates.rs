//! Gates: a test holds chosen requests and releases them, instead of sleeping.
//!
//! The emulator only records which gate holds which request. The server does the waiting.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;

use crate::emulator::limits::RequestId;

/// The most gates; further ones are refused, so that a test notices leaked gates.
const GATES_MAX: usize = 1_000;

/// Identifies a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateId(pub u64);

#[derive(Debug)]
struct Gate {
    method: Option<Method>,
    path: String,
    held: BTreeSet<RequestId>,
}

#[derive(Debug, Default)]
pub struct Gates {
    next: u64,
    shut: BTreeMap<GateId, Gate>,
    holder: BTreeMap<RequestId, GateId>,
}

impl Gates {
    /// Returns an empty set that reuses no id of `before`; the requests held there are released.
    pub fn after(before: &Self) -> Self {
        Self { next: before.next, ..Self::default() }
    }

    /// Matches this method (`None` for any) and path as sent, without the query; `*` matches any
    /// run of characters. Returns `None` when there are too many gates.
    pub fn shut(&mut self, method: Option<Method>, path: String) -> Option<GateId> {
        if self.shut.len() >= GATES_MAX {
            return None;
        }
        self.next += 1;
        let id = GateId(self.next);
        self.shut.insert(id, Gate { method, path, held: BTreeSet::new() });
        Some(id)
    }

    /// Opens a gate and returns how many requests it held; `None` without such a gate.
    pub fn open(&mut self, id: GateId) -> Option<usize> {
        let gate = self.shut.remove(&id)?;
        self.holder.retain(|_, holder| *holder != id);
        Some(gate.held.len())
    }

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

    /// Returns the first gate that matches the request, and counts the request as held.
    pub fn hold(&mut self, request: RequestId, method: &Method, path: &str) -> Option<GateId> {
        let (id, gate) = self.shut.iter_mut().find(|(_, gate)| gate.matches(method, path))?;
        gate.held.insert(request);
        self.holder.insert(request, *id);
        Some(*id)
    }

    pub fn release(&mut self, request: RequestId) {
        if let Some(gate) = self.holder.remove(&request).and_then(|id| self.shut.get_mut(&id)) {
            gate.held.remove(&request);
        }
    }

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

/// Returns true when `text` matches `pattern`, in which each `*` stands for any run of characters.
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
    fn a_star_in_a_path_pattern_matches_any_characters() {
        assert!(matches_pattern("/repos/*/issues", "/repos/acme/widgets/issues"));
        assert!(matches_pattern("*", "/"));
        assert!(!matches_pattern("/repos/*/issues", "/repos/acme/widgets/issues/1"));
        assert!(!matches_pattern("/user", "/user/repos"));
        assert!(matches_pattern("/a*b*c", "/axxbyyc"));
        assert!(!matches_pattern("/aa*aa", "/aaa"));
    }

    #[test]
    fn a_gate_shut_after_a_reset_has_a_new_id() {
        let mut before = Gates::default();
        let old = before.shut(None, "*".to_owned()).expect("there is room");
        before.hold(RequestId(1), &Method::GET, "/user");
        let mut gates = Gates::after(&before);
        assert!(gates.is_open(old));
        assert_ne!(gates.shut(None, "*".to_owned()), Some(old));
        assert!(gates.is_open(old), "what the old one held may go on");
    }

    #[test]
    fn a_request_is_held_by_its_first_matching_gate_alone() {
        let mut gates = Gates::default();
        let first = gates.shut(None, "/user".to_owned()).expect("there is room");
        let second = gates.shut(None, "*".to_owned()).expect("there is room");
        assert_eq!(gates.hold(RequestId(1), &Method::GET, "/user"), Some(first));
        assert_eq!(gates.hold(RequestId(2), &Method::GET, "/meta"), Some(second));
        assert_eq!((gates.held(first), gates.held(second)), (1, 1));
        gates.release(RequestId(2));
        assert_eq!(gates.open(first), Some(1));
        gates.hold(RequestId(3), &Method::GET, "/user");
        assert_eq!(gates.open_all(), 1, "a released request is not released again");
        assert!(gates.is_open(first) && gates.is_open(second));
    }

    #[test]
    fn a_gate_beyond_the_maximum_is_refused() {
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
