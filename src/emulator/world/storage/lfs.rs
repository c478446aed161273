//! Stored Git LFS objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use ring::digest::{SHA256, digest};

use crate::emulator::http::{ApiError, hex};

const STORED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Uploaded objects, by repository and SHA-256.
#[derive(Debug, Default)]
pub struct Storage {
    objects: BTreeMap<(u64, String), Bytes>,
    bytes: usize,
}

impl Storage {
    /// Stores an object under its hash and returns the hash; fails when the storage is full.
    pub fn put(&mut self, repository: u64, object: Bytes) -> Result<String, ApiError> {
        let oid = hex(digest(&SHA256, &object).as_ref());
        let key = (repository, oid.clone());
        if !self.objects.contains_key(&key) {
            ApiError::unless_spammed("Object", self.objects.len())?;
            if self.bytes.saturating_add(object.len()) > STORED_BYTES_MAX {
                let message = "there is no place for more objects";
                return Err(ApiError::invalid("Object", "size", message));
            }
            self.bytes += object.len();
            self.objects.insert(key, object);
        }
        Ok(oid)
    }

    pub fn clear(&mut self, repository: u64) {
        let bytes = &mut self.bytes;
        self.objects.retain(|(of, _), object| {
            let stays = *of != repository;
            *bytes = bytes.saturating_sub(if stays { 0 } else { object.len() });
            stays
        });
    }

    #[cfg(test)]
    pub fn holds(&self, repository: u64) -> bool {
        self.objects.keys().any(|(of, _)| *of == repository)
    }

    pub fn get(&self, repository: u64, oid: &str) -> Option<&Bytes> {
        self.objects.get(&(repository, oid.to_owned()))
    }
}
