//! Splitting arrays among tasks.

/// Each task's rows of an array (T, B, D), in the order of time: a task has one of the B and a block of the D. Tasks come in
/// the order of B, then of blocks.
pub(crate) fn pieces<T>(array: &mut [T], batch: usize, channels: usize, block: usize) -> Vec<Vec<&mut [T]>> {
    let steps = array.len() / (batch * channels).max(1);
    let tasks = batch * channels.div_ceil(block);
    let mut pieces: Vec<Vec<&mut [T]>> = (0..tasks).map(|_| Vec::with_capacity(steps)).collect();
    for time in array.chunks_mut((batch * channels).max(1)) {
        let rows = time.chunks_mut(channels).flat_map(|row| row.chunks_mut(block));
        pieces.iter_mut().zip(rows).for_each(|(task, row)| task.push(row));
    }
    pieces
}
