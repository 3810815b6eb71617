//! Operations on arrays, grouped as MLX's documentation groups them. All run on the calling thread's current stream.

mod binary;
pub(crate) mod conv;
mod create;
mod index;
mod reduce;
mod shape;
mod sort;
mod unary;

pub use create::{arange, eye, full, linspace, zeros};
pub use index::{ScatterMode, where_};
pub use shape::{PadMode, broadcast_arrays, concatenate, einsum, stack};

/// Declares methods that wrap one mlx-c call each: `name(&self, args) => mlx_name(raw args)`.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) => $raw:ident($($pass:expr),*);)*) => {
        impl crate::Array {$(
            $(#[$doc])*
            pub fn $name(&self, $($arg: $ty),*) -> crate::Result<crate::Array> {
                crate::Stream::with_current(|stream| {
                    crate::Array::from_op(stringify!($name), |out| {
                        // SAFETY: `out` is an empty handle, every array and stream is live, and each slice outlives the
                        // call with the length that is passed beside it.
                        unsafe { mlx_sys::$raw(out, self.raw(), $($pass,)* stream) }
                    })
                })
            }
        )*}
    };
}
pub(crate) use methods;
