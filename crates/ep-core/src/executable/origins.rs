//! Where host values of a trace come from, and which inputs it read: those belong to the key of what is recorded.

use std::cell::Cell;
use std::rc::Rc;

/// An input of a trace, and whether a value on the host that comes from it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark(Rc<Cell<bool>>);

impl Mark {
    /// Whether the recording is right for these contents only.
    pub(crate) fn is_read(&self) -> bool {
        self.0.get()
    }
}

/// The inputs of a trace that a host value comes from; none for what is the same in every run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(Option<Rc<[Mark]>>);

impl Origins {
    pub(crate) fn of(mark: &Mark) -> Self {
        Self(Some([mark.clone()].into()))
    }

    /// Those of a value that is made of others.
    pub(crate) fn union<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut marks: Vec<Mark> = Vec::new();
        for mark in all.filter_map(|origins| origins.0.as_ref()).flat_map(|marks| marks.iter()) {
            if !marks.iter().any(|known| Rc::ptr_eq(&known.0, &mark.0)) {
                marks.push(mark.clone());
            }
        }
        Self((!marks.is_empty()).then(|| marks.into()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Notes that the value was read.
    pub(crate) fn read(&self) {
        self.0.iter().flat_map(|marks| marks.iter()).for_each(|mark| mark.0.set(true));
    }
}
