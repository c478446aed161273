//! Pages of lists among stored answers: where a change on one page may move what another shows.

use http::{HeaderMap, StatusCode};

use crate::decision::cache::key::CacheKey;
use crate::decision::cache::pagination::{Page, PageSizes, continues_list};
use crate::gateway::address::path_of;
use crate::gateway::cache::lookup::CacheRequest;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::store::Entry;
use crate::gateway::url_rewrite::map::Body;

impl ReadCache {
    /// Compares a fetched answer with the stored one and records a change.
    pub fn note_change(
        &self,
        key: &CacheKey,
        cache_request: &CacheRequest,
        before: Option<&Entry>,
        after: &Entry,
    ) {
        let target = &cache_request.job.request.target;
        let is_news = match before {
            Some(before) => !before.has_same_content(after),
            None => continues_list(target, after.body.text()),
        };
        if after.status() == StatusCode::OK && is_news {
            let now = self.env.clock.now();
            self.pagination.changed(path_of(target), key, now);
            if let Some(other) = self.path_in_links(after) {
                self.pagination.changed(other, key, now);
            }
        }
    }

    /// True if a 304 would not prove the entry current.
    pub fn may_hide_next(&self, key: &CacheKey, entry: &Entry) -> bool {
        if entry.stored.page == Page::Other {
            return false;
        }
        let path = path_of(key.path_and_query());
        let seen = || {
            let paths = [Some(path), self.path_in_links(entry)];
            paths
                .into_iter()
                .flatten()
                .filter_map(|path| self.pagination.latest_change_by_others(path, key))
                .max()
        };
        entry.stored.page.may_hide_next(
            entry.requested_at(),
            self.store.trust_by_changes(path, entry.requested_at()),
            seen,
        )
    }

    /// The path in a list's page links, which may differ: `/repositories/7/issues`.
    fn path_in_links<'e>(&self, entry: &'e Entry) -> Option<&'e str> {
        let link = std::str::from_utf8(entry.head.get("link")?).ok()?;
        let reference = link.trim_start().strip_prefix('<')?.split('>').next()?;
        self.env.urls.own_path(reference).map(path_of)
    }
}

pub fn page_of(
    cache_request: &CacheRequest,
    status: StatusCode,
    headers: &HeaderMap,
    body: &Body,
) -> Page {
    if status != StatusCode::OK {
        return Page::Other;
    }
    let endpoint = cache_request.job.route.endpoint;
    let sizes = PageSizes { default: endpoint.per_page_default, max: endpoint.per_page_max };
    Page::of(&cache_request.job.request.target, sizes, headers, body.text())
}
