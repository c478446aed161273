//! A wait as the figures see it: counted while it lasts, told when it ends, however it ends: also
//! when the client goes away.
//!
//! What is waited for is known to the [`Effort`]; deciding how long is not done here.

use crate::gateway::counted::Counted;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::progress::Effort;

/// A request that waits, or may have to.
pub struct Waiting<'w> {
    dispatcher: &'w Dispatcher,
    effort: &'w Effort,
    #[expect(dead_code, reason = "counts as long as it lives")]
    one_more: Option<Counted>,
}

impl Dispatcher {
    /// A request of a client begins to wait, until what is returned is dropped.
    pub fn waits<'w>(&'w self, client: u32, effort: &'w Effort) -> Waiting<'w> {
        Waiting {
            dispatcher: self,
            effort,
            one_more: self.waiting.get(client as usize).map(Counted::new),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some((by, waited)) = self.effort.released(self.dispatcher.env.clock.now()) {
            self.dispatcher.env.metrics.wait(by.name(), waited);
        }
    }
}
