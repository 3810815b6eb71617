//! Operators that compute every element on its own.

use crate::op::Entry;

mod arithmetic;
mod bit_shift;
mod cast;
mod clip;
mod compare;
mod division;
mod is_inf;
mod pow;
mod unary;
mod variadic;
mod where_;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<arithmetic::Arithmetic>(),
    Entry::of::<bit_shift::BitShift>(),
    Entry::of::<cast::Cast>(),
    Entry::of::<clip::Clip>(),
    Entry::of::<compare::Compare>(),
    Entry::of::<division::Division>(),
    Entry::of::<is_inf::IsInf>(),
    Entry::of::<pow::Pow>(),
    Entry::of::<unary::Unary>(),
    Entry::of::<variadic::Variadic>(),
    Entry::of::<where_::Where>(),
];
