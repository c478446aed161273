//! The renderer of answers under one config.

use std::sync::Arc;

use crate::gateway::environment::Environment;
use crate::gateway::response::compression::CompressedForms;
use crate::gateway::response::long_texts::{LongTexts, Reading};

pub struct Responder {
    pub(super) env: Arc<Environment>,
    pub(super) compressed_forms: Arc<CompressedForms>,
    long_texts: Arc<LongTexts>,
}

impl Responder {
    /// Builds the responder of one config; the texts and compressed forms of `before` are kept.
    pub fn new(env: &Arc<Environment>, before: Option<&Self>) -> Self {
        let cache = &env.config.cache;
        let compressed_forms = before.map_or_else(
            || Arc::new(CompressedForms::new(cache.max_size)),
            |before| Arc::clone(&before.compressed_forms),
        );
        let long_texts = before.map_or_else(
            || LongTexts::new(cache.max_size),
            |before| Arc::clone(&before.long_texts),
        );
        Self { env: Arc::clone(env), compressed_forms, long_texts }
    }

    /// Begins to send a text to a client; `None` if it is short.
    pub fn reading(&self, text: &[u8], client: u32) -> Option<Reading> {
        self.long_texts.read(text, client)
    }

    pub fn compressed_forms(&self) -> &CompressedForms {
        &self.compressed_forms
    }
}
