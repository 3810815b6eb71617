//! The tiles that a group of threads works on: the one place where sizes choose among the forms of the kernels.
//!
//! For widths from 33 to 64 measured on one NVIDIA H200 (docs/bench/attention-gradient.md), elsewhere by analogy. Metal has
//! 32 KiB of threadgroup memory; there no form was measured.

use super::super::Sizes;
use crate::gpu::Dialect;

/// The form of a kernel, in the letters of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// BM: queries.
    pub queries: usize,
    /// BN: keys.
    pub keys: usize,
    /// EP: what the widths of keys and values are padded to.
    pub width: usize,
    /// TX: threads beside each other for scores, dQ and Y.
    pub across: usize,
    /// TX2: the same for dK and dV.
    pub across_keys: usize,
    /// W: threads of a group.
    pub threads: usize,
    /// Groups on a multiprocessor for which the CUDA compiler makes room.
    pub resident: usize,
}

/// The widest keys and values that the kernels take.
pub(super) const WIDEST: usize = 256;

/// The kernels that take tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Forward,
    GradQ,
    GradKv,
}

impl Form {
    /// For an attention of `sizes`.
    pub fn new(step: Step, sizes: &Sizes, causal: bool, dialect: Dialect) -> Self {
        let form = |width, [queries, keys]: [usize; 2], across, across_keys, threads, resident| Self {
            queries,
            keys,
            width,
            across,
            across_keys,
            threads,
            resident,
        };
        let width = sizes.width.max(sizes.value_width);
        // Under a causal mask groups have unequal work: few of them, each with much, would leave the chip half idle.
        let few = causal && sizes.batch * sizes.heads * sizes.queries.div_ceil(128) < 384;
        match (width, dialect) {
            (0..=32, Dialect::Cuda) => form(32, [64, 64], 8, 8, 128, 2),
            (33..=64, Dialect::Cuda) => match step {
                Step::Forward if few => form(64, [128, 128], 16, 16, 256, 1),
                Step::GradQ | Step::GradKv if few => form(64, [64, 64], 16, 16, 128, 2),
                Step::Forward | Step::GradQ => form(64, [128, 32], 8, 16, 128, 2),
                Step::GradKv => form(64, [64, 128], 16, 16, 256, 1),
            },
            (65..=96, Dialect::Cuda) => form(96, [64, 64], 8, 8, 128, 1),
            (97..=128, Dialect::Cuda) => form(128, [64, 64], 16, 16, 256, 1),
            (_, Dialect::Cuda) => form(256, [32, 32], 16, 16, 128, 1),
            (0..=32, Dialect::Metal) => form(32, [32, 32], 8, 8, 64, 1),
            (33..=64, Dialect::Metal) => form(64, [16, 32], 16, 8, 64, 1),
            (65..=96, Dialect::Metal) => form(96, [16, 16], 8, 8, 32, 1),
            (97..=128, Dialect::Metal) => form(128, [8, 16], 16, 16, 64, 1),
            (_, Dialect::Metal) => form(256, [4, 8], 8, 16, 32, 1),
        }
    }

    /// Bytes of threadgroup memory, as the bodies take them.
    pub fn memory(&self, step: Step) -> usize {
        let (pitch, scores) = (self.width + 4, self.queries * (self.keys + 4));
        4 * match step {
            Step::Forward => (self.queries + 2 * self.keys) * pitch + scores,
            Step::GradQ => 2 * (self.queries + self.keys) * pitch + scores,
            Step::GradKv => 2 * (self.queries + self.keys) * pitch + scores + 3 * self.queries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_their_threads_and_memory() {
        let one = Sizes { batch: 1, heads: 1, key_heads: 1, queries: 1, keys: 1, width: 1, value_width: 1 };
        for (width, heads) in (1..=WIDEST).flat_map(|width| [(width, 1), (width, 1000)]) {
            let sizes = Sizes { width, heads, ..one };
            for (dialect, most) in [(Dialect::Metal, 32 << 10), (Dialect::Cuda, 227 << 10)] {
                for step in [Step::Forward, Step::GradQ, Step::GradKv] {
                    let form = Form::new(step, &sizes, true, dialect);
                    assert!(form.width >= width && form.memory(step) <= most, "{form:?}");
                    let Form { queries, keys, across, across_keys, threads, .. } = form;
                    assert!([4, 8, 16].contains(&across) && threads % 32 == 0);
                    assert_eq!([queries % (threads / across), keys % across], [0, 0], "{form:?}");
                    assert_eq!(form.width % (4 * across), 0, "{form:?}");
                    assert_eq!(queries.min(keys) * form.width % threads, 0, "{form:?}");
                    if step == Step::GradKv {
                        assert!([4, 8, 16].contains(&across_keys));
                        assert_eq!(keys % (4 * threads / across_keys), 0, "{form:?}");
                        assert_eq!(form.width % (4 * across_keys), 0, "{form:?}");
                    }
                }
            }
        }
    }
}
