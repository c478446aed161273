//! Replies that list rendered objects, and the caller's view of repositories.

use serde_json::Value;

use super::Renderer;
use crate::emulator::auth::access;
use crate::emulator::routing::{Call, Outcome, USUAL, pagination};
use crate::emulator::world::{Organization, Repository};

impl Call<'_> {
    pub fn renderer(&self) -> Renderer<'_> {
        Renderer::of(self)
    }

    pub fn sees(&self, repository: &Repository) -> bool {
        access::sees(self.world, self.caller, repository)
    }

    pub fn visible_repositories(&self) -> impl Iterator<Item = &Repository> {
        self.world.repositories.values().filter(|repository| self.sees(repository))
    }

    /// Answers with the requested page of a list, in pages of the usual size.
    #[expect(clippy::unnecessary_wraps, reason = "handlers end with this call")]
    pub fn page<'c, T>(
        &'c self,
        items: impl IntoIterator<Item = T>,
        render: impl Fn(Renderer<'c>, T) -> Value,
    ) -> Outcome {
        let items = items.into_iter().collect();
        Ok(pagination::page(self, USUAL, items, |item| render(self.renderer(), item)))
    }

    pub fn page_of_users(&self, ids: impl IntoIterator<Item = u64>) -> Outcome {
        self.page(ids, |renderer, id| renderer.user_summary(id))
    }

    pub fn page_of_organizations<'o>(
        &self,
        organizations: impl IntoIterator<Item = &'o Organization>,
    ) -> Outcome {
        self.page(organizations, |renderer, one| renderer.organization_summary(one))
    }

    /// Leaves out the repositories that the caller does not see.
    pub fn page_of_repositories<'r>(
        &self,
        repositories: impl IntoIterator<Item = &'r Repository>,
    ) -> Outcome {
        let visible = repositories.into_iter().filter(|repository| self.sees(repository));
        self.page(visible, |renderer, repository| renderer.repository(repository))
    }
}
