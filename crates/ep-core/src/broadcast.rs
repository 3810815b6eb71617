//! NumPy's broadcasting on the host, and the check for operators that broadcast by attribute.

use ndarray::{ArrayD, IxDyn, Zip};

use crate::host::HOST_LIMIT;
use crate::{Decline, LowerError, NodeRef};

/// The shape that all of `shapes` broadcast to.
///
/// # Errors
/// If two sizes differ and neither is 1.
pub(crate) fn shape(shapes: &[&[usize]]) -> Result<Vec<usize>, LowerError> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut dims = vec![1; rank];
    for shape in shapes {
        for (dim, &n) in dims[rank - shape.len()..].iter_mut().zip(*shape) {
            match (*dim, n) {
                (_, 1) => {}
                (1, n) => *dim = n,
                (d, n) if d == n => {}
                _ => return Err(LowerError::invalid(format!("shapes {shapes:?} do not broadcast"))),
            }
        }
    }
    Ok(dims)
}

/// `f` of every pair of elements; `None` if there are too many for the host.
pub(crate) fn zip<A: Copy, B: Copy, C>(
    a: &ArrayD<A>,
    b: &ArrayD<B>,
    f: impl Fn(A, B) -> C,
) -> Result<Option<ArrayD<C>>, LowerError> {
    let dims = shape(&[a.shape(), b.shape()])?;
    if dims.iter().product::<usize>() > HOST_LIMIT {
        return Ok(None);
    }
    let (a, b) = (a.broadcast(IxDyn(&dims)), b.broadcast(IxDyn(&dims)));
    Ok(a.zip(b).map(|(a, b)| Zip::from(&a).and(&b).map_collect(|&a, &b| f(a, b))))
}

/// Declines operators from before opset 7, which broadcast by the attributes `broadcast` and `axis`.
pub(crate) fn by_numpy_rules(node: &NodeRef<'_>) -> Result<(), Decline> {
    if node.version() >= 7 { Ok(()) } else { Err(Decline::form("it broadcasts by the rules before opset 7")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_as_in_numpy() {
        assert_eq!(shape(&[&[2, 1], &[3]]).unwrap(), [2, 3]);
        assert_eq!(shape(&[&[], &[1, 0], &[4, 1]]).unwrap(), [4, 0]);
        assert!(shape(&[&[2], &[3]]).is_err());
    }
}
