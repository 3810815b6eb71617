//! Operations on arrays, grouped as MLX's documentation groups them. All run on the calling thread's current stream.

mod arithmetic;
mod axes;
mod binary;
pub(crate) mod bounds;
mod combine;
mod compare;
pub(crate) mod conv;
mod conv_nd;
mod create;
mod index;
mod linear;
mod pick;
mod quantized;
mod reduce;
mod scatter;
mod shape;
mod sort;
mod unary;
mod update;

pub use axes::Axes;
pub use combine::{Indexing, broadcast_arrays, concatenate, depends, meshgrid, stack};
pub use create::{
    arange, bartlett, blackman, eye, full, hamming, hanning, identity, linspace, linspace_endpoint, ones,
    tri, zeros,
};
pub use index::where_;
pub use linear::einsum;
pub use pick::{Pick, Picks};
pub use quantized::Quantization;
pub use scatter::ScatterMode;
pub use shape::PadMode;
pub use sort::Side;

/// One mlx-c call on the current stream that makes an array: `op!("name", mlx_name(arguments))`.
macro_rules! op {
    ($name:expr, $raw:ident($($pass:expr),* $(,)?)) => {
        crate::Stream::with_current(|stream| {
            crate::Array::from_op($name, |out| {
                // SAFETY: `out` is an empty handle; every array, vector and stream is live or the null that mlx-c allows
                // there; each slice and string outlives the call, a slice with the length that is passed beside it.
                unsafe { mlx_sys::$raw(out, $($pass,)* stream) }
            })
        })
    };
}

/// The same for a call that makes several arrays.
macro_rules! op_vec {
    ($name:expr, $raw:ident($($pass:expr),* $(,)?)) => {
        crate::Stream::with_current(|stream| {
            crate::handle::VectorArray::from_op($name, |out| {
                // SAFETY: as for `op!`; `out` is an empty vector.
                unsafe { mlx_sys::$raw(out, $($pass,)* stream) }
            })
        })
    };
}

/// The same for a call that makes two arrays.
macro_rules! op_pair {
    ($name:expr, $raw:ident($($pass:expr),* $(,)?)) => {
        crate::Stream::with_current(|stream| {
            crate::Array::pair_from_op($name, |first, second| {
                // SAFETY: as for `op!`; both results are empty handles.
                unsafe { mlx_sys::$raw(first, second, $($pass,)* stream) }
            })
        })
    };
}

/// Declares methods that wrap one mlx-c call each: `name(&self, args) => mlx_name(raw args)`.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) => $raw:ident($($pass:expr),*);)*) => {
        impl crate::Array {$(
            $(#[$doc])*
            pub fn $name(&self, $($arg: $ty),*) -> crate::Result<crate::Array> {
                $crate::ops::op!(stringify!($name), $raw(self.raw(), $($pass),*))
            }
        )*}
    };
}

/// Declares functions that wrap one mlx-c call each.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) => $raw:ident($($pass:expr),*);)*) => {$(
        $(#[$doc])*
        pub fn $name($($arg: $ty),*) -> crate::Result<crate::Array> {
            $crate::ops::op!(stringify!($name), $raw($($pass),*))
        }
    )*};
}

/// Declares methods over [`Axes`]: mlx-c has a function for all axes, one for one and one for several.
macro_rules! by_axes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) => $all:ident, $one:ident, $these:ident;)*) => {
        impl crate::Array {$(
            $(#[$doc])*
            pub fn $name<'a>(
                &self,
                axes: impl Into<crate::Axes<'a>>,
                $($arg: $ty),*
            ) -> crate::Result<crate::Array> {
                const NAME: &str = stringify!($name);
                match axes.into() {
                    crate::Axes::All => $crate::ops::op!(NAME, $all(self.raw(), $($arg),*)),
                    crate::Axes::One(axis) => $crate::ops::op!(NAME, $one(self.raw(), axis, $($arg),*)),
                    crate::Axes::These(axes) => {
                        $crate::ops::op!(NAME, $these(self.raw(), axes.as_ptr(), axes.len(), $($arg),*))
                    }
                }
            }
        )*}
    };
}

/// Declares methods along one axis or, with `None`, over the flattened array.
macro_rules! by_axis {
    ($($(#[$doc:meta])* $name:ident[$axis:ident]($($arg:ident: $ty:ty),*)
        => $flat:ident($($flat_pass:expr),*), $along:ident($($pass:expr),*);)*) => {
        impl crate::Array {$(
            $(#[$doc])*
            pub fn $name(&self, $($arg: $ty),*) -> crate::Result<crate::Array> {
                match $axis.into() {
                    None => $crate::ops::op!(stringify!($name), $flat(self.raw(), $($flat_pass),*)),
                    Some($axis) => $crate::ops::op!(stringify!($name), $along(self.raw(), $($pass),*)),
                }
            }
        )*}
    };
}

pub(crate) use {by_axes, by_axis, functions, methods, op, op_pair, op_vec};
