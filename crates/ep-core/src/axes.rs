//! Axes as ONNX writes them: negative ones count from the end.

use crate::LowerError;

/// `axis` of a tensor of rank `rank`, counted from the front.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, LowerError> {
    let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    match usize::try_from(from_front) {
        Ok(found) if found < rank => Ok(found),
        _ => Err(LowerError::invalid(format!("axis {axis} of a tensor of rank {rank}"))),
    }
}

/// Different axes of a tensor of rank `rank`, counted from the front, in the order given.
pub(crate) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, LowerError> {
    let mut found = Vec::with_capacity(list.len());
    for &entry in list {
        let entry = axis(entry, rank)?;
        if found.contains(&entry) {
            return Err(LowerError::invalid(format!("axes {list:?} name axis {entry} twice")));
        }
        found.push(entry);
    }
    Ok(found)
}
