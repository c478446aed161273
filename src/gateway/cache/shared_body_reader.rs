//! Resume of a shared body: a reader that was too slow fetches it anew and skips its own part.
//!
//! Its client gets one complete answer or sees the body break off. The skipped part must match the
//! delivered bytes by digest, and the new headers those sent earlier.

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

/// Headers that described the body to the client.
const TOLD: [header::HeaderName; 4] =
    [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::CONTENT_ENCODING, header::LAST_MODIFIED];

/// A reader of a shared body. Dropping it ends its interest.
pub struct Reader {
    stream: Arc<SharedBody>,
    place: usize,
    /// The means to resume after a release; `None` for the only reader.
    again: Option<Resume>,
    /// The rest of a piece after a resume.
    rest: Option<Bytes>,
}

/// The means to repeat the fetch.
pub struct Resume {
    pub dispatcher: Arc<Dispatcher>,
    pub cache_request: Arc<CacheRequest>,
}

impl Resume {
    /// Returns a reader of a new answer behind the part that is `gone`, and a split piece's rest.
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
    /// Adds a reader at the beginning; `None` if the beginning is dropped or the body is exclusive.
    pub fn join(stream: &Arc<SharedBody>, again: Option<Resume>) -> Option<Self> {
        let place = stream.take_place()?;
        Some(Self { stream: Arc::clone(stream), place, again, rest: None })
    }

    /// The only reader of an answer.
    pub fn alone(answer: Answer) -> Self {
        let stream = Arc::new(SharedBody::new(answer, None, false));
        let place = stream.take_only_place();
        Self { stream, place, again: None, rest: None }
    }

    pub fn head(&self) -> &Head {
        &self.stream.head
    }

    /// Returns the next piece; `None` at the end.
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

    /// The same, without a resume after a release.
    pub async fn turn(&self) -> Result<Turn, Lost> {
        self.stream.next(self.place).await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.leave(self.place);
    }
}

/// True if the headers sent to the client fit the new answer. An `ETag` is comparable only with the
/// same token (SPECIFICATION D3).
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

/// Prefers the token with a comparable `ETag`.
struct SameToken(TokenId);

impl Conditions for SameToken {
    fn preferred(&self) -> Option<TokenId> {
        Some(self.0)
    }

    fn with(&self, _: &Credential) -> HeaderMap {
        HeaderMap::new()
    }
}
