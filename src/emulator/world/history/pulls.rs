//! Who makes commits, and the commits that pulls are about.

use super::{Author, Commit, Draft, History};
use crate::emulator::git_objects::person_name;
use crate::emulator::world::{Issue, Repository, World};

impl World {
    /// A user as the author of a commit that is made now.
    pub fn author(&self, user: u64) -> Author {
        let login = self.login(user);
        let name = self
            .users
            .get(&user)
            .and_then(|user| person_name(&user.name))
            .or_else(|| person_name(login));
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

    /// The commit that a pull wants to have merged: the newest of its branch. A branch that was
    /// never pushed, or is gone, stands for one commit on top of the repository's first, with the
    /// same files.
    pub fn pull_head(&self, history: &History, pull: &Issue) -> Option<Commit> {
        if let Some(head) = pull.pull_from.as_deref().and_then(|branch| history.head(branch)) {
            return Some(head.clone());
        }
        let root = history.commit(&history.root)?;
        // A title or a name may change, this commit may not.
        let message = format!("Propose #{}", pull.number);
        let author = self.author(self.machine_user);
        let draft = Draft {
            parent: Some(root.sha.clone()),
            message,
            author,
            at: pull.created_at,
            files: super::Tree::new(),
        };
        Some(draft.commit_of((*root.files).clone(), (*root.blobs).clone()))
    }
}

impl History {
    /// The commit that a pull is to be merged into.
    pub fn pull_base(&self, repository: &Repository, pull: &Issue) -> Option<&Commit> {
        let into = pull.pull_into.as_ref().unwrap_or(&repository.default_branch);
        self.head(into).or_else(|| self.tip(repository))
    }
}
