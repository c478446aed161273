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

use crate::gateway::cache::cache_request::CacheRequest;
use crate::gateway::cache::shared_body::{Gone, Head, Lost, SharedBody, Turn};
use crate::gateway::dispatch::answer::Answer;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::Conditions;
use crate::gateway::dispatch::progress::RequestProgress;

/// What the client was told of the body.
const TOLD: [header::HeaderName; 4] =
    [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::CONTENT_ENCODING, header::LAST_MODIFIED];

/// One of those who read a body. Dropped, it is wanted by one less.
pub struct Reader {
    stream: Arc<SharedBody>,
    place: usize,
    /// How it goes on when it is let go; only from the beginning of a body that others read too.
    again: Option<Resume>,
    /// The part of a piece that it does not have yet.
    rest: Option<Bytes>,
}

/// Asks the same once more.
pub struct Resume {
    /// Who asks.
    pub dispatcher: Arc<Dispatcher>,
    /// What is asked.
    pub cache_request: Arc<CacheRequest>,
}

impl Resume {
    /// A reader of another answer to the same that goes on after what is `gone`, with what it has
    /// of a piece.
    pub async fn go_on(self, head: &Head, gone: Gone) -> Result<(Reader, Option<Bytes>), Lost> {
        let answer = self
            .dispatcher
            .perform(&self.cache_request.job, &RequestProgress::default(), &SameToken(head.token))
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

impl Reader {
    /// A place at its beginning; `None` when that is gone, or for somebody else.
    pub fn join(stream: &Arc<SharedBody>, again: Option<Resume>) -> Option<Self> {
        let place = stream.take_place()?;
        Some(Self { stream: Arc::clone(stream), place, again, rest: None })
    }

    /// The only one of an answer.
    pub fn alone(answer: Answer) -> Self {
        let stream = Arc::new(SharedBody::new(answer, None, false));
        let place = stream.take_only_place();
        Self { stream, place, again: None, rest: None }
    }

    /// What came before the body.
    pub fn head(&self) -> &Head {
        &self.stream.head
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        loop {
            if let Some(rest) = self.rest.take() {
                return Ok(Some(rest));
            }
            match self.turn().await? {
                Turn::Piece(piece) => return Ok(Some(piece)),
                Turn::End => return Ok(None),
                Turn::Left(gone) => {
                    let (reader, rest) =
                        self.again.take().ok_or(Lost)?.go_on(&self.stream.head, *gone).await?;
                    *self = reader;
                    self.rest = rest;
                }
            }
        }
    }

    /// The same, as long as it is not let go.
    pub async fn turn(&self) -> Result<Turn, Lost> {
        self.stream.next(self.place).await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.leave(self.place);
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
