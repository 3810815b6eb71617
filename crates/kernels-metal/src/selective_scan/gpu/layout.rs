//! How much of the work each thread has: the one place where sizes choose among the forms of the kernels.
//!
//! Measured on one NVIDIA H200 (docs/bench/selective-scan.md). Metal gets the same rules, within 32 KiB of threadgroup memory;
//! there they were not measured.

use crate::gpu::Dialect;
use crate::selective_scan::Sizes;

/// The form of a kernel, in the letters of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// L: lanes that share a channel's states.
    pub lanes: usize,
    /// NS: states on each.
    pub states: usize,
    /// W: threads of a group.
    pub threads: usize,
    /// TILE or K: steps in threadgroup memory.
    pub tile: usize,
    /// R: steps whose intermediate values a thread holds at once.
    pub run: usize,
    /// Groups on a multiprocessor for which the CUDA compiler makes room.
    pub resident: usize,
}

const fn layout(lanes: usize, states: usize, threads: usize, tile: usize, run: usize) -> Layout {
    Layout { lanes, states, threads, tile, run, resident: 1 }
}

impl Layout {
    /// Channels of a group.
    pub fn channels(&self) -> usize {
        self.threads / self.lanes
    }

    /// Groups side by side that cover the channels.
    pub fn sides(&self, sizes: Sizes) -> usize {
        sizes.channels.div_ceil(self.channels())
    }
}

/// The most states of a channel that one launch of the forward kernel takes.
pub(super) const MOST_STATES: usize = 256;
/// The same for the gradient: more go in slices.
pub(super) const GRADIENT_STATES: usize = 32;

/// The forward kernel. Few lanes with many states each need the fewest instructions, many lanes keep the chip busy where
/// there are few channels.
pub(super) fn forward(sizes: Sizes) -> Layout {
    let many = sizes.batch * sizes.channels >= 8192;
    match sizes.states {
        0..=1 => layout(1, 1, 128, 16, 8),
        2 => layout(2, 1, 128, 32, 16),
        3..=4 => layout(4, 1, 128, 32, 16),
        5..=8 => layout(8, 1, 128, 32, 32),
        9..=16 if many => Layout { resident: 4, ..layout(4, 4, 128, 16, 16) },
        9..=16 => layout(8, 2, 128, 32, 32),
        17..=32 => layout(8, 4, 128, 32, 16),
        33..=64 => layout(16, 4, 128, 32, 16),
        65..=128 => layout(32, 4, 256, 16, 16),
        _ => layout(32, 8, 256, 8, 8),
    }
}

/// The summaries that the gradient starts from.
pub(super) fn summary(sizes: Sizes) -> Layout {
    match sizes.states {
        9..=16 => Layout { resident: 4, ..layout(4, 4, 128, 16, 16) },
        _ => forward(sizes),
    }
}

/// How the gradient kernel adds up over its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    /// FLUSH: fours of steps that are gathered before.
    pub flush: usize,
    /// TURNS: places to gather them in; with two, no thread waits for who adds up.
    pub turns: usize,
}

/// The gradient kernel. A group of many channels leaves less memory full of sums that are to be added up outside of it, a
/// small one is faster: where the steps are in one segment there is room for the sums of 32 channels.
pub(super) fn gradient(sizes: Sizes, dialect: Dialect) -> (Layout, Sums) {
    let many = sizes.batch * sizes.channels >= 32_768;
    let sums = |flush, turns| Sums { flush, turns };
    match (sizes.states, dialect) {
        (0..=8, Dialect::Cuda) => (Layout { resident: 2, ..layout(4, 2, 256, BLOCK, 16) }, sums(4, 2)),
        (0..=8, Dialect::Metal) => (layout(4, 2, 128, BLOCK, 16), sums(2, 2)),
        (9..=16, Dialect::Cuda) if many => {
            (Layout { resident: 3, ..layout(4, 4, 128, BLOCK, 8) }, sums(2, 2))
        }
        (9..=16, Dialect::Cuda) => (Layout { resident: 2, ..layout(4, 4, 256, BLOCK, 4) }, sums(1, 2)),
        (9..=16, Dialect::Metal) => (layout(4, 4, 128, BLOCK, 8), sums(1, 2)),
        (_, Dialect::Cuda) => (layout(8, 4, 256, BLOCK, 8), sums(1, 2)),
        (_, Dialect::Metal) => (layout(8, 4, 256, BLOCK, 32), sums(1, 1)),
    }
}

/// Steps between the states that the gradient keeps: T B D N / 32 of them.
pub(super) const BLOCK: usize = 32;

/// The steps as segments that run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    /// Steps in each but the last.
    pub length: usize,
    /// How many there are.
    pub count: usize,
}

impl Segments {
    /// About `wanted` segments of a multiple of `unit` steps, of which there are `least` in each.
    fn new(steps: usize, wanted: usize, unit: usize, least: usize) -> Self {
        let wanted = wanted.min(steps / least).max(1);
        let length = steps.div_ceil(wanted).next_multiple_of(unit);
        Self { length, count: steps.div_ceil(length).max(1) }
    }

    /// For the forward kernel. A segment costs every exponential a second time: worth it only where most of the chip would
    /// be idle.
    pub fn forward(sizes: Sizes, layout: Layout) -> Self {
        let simd_groups = (sizes.batch * sizes.channels * layout.lanes).div_ceil(32);
        let wanted = if simd_groups >= 256 { 1 } else { 1024 / simd_groups.max(1) };
        Self::new(sizes.steps, wanted, layout.tile, 64)
    }

    /// For the gradient, whose second set of exponentials is there anyway. Every segment takes memory for 2 B D N numbers.
    pub fn gradient(sizes: Sizes, layout: Layout) -> Self {
        let groups = layout.sides(sizes) * sizes.batch;
        Self::new(sizes.steps, 256usize.div_ceil(groups.max(1)), BLOCK, 4 * BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes([steps, batch, channels, states]: [usize; 4]) -> Sizes {
        Sizes { steps, batch, channels, states }
    }

    #[test]
    fn every_state_has_a_lane() {
        for states in 1..=MOST_STATES {
            for channels in [1, 10_000] {
                let layout = forward(sizes([1, 1, channels, states]));
                assert!(layout.lanes * layout.states >= states, "{states}");
                assert!(layout.lanes <= 32 && layout.channels() * layout.lanes == layout.threads);
            }
        }
        for (states, dialect) in (1..=GRADIENT_STATES).flat_map(|n| [(n, Dialect::Metal), (n, Dialect::Cuda)])
        {
            let (layout, sums) = gradient(sizes([1, 1, 1, states]), dialect);
            assert!(layout.lanes * layout.states >= states, "{states}");
            assert!(layout.tile % layout.run == 0 && layout.run % (4 * sums.flush) == 0);
            assert_eq!(layout.tile / 4 / sums.flush % sums.turns, 0, "a turn in every tile");
            assert!(layout.states <= 32 / layout.lanes, "sums over channels need as many of them");
        }
    }

    #[test]
    fn threadgroup_memory_suffices() {
        for states in 1..=MOST_STATES {
            let of = sizes([1, 1, 10_000, states]);
            for layout in [forward(of), forward(sizes([1, 1, 1, states])), summary(of)] {
                assert!(super::super::forward_memory(layout) <= 32 << 10, "{layout:?}");
            }
        }
        for states in 1..=GRADIENT_STATES {
            let of = sizes([1, 1, 1, states]);
            assert!(super::super::adjoint_memory(summary(of)) <= 32 << 10, "{states}");
            // A multiprocessor of CUDA's has 100 KiB at least, from compute capability 8 on; a group may have 99.
            for (dialect, most) in [(Dialect::Metal, 32 << 10), (Dialect::Cuda, 99 << 10)] {
                for of in [of, sizes([1, 1, 100_000, states])] {
                    let (layout, sums) = gradient(of, dialect);
                    assert!(super::super::gradient_memory(layout, sums) <= most, "{states} {dialect:?}");
                }
            }
        }
    }

    #[test]
    fn segments_cover_the_steps() {
        for steps in [1, 63, 64, 442, 8192] {
            for [batch, channels] in [[1, 1], [1, 1536], [16, 256]] {
                let of = sizes([steps, batch, channels, 16]);
                for segments in [
                    Segments::forward(of, forward(of)),
                    Segments::gradient(of, gradient(of, Dialect::Cuda).0),
                ] {
                    assert!(segments.length * segments.count >= steps);
                    assert!(segments.length * (segments.count - 1) < steps);
                    assert_eq!(segments.length % 16, 0);
                }
            }
        }
    }

    #[test]
    fn full_chips_are_not_cut_up() {
        for shape in [[442, 16, 256, 16], [256, 442, 256, 16], [2048, 1, 1536, 16], [2048, 8, 2048, 16]] {
            assert_eq!(Segments::forward(sizes(shape), forward(sizes(shape))).count, 1);
        }
        assert!(Segments::forward(sizes([8192, 1, 64, 16]), forward(sizes([8192, 1, 64, 16]))).count > 16);
    }
}
