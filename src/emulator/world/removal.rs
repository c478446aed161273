//! Cascading deletion of repositories and organisations.

use super::World;
use super::organizations::people::Owner;

impl World {
    /// Removes a repository with its content, former names and notifications.
    pub fn remove_repository(&mut self, id: u64) {
        let Some(repository) = self.repositories.remove(&id) else { return };
        self.repository_names.retain(|_, named| *named != id);
        self.former.retain(|(_, named)| *named != id);
        self.ownership.remove(&repository);
        if let Some(origin) =
            repository.fork_of.and_then(|origin| self.repositories.get_mut(&origin))
        {
            origin.forks.remove(&id);
        }
        for fork in &repository.forks {
            if let Some(fork) = self.repositories.get_mut(fork) {
                fork.fork_of = None;
            }
        }
        self.threads.retain(|_, thread| thread.repository != id);
        self.thread_of.retain(|(_, repository, _), _| *repository != id);
        for user in self.users.values_mut() {
            user.watching.remove(&id);
        }
        self.histories.remove(&id);
        self.lfs.clear(id);
        self.template_of.retain(|made, from| *made != id && *from != id);
        self.properties.values.remove(&id);
        self.collections.clear_below(&format!("repository/{id}"));
    }

    pub fn remove_organization(&mut self, id: u64) {
        let owner = Owner::Organization(id);
        let repositories: Vec<u64> =
            self.repositories_of(owner).map(|repository| repository.id).collect();
        for repository in repositories {
            self.remove_repository(repository);
        }
        if let Some(organization) = self.organizations.remove(&id) {
            self.logins.remove(&organization.login.to_lowercase());
            for hook in organization.hooks.values() {
                self.delivery_queue.forget(hook.hook_key());
            }
        }
        self.issue_fields.remove(&id);
        self.properties.definitions.remove(&id);
        // Removes the installations too: one without terms would have every permission.
        for app in &mut self.apps {
            for (installation, _) in app.installations.extract_if(.., |(_, on)| *on == id) {
                self.installation_grants.remove(&installation);
            }
        }
        self.collections.clear_below(&format!("organization/{id}"));
    }
}
