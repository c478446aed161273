//! Looks for changed files of secrets (SPECIFICATION, "Configuration").
//!
//! Files are compared by their metadata, so that hundreds cost little; a symbolic link is followed,
//! and by that its exchange is seen. A file counts as changed when it has rested for one pause,
//! because it may be written piece by piece.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::config::{Config, SecretFile, Stamp};

/// Pause between two looks. Chosen here: a change is in force within five seconds.
const PAUSE: Duration = Duration::from_secs(2);

/// Looks at the files of the config in force again and again, until there is none. `read_again`
/// gets the files that have changed.
pub async fn keep_looking(
    config: impl Fn() -> Option<Arc<Config>>,
    read_again: impl Fn(&[PathBuf]) + Clone + Send + 'static,
) {
    let mut looks = Looks::default();
    loop {
        sleep(PAUSE).await;
        let Some(config) = config() else { return };
        let read_again = read_again.clone();
        // Network file systems may hang.
        let look = tokio::task::spawn_blocking(move || {
            let changed = looks.changed(&config.secret_files);
            drop(config);
            if !changed.is_empty() {
                read_again(&changed);
            }
            looks
        });
        looks = look.await.unwrap_or_default();
    }
}

/// The states of the files at the last look.
#[derive(Default)]
struct Looks(HashMap<PathBuf, Option<Stamp>>);

impl Looks {
    /// Returns the files that have changed since they were read, and not since the last look.
    fn changed(&mut self, files: &[SecretFile]) -> Vec<PathBuf> {
        let mut present = HashMap::with_capacity(files.len());
        for file in files {
            present.entry(file.path.clone()).or_insert_with_key(|path| Stamp::of(path));
        }
        let is_changed = |file: &&SecretFile| {
            let now = &present[&file.path];
            *now != file.stamp && self.0.get(&file.path) == Some(now)
        };
        let mut changed: Vec<_> =
            files.iter().filter(is_changed).map(|file| file.path.clone()).collect();
        changed.sort();
        changed.dedup();
        self.0 = present;
        changed
    }
}
