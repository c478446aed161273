//! A number of things that are mostly one, which needs no allocation of its own.

#[derive(Debug)]
pub(in crate::decision) struct SmallList<T> {
    first: Option<T>,
    others: Vec<T>,
}

impl<T> Default for SmallList<T> {
    fn default() -> Self {
        Self { first: None, others: Vec::new() }
    }
}

impl<T> SmallList<T> {
    pub(in crate::decision) fn push(&mut self, one: T) {
        if self.first.is_none() {
            self.first = Some(one);
        } else {
            self.others.push(one);
        }
    }

    pub(in crate::decision) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }

    pub(in crate::decision) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.others)
    }

    pub(in crate::decision) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.others.retain(&keep);
        if self.first.take_if(|first| !keep(first)).is_some() {
            self.remove_first();
        }
    }

    /// The one that is there for longest is no longer.
    pub(in crate::decision) fn remove_first(&mut self) {
        self.first = if self.others.is_empty() { None } else { Some(self.others.remove(0)) };
    }

    pub(in crate::decision) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_stay_in_their_order_whichever_leaves() {
        let mut small_list = SmallList::default();
        (0..5).for_each(|number| small_list.push(number));
        small_list.remove_first();
        small_list.retain(|number| number % 2 == 0);
        small_list.push(1);
        assert_eq!(
            (small_list.iter().copied().collect::<Vec<_>>(), small_list.len()),
            (vec![2, 4, 1], 3)
        );
        small_list.iter_mut().for_each(|number| *number += 10);
        small_list.retain(|_| false);
        assert_eq!((small_list.iter().count(), small_list.len()), (0, 0));
    }
}
