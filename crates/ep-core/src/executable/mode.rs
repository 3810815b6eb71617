//! In which way a program runs, in words.

use std::fmt;
use std::sync::Once;

use mlx_safe::DeviceType;

/// How a cluster runs, and why so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Recorded once for all sizes of its inputs that compare alike, and replayed.
    Shapeless(String),
    /// Recorded once for the shapes of its inputs, and the contents of some, and replayed.
    Keyed(String),
    /// Lowered anew at every run.
    Eager(String),
}

impl Mode {
    /// `shapeless`, `keyed` or `eager`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shapeless(_) => "shapeless",
            Self::Keyed(_) => "keyed",
            Self::Eager(_) => "eager",
        }
    }

    /// The reason.
    pub fn why(&self) -> &str {
        match self {
            Self::Shapeless(why) | Self::Keyed(why) | Self::Eager(why) => why,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.why())
    }
}

/// What was decided about runs with new shapes or contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How such runs go on from here.
    pub mode: Mode,
    /// The shapes of all inputs.
    pub shapes: Vec<Vec<i32>>,
    /// The inputs whose contents count too, by number.
    pub read: Vec<usize>,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; inputs {:?}", self.mode, self.shapes)?;
        if self.read.is_empty() { Ok(()) } else { write!(f, ", and the values of {:?}", self.read) }
    }
}

/// Whether MLX is to fuse elementwise chains into kernels. On a GPU it compiles them itself. On a CPU it runs the system's
/// `g++`, half a second a kernel, and loads what that writes from a folder whose name anyone can guess.
pub(crate) fn fuses(device: DeviceType) -> bool {
    device == DeviceType::Gpu
}

/// Whether recordings may infer shapes where operators allow it. MLX lets them only while it compiles; on a CPU it starts
/// `g++` to see whether it can.
pub(crate) fn infers_shapes(device: DeviceType) -> bool {
    device == DeviceType::Gpu
}

/// Says once for each device what [`fuses`] decided.
pub(crate) fn announce(device: DeviceType) {
    static CPU: Once = Once::new();
    static GPU: Once = Once::new();
    let once = if device == DeviceType::Gpu { &GPU } else { &CPU };
    once.call_once(|| match fuses(device) {
        true => tracing::info!("MLX compiles elementwise chains into kernels for the {device:?}"),
        false => tracing::info!("MLX's compiler is not used on the {device:?}: it would run g++"),
    });
}
