//! The renderer of answers under one config.

use crate::gateway::cache::store::Entry;
use crate::gateway::environment::Environment;
use crate::gateway::response::compression::CompressedForms;
use crate::gateway::response::form::Form;
use bytes::Bytes;
use std::sync::Arc;

/// Renders stored, fetched and kept answers as a client sees them.
pub struct Responder {
    pub(super) env: Arc<Environment>,
    /// Compressed forms of stored answers.
    pub compressed_forms: Arc<CompressedForms>,
}

impl Responder {
    /// Builds the responder of one config; compressed forms go on from `before`.
    pub fn new(env: &Arc<Environment>, before: Option<&Self>) -> Self {
        let cache = &env.config.cache;
        let compressed_forms = before.map_or_else(
            || Arc::new(CompressedForms::new(cache.max_size, cache.max_object)),
            |before| Arc::clone(&before.compressed_forms),
        );
        Self { env: Arc::clone(env), compressed_forms }
    }

    /// A stored answer's body in gzip, made beside the runtime's workers when it is large; `None`:
    /// it is sent as it is.
    pub async fn gzipped(&self, entry: &Entry, form: &Form<'_>) -> Option<Bytes> {
        self.compressed_forms.gzipped(&self.env, entry, form).await
    }
}
