//! What is kept of a program for its calls: a bounded number, of which the least recently used goes first.
//!
//! Where every run brings a new key, traces are work for nothing: after as many without a replay as there is room for, they
//! rest for a while, and for longer each time.

use super::key::{Call, Fits};

pub(crate) struct Cache<T> {
    /// The last used one last.
    entries: Vec<T>,
    capacity: usize,
    /// Entries added since the last hit.
    unused: usize,
    /// Runs until entries are added again.
    rest: usize,
    next_rest: usize,
}

const FIRST_REST: usize = 64;
const LONGEST_REST: usize = 1 << 16;

impl<T: Fits> Cache<T> {
    /// Room for `capacity` entries, 1 at least.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: Vec::new(), capacity: capacity.max(1), unused: 0, rest: 0, next_rest: FIRST_REST }
    }

    /// The entry that fits `call`.
    pub(crate) fn find(&mut self, call: &Call<'_>) -> Option<&T> {
        let at = self.entries.iter().rposition(|entry| entry.fits(call))?;
        let entry = self.entries.remove(at);
        self.entries.push(entry);
        (self.unused, self.rest, self.next_rest) = (0, 0, FIRST_REST);
        self.entries.last()
    }

    /// Whether an entry for a new key is likely to be used. Asked once a run that found none.
    pub(crate) fn is_worthwhile(&mut self) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        if self.unused < self.capacity {
            return true;
        }
        (self.rest, self.unused) = (self.next_rest - 1, 0);
        self.next_rest = (2 * self.next_rest).min(LONGEST_REST);
        false
    }

    /// Adds an entry.
    pub(crate) fn insert(&mut self, entry: T) {
        if self.entries.len() >= self.capacity {
            self.entries.remove(0);
        }
        self.unused += 1;
        self.entries.push(entry);
    }

    /// Throws all entries away.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use mlx_safe::{Dtype, Spec};
    use onnx_graph::ElementType;

    use super::*;
    use crate::executable::key::Contents;
    use crate::io::TensorView;

    struct Entry {
        size: i32,
        contents: Contents,
        name: i32,
    }

    impl Fits for Entry {
        fn fits(&self, call: &Call<'_>) -> bool {
            call.specs[0].shape == [self.size] && self.contents.fits(call)
        }
    }

    fn with_call<R>(size: i32, data: &[u8], work: impl FnOnce(&Call<'_>) -> R) -> R {
        let view = TensorView { element: ElementType::Uint8, shape: &[data.len()], data };
        work(&Call { views: &[view], specs: vec![Spec::new(&[size], Dtype::Uint8)] })
    }

    fn find(cache: &mut Cache<Entry>, size: i32, data: &[u8]) -> Option<i32> {
        with_call(size, data, |call| cache.find(call).map(|entry| entry.name))
    }

    fn insert(cache: &mut Cache<Entry>, size: i32, data: &[u8], read: &[usize], name: i32) {
        let contents = with_call(size, data, |call| Contents::new(call, read));
        cache.insert(Entry { size, contents, name });
    }

    #[test]
    fn contents_count_where_they_were_read() {
        let mut cache = Cache::new(4);
        insert(&mut cache, 2, &[1, 2], &[0], 10);
        insert(&mut cache, 3, &[1, 2, 3], &[], 20);
        assert_eq!(find(&mut cache, 2, &[1, 2]), Some(10));
        assert_eq!(find(&mut cache, 2, &[1, 3]), None);
        assert_eq!(find(&mut cache, 3, &[9, 9, 9]), Some(20));
    }

    #[test]
    fn the_least_recently_used_goes() {
        let mut cache = Cache::new(2);
        for size in [1, 2] {
            insert(&mut cache, size, &[], &[], size);
        }
        assert_eq!(find(&mut cache, 1, &[]), Some(1));
        insert(&mut cache, 3, &[], &[], 3);
        assert_eq!([1, 2, 3].map(|size| find(&mut cache, size, &[])), [Some(1), None, Some(3)]);
        cache.clear();
        assert_eq!(find(&mut cache, 3, &[]), None);
    }

    #[test]
    fn entries_that_nobody_finds_are_not_made_for_ever() {
        let mut cache = Cache::new(3);
        let mut made = Vec::new();
        for run in 0..400 {
            if cache.is_worthwhile() {
                insert(&mut cache, run, &[], &[], run);
                made.push(run);
            }
        }
        // Three, 64 runs of rest, three, 128 of rest, three, 256 of rest.
        assert_eq!(made, [0, 1, 2, 67, 68, 69, 198, 199, 200]);
        assert_eq!(find(&mut cache, 200, &[]), Some(200));
        assert!(cache.is_worthwhile());
    }
}
