//! The renderer of answers under one config.

use std::sync::Arc;

use crate::gateway::environment::Environment;
use crate::gateway::response::compression::CompressedForms;

pub struct Responder {
    pub(super) env: Arc<Environment>,
    pub(super) compressed_forms: Arc<CompressedForms>,
}

impl Responder {
    /// Builds the responder of one config; the compressed forms of `before` are kept.
    pub fn new(env: &Arc<Environment>, before: Option<&Self>) -> Self {
        let cache = &env.config.cache;
        let compressed_forms = before.map_or_else(
            || Arc::new(CompressedForms::new(cache.max_size, cache.max_object)),
            |before| Arc::clone(&before.compressed_forms),
        );
        Self { env: Arc::clone(env), compressed_forms }
    }

    pub fn compressed_forms(&self) -> &CompressedForms {
        &self.compressed_forms
    }
}
