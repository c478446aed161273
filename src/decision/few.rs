//! A number of things that are mostly one, which needs no allocation of its own.

#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    others: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, others: Vec::new() }
    }
}

impl<T> Few<T> {
    pub(super) fn push(&mut self, one: T) {
        if self.first.is_none() {
            self.first = Some(one);
        } else {
            self.others.push(one);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.others)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.others.retain(&keep);
        if self.first.take_if(|first| !keep(first)).is_some() {
            self.remove_first();
        }
    }

    /// The one that is there for longest is no longer.
    pub(super) fn remove_first(&mut self) {
        self.first = if self.others.is_empty() { None } else { Some(self.others.remove(0)) };
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }
}
