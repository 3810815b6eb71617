//! Reading parts by index and range: `x.index((0, 1..3, ..))`.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::error::argument;
use crate::{Array, Result};

/// What [`Array::index`] takes of one axis. Negative positions count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// One position; the axis goes. Written `3`.
    At(i32),
    /// Positions from `start` to `stop`, every `step`-th. Written `1..3`, or [`Pick::every`].
    Range {
        /// The first position.
        start: i32,
        /// The position after the last; `None` for the end.
        stop: Option<i32>,
        /// Steps from one to the next, 1 at least.
        step: i32,
    },
    /// A new axis of size 1.
    NewAxis,
    /// All of as many axes as the other picks leave over. At most one.
    Rest,
}

impl Pick {
    /// Every `step`-th position of `range`.
    pub fn every(step: i32, range: impl Into<Pick>) -> Self {
        match range.into() {
            Self::Range { start, stop, .. } => Self::Range { start, stop, step },
            other => other,
        }
    }
}

const fn range(start: i32, stop: Option<i32>) -> Pick {
    Pick::Range { start, stop, step: 1 }
}

/// The position after an included last one: after -1 there is none to name.
fn after(last: i32) -> Option<i32> {
    if last == -1 { None } else { last.checked_add(1) }
}

macro_rules! picks {
    ($($ty:ty: $from:ident => $pick:expr;)*) => {$(
        impl From<$ty> for Pick {
            fn from($from: $ty) -> Self {
                $pick
            }
        }

        impl Picks for $ty {
            fn picks(self) -> Vec<Pick> {
                vec![self.into()]
            }
        }
    )*};
}

picks! {
    i32: at => Self::At(at);
    RangeFull: _all => range(0, None);
    Range<i32>: r => range(r.start, Some(r.end));
    RangeFrom<i32>: r => range(r.start, None);
    RangeTo<i32>: r => range(0, Some(r.end));
    RangeInclusive<i32>: r => range(*r.start(), after(*r.end()));
    RangeToInclusive<i32>: r => range(0, after(r.end));
}

/// One pick, a tuple of up to six, or a slice: one entry an axis, the axes not named whole.
pub trait Picks {
    /// The picks in order.
    fn picks(self) -> Vec<Pick>;
}

impl Picks for Pick {
    fn picks(self) -> Vec<Pick> {
        vec![self]
    }
}

impl Picks for &[Pick] {
    fn picks(self) -> Vec<Pick> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        impl<$($name: Into<Pick>),+> Picks for ($($name,)+) {
            #[allow(non_snake_case)]
            fn picks(self) -> Vec<Pick> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    )*};
}

tuples! {
    A; A B; A B C; A B C D; A B C D E; A B C D E F;
}

impl Array {
    /// A part by position and range, axis by axis; a view where MLX can make one.
    ///
    /// ```
    /// use mlx_safe::{Array, Pick, arange, Dtype};
    /// let x = arange(0.0, 24.0, 1.0, Dtype::Int32)?.reshape(&[2, 3, 4])?;
    /// assert_eq!(x.index((1, 0, ..))?.to_vec::<i32>()?, [12, 13, 14, 15]);
    /// assert_eq!(x.index((Pick::Rest, -1))?.shape(), [2, 3]);
    /// assert_eq!(x.index((.., 1.., Pick::every(2, ..)))?.shape(), [2, 2, 2]);
    /// assert!(x.index(2).is_err());
    /// # Ok::<(), mlx_safe::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are more picks than axes, a position or range leaves its axis, or a step is below 1.
    pub fn index(&self, picks: impl Picks) -> Result<Array> {
        let mut picks = picks.picks();
        let named = picks.iter().filter(|p| matches!(p, Pick::At(_) | Pick::Range { .. })).count();
        if named > self.ndim() || picks.iter().filter(|p| **p == Pick::Rest).count() > 1 {
            return argument("index", format!("{picks:?} of an array of {self}"));
        }
        let left = std::iter::repeat_n(range(0, None), self.ndim() - named);
        let at = picks.iter().position(|p| *p == Pick::Rest);
        picks.splice(at.map_or(picks.len()..picks.len(), |at| at..at + 1), left);

        let (mut start, mut stop, mut step) = (Vec::new(), Vec::new(), Vec::new());
        let (mut gone, mut new, mut kept) = (Vec::new(), Vec::new(), 0);
        for pick in picks {
            let axis = start.len();
            if !matches!(pick, Pick::NewAxis) {
                let (first, after, by) = resolve(pick, self.shape()[axis])?;
                start.push(first);
                stop.push(after);
                step.push(by);
            }
            match pick {
                Pick::NewAxis => new.push(kept),
                Pick::At(_) => {
                    gone.push(axis as i32);
                    continue;
                }
                _ => {}
            }
            kept += 1;
        }
        let mut part = self.slice(&start, &stop, &step)?;
        if !gone.is_empty() {
            part = part.squeeze(&gone)?;
        }
        if new.is_empty() { Ok(part) } else { part.expand_dims(&new) }
    }

    /// One range or position of `axis`, all of the others.
    ///
    /// # Errors
    /// If there is no such axis, or the pick leaves it.
    pub fn slice_axis(&self, axis: i32, pick: impl Into<Pick>) -> Result<Array> {
        self.dim(axis)?;
        let axis = if axis < 0 { axis + self.ndim() as i32 } else { axis };
        let mut picks = vec![range(0, None); axis as usize];
        picks.push(pick.into());
        self.index(&picks[..])
    }
}

/// (start, stop, step) of a position or range on an axis of size `n`.
fn resolve(pick: Pick, n: i32) -> Result<(i32, i32, i32)> {
    let wrap = |at: i32| if at < 0 { at + n } else { at };
    match pick {
        Pick::At(at) if (0..n).contains(&wrap(at)) => Ok((wrap(at), wrap(at) + 1, 1)),
        Pick::Range { start, stop, step } => {
            let (first, after) = (wrap(start), stop.map_or(n, wrap));
            if first < 0 || first > after || after > n || step < 1 {
                return argument("index", format!("{pick:?} of an axis of size {n}"));
            }
            Ok((first, after, step))
        }
        _ => argument("index", format!("{pick:?} of an axis of size {n}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, arange};

    #[test]
    fn picks_as_numpy_does() {
        let x = arange(0.0, 24.0, 1.0, Dtype::Int32).unwrap().reshape(&[2, 3, 4]).unwrap();
        let read = |part: Result<Array>| {
            let part = part.unwrap();
            (part.shape().to_vec(), part.to_vec::<i32>().unwrap())
        };
        assert_eq!(read(x.index((-1, 1..=1, ..2))), (vec![1, 2], vec![16, 17]));
        assert_eq!(read(x.index((0, .., Pick::every(3, ..)))), (vec![3, 2], vec![0, 3, 4, 7, 8, 11]));
        assert_eq!(read(x.index((Pick::NewAxis, 0, Pick::Rest, 1))), (vec![1, 3], vec![1, 5, 9]));
        assert_eq!(read(x.index((1, 2, 3))), (vec![], vec![23]));
        assert_eq!(read(x.index((.., -1.., 3..))), (vec![2, 1, 1], vec![11, 23]));
        assert_eq!(read(x.slice_axis(-1, ..=-1)).0, [2, 3, 4]);
        assert_eq!(read(x.slice_axis(1, 2..2)).0, [2, 0, 4]);
        assert_eq!(read(x.slice_axis(1, 0)).0, [2, 4]);
    }

    #[test]
    fn picks_that_leave_the_array_are_errors() {
        let x = arange(0.0, 6.0, 1.0, Dtype::Int32).unwrap().reshape(&[2, 3]).unwrap();
        for picks in [(2, 0), (-3, 0), (0, 3), (i32::MAX, 0), (i32::MIN, 0)] {
            assert!(x.index(picks).is_err(), "{picks:?}");
        }
        assert!(x.index(1..4).is_err() && x.index((0, -1..1)).is_err() && x.index((0, 0, 0)).is_err());
        assert!(x.index((Pick::Rest, Pick::Rest)).is_err() && x.index(Pick::every(0, ..)).is_err());
        assert!(x.slice_axis(2, ..).is_err() && x.slice_axis(-3, ..).is_err());
    }
}
