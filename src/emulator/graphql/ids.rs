//! Node ids, which REST responses contain too, and cursors.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::object::Node;
use super::problem::Problem;
use crate::emulator::auth::access;
use crate::emulator::routing::Call;
use crate::emulator::world::{Repository, World};

fn decode(node_id: &str) -> Option<(String, u64)> {
    let text = String::from_utf8(STANDARD.decode(node_id).ok()?).ok()?;
    let (length, rest) = text.strip_prefix('0')?.split_once(':')?;
    let (kind, number) = rest.split_at_checked(length.parse().ok()?)?;
    Some((kind.to_owned(), number.parse().ok()?))
}

pub fn node(call: &Call<'_>, node_id: &str) -> Result<Node, Problem> {
    let shown: String = node_id.chars().take(100).collect();
    let unknown = || {
        Problem::not_found(format!("Could not resolve to a node with the global id of '{shown}'"))
    };
    let (kind, id) = decode(node_id).ok_or_else(unknown)?;
    find(call.world, &kind, id).filter(|node| is_visible(call, node)).ok_or_else(unknown)
}

/// Reading issues and pull requests may need a permission besides.
fn is_visible(call: &Call<'_>, node: &Node) -> bool {
    node.repository()
        .and_then(|id| call.world.repositories.get(&id))
        .is_none_or(|repository| access::sees(call.world, call.caller, repository))
}

fn find(world: &World, kind: &str, id: u64) -> Option<Node> {
    let repository_with = |has: &dyn Fn(&Repository) -> bool| {
        let found = world.repositories.values().find(|repository| has(repository))?;
        Some(found.id)
    };
    match kind {
        "User" => world.users.contains_key(&id).then_some(Node::User(id)),
        "Bot" => world.users.contains_key(&id).then_some(Node::Bot(id)),
        "Organization" => world.organizations.contains_key(&id).then_some(Node::Organization(id)),
        "Repository" => world.repositories.contains_key(&id).then_some(Node::Repository(id)),
        // A pull request has two ids in REST, as an issue and as a pull request; both lead to it.
        "Issue" | "PullRequest" => world.repositories.values().find_map(|repository| {
            let issue = repository.issues.values().find(|issue| issue.id == id)?;
            Some(Node::issue(repository.id, issue))
        }),
        "IssueComment" => {
            let on = repository_with(&|repository| repository.comments.contains_key(&id))?;
            Some(Node::Comment(on, id))
        }
        "Label" => {
            let of = repository_with(&|repository| repository.labels.contains_key(&id))?;
            Some(Node::Label(of, id))
        }
        _ => None,
    }
}

pub fn cursor(key: u64) -> String {
    STANDARD.encode(format!("cursor:{key}"))
}

pub fn decode_cursor(cursor: &str) -> Option<u64> {
    String::from_utf8(STANDARD.decode(cursor).ok()?).ok()?.strip_prefix("cursor:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::render::node_id;

    #[test]
    fn a_node_id_of_rest_is_decoded_and_a_malformed_one_is_not() {
        assert_eq!(decode(&node_id("PullRequest", 17)), Some(("PullRequest".to_owned(), 17)));
        for text in [
            "",
            "x",
            "MDU6",
            "🦀",
            &STANDARD.encode("05:Issue"),
            &STANDARD.encode("099:Issue1"),
            &STANDARD.encode("03:é1"),
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
