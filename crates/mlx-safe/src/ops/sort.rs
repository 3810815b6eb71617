//! Sorting.

use super::methods;

methods! {
    /// Sorted along `axis`, ascending.
    sort(axis: i32) => mlx_sort_axis(axis);
    /// Indices (uint32) that sort along `axis`, ascending and stable.
    argsort(axis: i32) => mlx_argsort_axis(axis);
    /// The `k` largest along `axis`, in no order.
    topk(k: i32, axis: i32) => mlx_topk_axis(k, axis);
}
