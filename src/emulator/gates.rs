//! Gates: a test holds the requests it chooses until it lets them go, instead of sleeping and hoping.
//!
//! The emulator only keeps the books: which request is held by which gate. Waiting is the socket shell's business.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;

use super::arrival::RequestId;

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
}

impl Gates {
    /// Shuts a new gate for requests with this method (any, when absent) and this path: as sent without the query, with `*` for any run of
    /// characters. `None` when there are too many gates.
    pub fn shut(&mut self, method: Option<Method>, path: String) -> Option<GateId> {
        if self.shut.len() >= GATES_MAX {
            return None;
        }
        self.next += 1;
        let id = GateId(self.next);
        self.shut.insert(id, Gate { method, path, held: BTreeSet::new() });
        Some(id)
    }

    /// Opens a gate and lets go what it holds; how many that were, or `None` when there is no such gate.
    pub fn open(&mut self, id: GateId) -> Option<usize> {
        self.shut.remove(&id).map(|gate| gate.held.len())
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
        Some(*id)
    }

    /// The request was answered or its client went away.
    pub fn release(&mut self, request: RequestId) {
        for gate in self.shut.values_mut() {
            gate.held.remove(&request);
        }
    }

    /// Each gate's id, method, path and number of held requests.
    pub fn list(&self) -> impl Iterator<Item = (GateId, Option<&Method>, &str, usize)> {
        self.shut.iter().map(|(id, gate)| (*id, gate.method.as_ref(), gate.path.as_str(), gate.held.len()))
    }
}

impl Gate {
    fn matches(&self, method: &Method, path: &str) -> bool {
        self.method.as_ref().is_none_or(|wanted| wanted == method) && matches_pattern(&self.path, path)
    }
}

/// Whether `text` is `pattern`, in which each `*` stands for any run of characters.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else { return false };
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
