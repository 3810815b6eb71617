//! Where the elements of a resized axis come from, worked out on the host in float32 as ONNX Runtime does.

use crate::{Decline, NodeRef};

/// From a position on the resized axis to one on the original.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNn,
    TfCropAndResize,
}

impl Coordinates {
    pub(super) fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(match node.string_or("coordinate_transformation_mode", "half_pixel")? {
            "half_pixel" => Self::HalfPixel,
            "half_pixel_symmetric" => Self::HalfPixelSymmetric,
            "pytorch_half_pixel" => Self::PytorchHalfPixel,
            "align_corners" => Self::AlignCorners,
            "asymmetric" => Self::Asymmetric,
            "tf_half_pixel_for_nn" => Self::TfHalfPixelForNn,
            "tf_crop_and_resize" => Self::TfCropAndResize,
            other => return Err(Decline::attribute("coordinate_transformation_mode", other)),
        })
    }
}

/// From a position between pixels to a pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Nearest {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
    /// Opset 10 and before: up when shrinking, cut otherwise.
    Simple,
}

impl Nearest {
    pub(super) fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(match node.string_or("nearest_mode", "round_prefer_floor")? {
            "round_prefer_floor" => Self::RoundPreferFloor,
            "round_prefer_ceil" => Self::RoundPreferCeil,
            "floor" => Self::Floor,
            "ceil" => Self::Ceil,
            other => return Err(Decline::attribute("nearest_mode", other)),
        })
    }

    fn pick(self, x: f32, shrinks: bool) -> f32 {
        match self {
            Self::RoundPreferFloor if x == x.trunc() + 0.5 => x.trunc(),
            Self::RoundPreferFloor => x.round(),
            // ONNX Runtime's rounding: the float32 just below a half goes up, too.
            Self::RoundPreferCeil => (x + 0.5).floor(),
            Self::Floor => x.floor(),
            Self::Ceil => x.ceil(),
            Self::Simple => {
                if shrinks {
                    x.ceil()
                } else {
                    x.trunc()
                }
            }
        }
    }
}

/// One axis of a resize.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) from: i32,
    pub(super) to: i32,
    pub(super) scale: f32,
    /// The part of the axis that is resized, 0 to 1: for [`Coordinates::TfCropAndResize`].
    pub(super) roi: (f32, f32),
}

/// One weighted source of every element of a resized axis.
pub(super) struct Tap {
    pub(super) sources: Vec<i32>,
    pub(super) weights: Vec<f32>,
}

impl Axis {
    /// The position on the original axis of every element.
    pub(super) fn coordinates(&self, rule: Coordinates) -> Vec<f32> {
        let (from, to, scale) = (self.from as f32, self.to as f32, self.scale);
        let (start, end) = self.roi;
        (0..self.to)
            .map(|i| i as f32)
            .map(|x| match rule {
                Coordinates::HalfPixel => (x + 0.5) / scale - 0.5,
                Coordinates::HalfPixelSymmetric => {
                    let adjustment = to / (scale * from);
                    from / 2.0 * (1.0 - adjustment) + (x + 0.5) / scale - 0.5
                }
                Coordinates::PytorchHalfPixel if self.to <= 1 => 0.0,
                Coordinates::PytorchHalfPixel => (x + 0.5) / scale - 0.5,
                Coordinates::AlignCorners if self.to == 1 => 0.0,
                Coordinates::AlignCorners => x * (from - 1.0) / (to - 1.0),
                Coordinates::Asymmetric => x / scale,
                Coordinates::TfHalfPixelForNn => (x + 0.5) / scale,
                Coordinates::TfCropAndResize if self.to > 1 => {
                    start * (from - 1.0) + x * (end - start) * (from - 1.0) / (to - 1.0)
                }
                Coordinates::TfCropAndResize => 0.5 * (start + end) * (from - 1.0),
            })
            .collect()
    }

    /// The nearest pixel of every position.
    pub(super) fn nearest(&self, positions: &[f32], mode: Nearest) -> Vec<i32> {
        positions.iter().map(|&x| self.clamp(mode.pick(x, self.scale < 1.0))).collect()
    }

    /// The two pixels around every position.
    pub(super) fn linear(&self, positions: &[f32]) -> Vec<Tap> {
        let inside = |x: &f32| x.clamp(0.0, self.from as f32 - 1.0);
        let tap = |offset: f32| Tap {
            sources: positions.iter().map(inside).map(|x| self.clamp(x.floor() + offset)).collect(),
            weights: positions.iter().map(inside).map(|x| 1.0 - (x - x.floor() - offset).abs()).collect(),
        };
        vec![tap(0.0), tap(1.0)]
    }

    /// The four pixels around every position, weighted by the cubic kernel with parameter `a` (Keys 1981).
    pub(super) fn cubic(&self, positions: &[f32], a: f32, exclude_outside: bool) -> Vec<Tap> {
        let kernel = |d: f32| match d.abs() {
            d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            d if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
            _ => 0.0,
        };
        let outside = |pixel: f32| pixel < 0.0 || pixel >= self.from as f32;
        let weight = |x: f32, offset: f32| {
            let pixel = x.floor() + offset;
            if exclude_outside && outside(pixel) { 0.0 } else { kernel(x - pixel) }
        };
        let offsets = [-1.0, 0.0, 1.0, 2.0];
        let total = |x: f32| {
            if exclude_outside { offsets.iter().map(|&o| weight(x, o)).sum::<f32>() } else { 1.0 }
        };
        let tap = |offset: f32| Tap {
            sources: positions.iter().map(|&x| self.clamp(x.floor() + offset)).collect(),
            weights: positions.iter().map(|&x| weight(x, offset) / total(x)).collect(),
        };
        offsets.map(tap).into()
    }

    fn clamp(&self, pixel: f32) -> i32 {
        (pixel as i32).clamp(0, self.from - 1)
    }
}
