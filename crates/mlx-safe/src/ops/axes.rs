//! Which axes an operation works on.

/// One axis, several, or all of them: what a reduction takes. Negative axes count from the end.
///
/// ```
/// use mlx_safe::Array;
/// let x = Array::from_slice(&[1i32, 2, 3, 4], &[2, 2])?;
/// assert_eq!(x.sum(.., false)?.item::<i32>()?, 10);
/// assert_eq!(x.sum(0, false)?.to_vec::<i32>()?, [4, 6]);
/// assert_eq!(x.sum(&[0, 1], true)?.shape(), [1, 1]);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axes<'a> {
    /// Every axis; written `..` too.
    All,
    /// One axis.
    One(i32),
    /// These axes; with none, a reduction changes nothing.
    These(&'a [i32]),
}

impl From<std::ops::RangeFull> for Axes<'_> {
    fn from(_: std::ops::RangeFull) -> Self {
        Self::All
    }
}

impl From<i32> for Axes<'_> {
    fn from(axis: i32) -> Self {
        Self::One(axis)
    }
}

impl<'a> From<&'a [i32]> for Axes<'a> {
    fn from(axes: &'a [i32]) -> Self {
        Self::These(axes)
    }
}

impl<'a, const N: usize> From<&'a [i32; N]> for Axes<'a> {
    fn from(axes: &'a [i32; N]) -> Self {
        Self::These(axes)
    }
}

impl<'a> From<&'a Vec<i32>> for Axes<'a> {
    fn from(axes: &'a Vec<i32>) -> Self {
        Self::These(axes)
    }
}

impl Axes<'_> {
    /// The axes one by one, for an array of `rank` dimensions.
    pub(crate) fn list(self, rank: usize) -> Vec<i32> {
        match self {
            Self::All => (0..rank as i32).collect(),
            Self::One(axis) => vec![axis],
            Self::These(axes) => axes.to_vec(),
        }
    }
}
