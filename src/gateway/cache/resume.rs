//! How the reader of a shared body goes on that was too slow for the others: by a fetch of its own,
//! of which it skips what it has.
//!
//! Its client gets the bytes of one whole answer, or sees the body break off. The new answer's
//! beginning must be, byte for byte, what was given already, by its digest, so that what the client
//! has in the end is the new answer's body; and what the head said of it must be so of the new one.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, header};
use ring::digest::{Context, SHA256};

use crate::tokens::{Credential, TokenId};

use crate::gateway::Gateway;
use crate::gateway::cache::read::Question;
use crate::gateway::cache::shared_body::{Gone, Head, Lost, Reader, Turn};
use crate::gateway::dispatch::answer::Answer;
use crate::gateway::dispatch::job::Conditions;
use crate::gateway::dispatch::progress::Effort;

/// What the client was told of the body.
const TOLD: [header::HeaderName; 4] =
    [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::CONTENT_ENCODING, header::LAST_MODIFIED];

/// Asks the same once more.
pub struct Again {
    /// Who asks.
    pub gateway: Arc<Gateway>,
    /// What is asked.
    pub question: Arc<Question>,
}

impl Again {
    /// A reader of another answer to the same that goes on after what is `gone`, with what it has
    /// of a piece.
    pub async fn go_on(self, head: &Head, gone: Gone) -> Result<(Reader, Option<Bytes>), Lost> {
        let answer = self
            .gateway
            .perform(&self.question.job, &Effort::default(), &SameToken(head.token))
            .await
            .map_err(|_| Lost)?;
        if !is_same(head, &answer) {
            return Err(Lost);
        }
        let reader = Reader::alone(answer);
        let (mut skipped, mut left, mut rest) = (Context::new(&SHA256), gone.bytes, None);
        while left > 0 {
            let Turn::Piece(mut piece) = reader.turn().await? else { return Err(Lost) };
            let beginning =
                piece.split_to(piece.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            left -= beginning.len() as u64;
            skipped.update(&beginning);
            rest = (!piece.is_empty()).then_some(piece);
        }
        let digest = gone.digest.ok_or(Lost)?;
        if skipped.finish().as_ref() == digest.finish().as_ref() {
            Ok((reader, rest))
        } else {
            Err(Lost)
        }
    }
}

/// Whether what the client was told of one answer is so of the other. An `ETag` says something only
/// of the token that it came with (DESIGN D3).
fn is_same(head: &Head, answer: &Answer) -> bool {
    let same =
        |name: &header::HeaderName| told(&head.headers, name).eq(told(&answer.headers, name));
    head.status == answer.status
        && TOLD.iter().all(same)
        && (head.token != answer.token || same(&header::ETAG))
}

fn told<'h>(
    headers: &'h HeaderMap,
    name: &header::HeaderName,
) -> impl Iterator<Item = &'h header::HeaderValue> {
    headers.get_all(name).iter()
}

/// Asks with the token whose `ETag` can be compared, where it is as good as another.
struct SameToken(TokenId);

impl Conditions for SameToken {
    fn preferred(&self) -> Option<TokenId> {
        Some(self.0)
    }

    fn with(&self, _: &Credential) -> HeaderMap {
        HeaderMap::new()
    }
}
