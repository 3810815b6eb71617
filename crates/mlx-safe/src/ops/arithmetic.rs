//! Rust's operators. They return a `Result`, as every operation does: `(&(&x * 2.0f32)? + &y)?`.

use std::ops;

use crate::{Array, Element, Result};

macro_rules! operators {
    ($($trait:ident::$operator:ident => $method:ident),* $(,)?) => {$(
        impl ops::$trait<&Array> for &Array {
            type Output = Result<Array>;

            fn $operator(self, other: &Array) -> Result<Array> {
                self.$method(other)
            }
        }

        /// The scalar takes part with the type it has in Rust; MLX promotes as for two arrays.
        impl<T: Element> ops::$trait<T> for &Array {
            type Output = Result<Array>;

            fn $operator(self, other: T) -> Result<Array> {
                self.$method(&Array::scalar(other))
            }
        }
    )*};
}

operators! {
    Add::add => add,
    Sub::sub => subtract,
    Mul::mul => multiply,
    Div::div => divide,
    Rem::rem => remainder,
    BitAnd::bitand => bitwise_and,
    BitOr::bitor => bitwise_or,
    BitXor::bitxor => bitwise_xor,
    Shl::shl => left_shift,
    Shr::shr => right_shift,
}

impl ops::Neg for &Array {
    type Output = Result<Array>;

    fn neg(self) -> Result<Array> {
        self.negative()
    }
}
