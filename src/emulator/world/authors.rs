//! Commit authors, and the head and base commits of pull requests.

use std::sync::Arc;

use super::World;
use super::git::history::{Author, Commit, Draft, History, Tree};
use super::git::objects::person_name;
use super::repositories::issues::Issue;
use super::repositories::repository::Repository;

impl World {
    pub fn author(&self, user: u64) -> Author {
        let login = self.login(user);
        let name = self.users.get(&user).and_then(|user| person_name(&user.name));
        let name = name.or_else(|| person_name(login));
        let address: String = login
            .chars()
            .filter(|c| !c.is_control() && !c.is_whitespace() && !matches!(c, '<' | '>'))
            .collect();
        Author {
            user,
            name: name.unwrap_or_else(|| "ghost".to_owned()),
            email: format!("{address}@example.com"),
        }
    }

    /// A missing branch is represented by one commit on top of the first, with the same files.
    pub fn pull_head(&self, history: &History, pull: &Issue) -> Option<Commit> {
        if let Some(head) = history.pull_source(pull) {
            return Some(head.clone());
        }
        let root = history.commit(&history.root)?;
        let draft = Draft {
            parent: Some(root.sha.clone()),
            // Independent of titles and names, because the commit must not change.
            message: format!("Propose #{}", pull.number),
            author: self.author(self.machine_user),
            at: pull.created_at,
            files: Tree::new(),
        };
        Some(draft.commit_of((*root.files).clone(), (*root.blobs).clone()))
    }

    pub fn history(&self, repository: &Repository) -> Arc<History> {
        let begun = || Arc::new(History::begun(repository, self.author(self.machine_user)));
        self.histories.get(&repository.id).cloned().unwrap_or_else(begun)
    }

    /// A fork begins with the commits and branches of its origin.
    pub fn copy_history(&mut self, origin: u64, fork: u64) {
        if let Some(origin) = self.repositories.get(&origin) {
            let history = self.history(origin);
            self.histories.insert(fork, history);
        }
    }

    /// Lists the other repositories of a fork's network: parent, siblings and own forks.
    pub fn network(&self, id: u64) -> Vec<u64> {
        let Some(repository) = self.repositories.get(&id) else { return Vec::new() };
        let parent = repository.fork_of.and_then(|parent| self.repositories.get(&parent));
        let siblings = parent.into_iter().flat_map(|parent| parent.forks.iter().copied());
        let all =
            repository.fork_of.into_iter().chain(siblings).chain(repository.forks.iter().copied());
        all.filter(|other| *other != id && self.repositories.contains_key(other)).collect()
    }

    /// Returns the repository with the source branch of a pull request; `None` for a lost fork.
    pub fn pull_repository<'a>(
        &'a self,
        repository: &'a Repository,
        pull: &Issue,
    ) -> Option<&'a Repository> {
        match &pull.fork {
            Some(fork) => self.repositories.get(&fork.repository),
            None => Some(repository),
        }
    }

    /// Returns the history for a change; `None` without such a repository.
    pub fn history_mut(&mut self, repository: u64) -> Option<&mut History> {
        let begun = self.history(self.repositories.get(&repository)?);
        Some(Arc::make_mut(self.histories.entry(repository).or_insert(begun)))
    }
}
