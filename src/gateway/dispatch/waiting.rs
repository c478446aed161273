//! A wait as the figures see it: counted while it lasts, told when it ends, however it ends: also
//! when the client goes away.
//!
//! What is waited for is known to the [`RequestProgress`]; deciding how long is not done here.

use crate::gateway::counted::Counted;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::progress::RequestProgress;

pub struct Waiting<'w> {
    dispatcher: &'w Dispatcher,
    progress: &'w RequestProgress,
    #[expect(dead_code, reason = "counts as long as it lives")]
    one_more: Option<Counted>,
}

impl Dispatcher {
    /// Counts a request of this client as waiting until the guard is dropped.
    pub fn waits<'w>(&'w self, client: u32, progress: &'w RequestProgress) -> Waiting<'w> {
        Waiting {
            dispatcher: self,
            progress,
            one_more: self.waiting.get(client as usize).map(Counted::new),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some((by, waited)) = self.progress.released(self.dispatcher.env.clock.now()) {
            self.dispatcher.env.metrics.wait(by.name(), waited);
        }
    }
}
