//! Arguments that point outside: what safe code may ask for and MLX does not check. Each call is an answer or an error; run the
//! file under a memory checker too. Expected values follow the documented rule: a negative index counts from the end, and one
//! that is then out of range becomes the nearest that is in it.
#![allow(clippy::unwrap_used)]

use mlx_safe::{Array, ConvGeometry, Dtype, Element, Pick, Quantization, Result, ScatterMode};
use mlx_safe::{compile_shapeless, concatenate, fast, fft, random};

/// 0, 1, 2, ... as float32.
fn count(shape: &[i32]) -> Array {
    let n: i32 = shape.iter().product();
    Array::from_slice(&(0..n).map(|i| i as f32).collect::<Vec<_>>(), shape).unwrap()
}

/// The same indices twice: at hand, and as the result of an operation.
fn indices(values: &[i64], shape: &[i32], dtype: Dtype) -> [Array; 2] {
    let given = Array::from_slice(values, shape).unwrap().astype(dtype).unwrap();
    given.eval().unwrap();
    let computed = given.add(&given.zeros_like().unwrap()).unwrap();
    [given, computed]
}

fn values(array: Result<Array>) -> Vec<f32> {
    array.and_then(|a| a.to_vec()).unwrap()
}

const WILD: [i64; 8] = [0, 2, 3, 1000, -1, -3, -4, i32::MIN as i64];
/// What the rule makes of `WILD` for an axis of 3.
const TAMED: [f32; 8] = [0.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0];

#[test]
fn reading_by_index_stays_inside() {
    let x = count(&[3]);
    for dtype in [Dtype::Int32, Dtype::Int64] {
        for at in indices(&WILD, &[8], dtype) {
            assert_eq!(values(x.take(&at, None)), TAMED);
            assert_eq!(values(x.take(&at, 0)), TAMED);
            assert_eq!(values(x.take_along_axis(&at, 0)), TAMED);
            assert_eq!(values(x.gather_single(&at, 0, &[1])), TAMED);
            // Of two at a time only the first two places have room.
            let pairs = values(x.gather(std::slice::from_ref(&at), &[0], &[2]));
            let first: Vec<f32> = pairs.iter().step_by(2).copied().collect();
            assert_eq!(first, TAMED.map(|i| i.min(1.0)));
        }
    }
    for at in indices(&[0, 2, 3, 127, -1, -128], &[6], Dtype::Int8) {
        assert_eq!(values(x.take(&at, None)), [0.0, 2.0, 2.0, 2.0, 2.0, 0.0]);
    }
    for dtype in [Dtype::Uint8, Dtype::Uint16, Dtype::Uint32, Dtype::Uint64] {
        for at in indices(&[0, 2, 3, 255], &[4], dtype) {
            assert_eq!(values(x.take(&at, None)), [0.0, 2.0, 2.0, 2.0]);
        }
    }
    let float = Array::from_slice(&[0.5f32], &[1]).unwrap();
    let truth = Array::from_slice(&[true], &[1]).unwrap();
    assert!(x.take(&float, None).is_err() && x.take_along_axis(&float, 0).is_err());
    assert!(x.take(&truth, None).is_err() && x.gather_single(&truth, 0, &[1]).is_err());
    let nothing = mlx_safe::zeros(&[0], Dtype::Float32).unwrap();
    let at = Array::from_slice(&[0i32], &[1]).unwrap();
    assert!(nothing.take(&at, 0).is_err() && nothing.take_along_axis(&at, 0).is_err());
    assert!(x.gather_single(&at, 0, &[4]).is_err() && x.gather_single(&at, 5, &[1]).is_err());
}

#[test]
fn writing_by_index_stays_inside() {
    let (x, one) = (count(&[3]), Array::scalar(1.0f32));
    let added = [0.0 + 4.0, 1.0, 2.0 + 4.0];
    for at in indices(&WILD, &[8], Dtype::Int32) {
        let ones = one.broadcast_to(&[8, 1]).unwrap();
        assert_eq!(values(x.scatter_single(ScatterMode::Add, &at, &ones, 0)), added);
        assert_eq!(values(x.scatter(ScatterMode::Add, std::slice::from_ref(&at), &ones, &[0])), added);
        assert_eq!(values(x.scatter_add_axis(&at, &one.broadcast_to(&[8]).unwrap(), 0)), added);
        for mode in [ScatterMode::Set, ScatterMode::Prod, ScatterMode::Max, ScatterMode::Min] {
            assert_eq!(values(x.scatter_single(mode, &at, &ones, 0))[1], 1.0);
        }
        // Pairs begin at the first two places.
        let pairs = one.broadcast_to(&[8, 2]).unwrap();
        assert_eq!(values(x.scatter_single(ScatterMode::Add, &at, &pairs, 0)), [4.0, 9.0, 6.0]);
    }
    for at in indices(&[7, -9], &[2], Dtype::Int32) {
        assert_eq!(values(x.put_along_axis(&at, &count(&[2]), 0)), [1.0, 1.0, 0.0]);
    }
    let truth = Array::from_slice(&[true], &[1]).unwrap();
    assert!(x.scatter_single(ScatterMode::Set, &truth, &count(&[1, 1]), 0).is_err());
    assert!(x.scatter(ScatterMode::Set, &[], &count(&[1]), &[0]).is_err());
    assert!(x.scatter_single(ScatterMode::Set, &truth, &one, 0).is_err());
}

#[test]
fn dynamic_slices_stay_inside() {
    let x = count(&[3, 4]);
    for (start, first) in [([0, 0], 0.0), ([9, 9], 6.0), ([-1, -2], 6.0), ([-99, 1], 1.0), ([1, 3], 6.0)] {
        for dtype in [Dtype::Int32, Dtype::Int8, Dtype::Int64] {
            for start in indices(&start, &[2], dtype) {
                let part = values(x.slice_dynamic(&start, &[0, 1], &[2, 2]));
                assert_eq!(part, [first, first + 1.0, first + 4.0, first + 5.0]);
                let written = x.slice_update_dynamic(&count(&[2, 2]), &start, &[0, 1]);
                let part = written.and_then(|w| w.slice_dynamic(&start, &[0, 1], &[2, 2]));
                assert_eq!(values(part), [0.0, 1.0, 2.0, 3.0]);
            }
        }
    }
    let start = Array::from_slice(&[1i32], &[1]).unwrap();
    assert_eq!(values(x.slice_update_dynamic(&count(&[4]), &start, &[0]))[4..8], [0.0, 1.0, 2.0, 3.0]);
    assert!(x.slice_dynamic(&start, &[0], &[4, 4]).is_err());
    assert!(x.slice_dynamic(&start, &[2], &[1, 1]).is_err());
    assert!(x.slice_dynamic(&start, &[0, 1], &[1, 1]).is_err());
    assert!(x.slice_dynamic(&start, &[0], &[-1, 1]).and_then(|a| a.to_vec::<f32>()).is_err());
    assert!(x.slice_update_dynamic(&count(&[1, 1, 1]), &start, &[0]).is_err());
    assert!(x.slice_update_dynamic(&count(&[4, 4]), &start, &[0]).and_then(|a| a.eval()).is_err());
}

#[test]
fn products_of_chosen_matrices_stay_inside() {
    let (a, b) = (count(&[3, 1, 2]), count(&[2, 2, 1]));
    for at in indices(&[0, 99, -1, -99], &[4], Dtype::Int32) {
        let rows = values(
            a.gather_mm(&b, Some(&at), None, false).or_else(|_| a.gather_mm(&b, Some(&at), Some(&at), false)),
        );
        // (0,1) (0,1), (4,5) (2,3), (4,5) (2,3), (0,1) (0,1)
        assert_eq!(rows, [1.0, 23.0, 23.0, 1.0]);
    }
    let weights = count(&[2, 4, 32]).multiply(&Array::scalar(0.01f32)).unwrap();
    let how = Quantization::Affine { group_size: 32, bits: 8 };
    let q = weights.quantize(how, None).unwrap();
    let x = count(&[3, 1, 32]);
    for at in indices(&[1, 99, -1, -99], &[4], Dtype::Int32) {
        let product = x.gather_qmm(&q[0], &q[1], q.get(2), Some(&at), Some(&at), true, how, false);
        assert_eq!(product.and_then(|p| p.to_vec::<f32>()).unwrap().len(), 16);
    }
    let (m, n) = (count(&[2, 3]), count(&[3, 2]));
    for segments in indices(&[0, 99, 2, 1, -1, 99, 1, 2], &[4, 2], Dtype::Int32) {
        let parts = values(m.segmented_mm(&n, &segments));
        assert_eq!(parts[..4], [10.0, 13.0, 28.0, 40.0]);
        assert_eq!(parts[4..8], [0.0; 4]);
        // The last column times the last row; the second times the second.
        assert_eq!(parts[8..], [8.0, 10.0, 20.0, 25.0, 2.0, 3.0, 8.0, 12.0]);
    }
    assert!(m.segmented_mm(&n, &Array::scalar(1u32)).is_err());
    let whole = Array::from_slice(&[0u32, 3], &[1, 2]).unwrap();
    assert!(
        m.segmented_mm(&count(&[2, 2]), &whole).is_err() && m.segmented_mm(&count(&[3]), &whole).is_err()
    );
}

#[test]
fn classes_of_a_cross_entropy_stay_inside() {
    let logits = Array::from_slice(&[0.0f32, 9.0, 0.0, 9.0], &[2, 2]).unwrap();
    for targets in indices(&[7, -1], &[2], Dtype::Int32) {
        assert!(values(fast::cross_entropy(&logits, &targets)).iter().all(|loss| *loss < 1e-3));
    }
}

#[test]
fn packed_weights_fit_or_are_errors() {
    let packed = |n, k| mlx_safe::zeros(&[n, k], Dtype::Uint32).unwrap();
    let scales = |n, k| mlx_safe::zeros(&[n, k], Dtype::Float32).unwrap();
    let affine = |group_size, bits| Quantization::Affine { group_size, bits };
    let x = count(&[1, 64]);
    for (w, s, how) in [
        (packed(4, 8), scales(4, 2), affine(0, 4)),
        (packed(4, 8), scales(4, 2), affine(32, 0)),
        (packed(4, 8), scales(4, 2), affine(32, -4)),
        (packed(4, 8), scales(1, 2), affine(32, 4)),
        (packed(4, 8), scales(4, 1), affine(32, 4)),
        (packed(4, 8), scales(4, 2).flatten(0, 1).unwrap(), affine(32, 4)),
        (packed(4, 8).flatten(0, 1).unwrap(), scales(1, 2).flatten(0, 1).unwrap(), affine(32, 4)),
        (packed(4, 8), scales(1, 2), Quantization::Mxfp4),
    ] {
        let biases = matches!(how, Quantization::Affine { .. }).then_some(&s);
        assert!(w.dequantize(&s, biases, how, None, None).and_then(|a| a.eval()).is_err(), "{s:?} {how:?}");
        let product = x.quantized_matmul(&w, &s, biases, true, how);
        assert!(product.and_then(|a| a.eval()).is_err(), "{s:?} {how:?}");
    }
    assert!(x.quantize(affine(32, 7), None).is_err());
}

#[test]
fn windows_and_strides_of_zero_are_errors() {
    let (x, w) = (count(&[1, 4, 1]), count(&[1, 2, 1]));
    let fine = ConvGeometry {
        stride: vec![1],
        padding_low: vec![0],
        padding_high: vec![0],
        kernel_dilation: vec![1],
        input_dilation: vec![1],
        groups: 1,
        flip: false,
    };
    assert_eq!(values(x.conv_general(&w, &fine)), [1.0, 2.0, 3.0]);
    for wrong in [0, -1, i32::MIN] {
        assert!(x.conv_general(&w, &ConvGeometry { stride: vec![wrong], ..fine.clone() }).is_err());
        assert!(x.conv_general(&w, &ConvGeometry { kernel_dilation: vec![wrong], ..fine.clone() }).is_err());
        assert!(x.conv_general(&w, &ConvGeometry { input_dilation: vec![wrong], ..fine.clone() }).is_err());
        assert!(x.conv_general(&w, &ConvGeometry { groups: wrong, ..fine.clone() }).is_err());
    }
    for padding in [i32::MAX, i32::MIN, -4] {
        let wide = ConvGeometry { padding_low: vec![padding], padding_high: vec![padding], ..fine.clone() };
        assert!(x.conv_general(&w, &wide).and_then(|y| y.eval()).is_err(), "{padding}");
    }
    let x = count(&[4]);
    assert!(x.slice(&[0], &[4], &[0]).is_err());
    assert!(x.slice_update(&x, &[0], &[4], &[0]).is_err());
    assert_eq!(values(x.slice(&[1], &[4], &[i32::MAX])), [1.0]);
    assert_eq!(values(x.slice(&[3], &[-5], &[i32::MIN])), [3.0]);
    assert_eq!(values(x.slice(&[i32::MIN], &[i32::MAX], &[1])), [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn views_stay_inside() {
    let x = count(&[2, 3]);
    assert_eq!(values(x.as_strided(&[2, 2], &[3, 1], 1)), [1.0, 2.0, 4.0, 5.0]);
    assert!(x.as_strided(&[2], &[1], 5).is_err() && x.as_strided(&[1], &[1], 6).is_err());
    assert!(x.as_strided(&[2], &[-1], 0).is_err() && x.as_strided(&[2], &[i64::MAX], 0).is_err());
    assert!(x.as_strided(&[1], &[1], usize::MAX).is_err() && x.as_strided(&[-1], &[1], 0).is_err());
    assert!(x.index((2, ..)).is_err() && x.slice_axis(0, Pick::every(-1, ..)).is_err());
}

#[test]
fn sizes_beyond_reason_are_errors() {
    let (x, big) = (Array::scalar(1.0f32), i32::MAX);
    let huge = x.broadcast_to(&[1 << 21, 1 << 21, 1 << 22]).unwrap();
    assert!(huge.to_vec::<f32>().is_err() && huge.add(&huge).and_then(|y| y.eval()).is_err());
    // 2^64 + 4 elements, as far as 64 bits can tell 4.
    let wrapped = x.broadcast_to(&[(1 << 30) + 1, 1 << 30, 4, 4]).unwrap();
    assert!(wrapped.to_vec::<f32>().is_err());
    for array in [
        mlx_safe::zeros(&[big, big], Dtype::Float32),
        mlx_safe::ones(&[big, big, 4, 4], Dtype::Int8),
        mlx_safe::zeros(&[-1], Dtype::Float32),
        x.broadcast_to(&[big, 64]).and_then(|y| y.exp()),
        x.broadcast_to(&[-3]),
        count(&[3]).tile(&[big]),
        count(&[3]).repeat(big, 0),
        count(&[3]).tile(&[-1]),
        count(&[3]).repeat(-1, 0),
        count(&[4]).pad(&[0], &[big], &[big], &x, mlx_safe::PadMode::Constant),
        count(&[4]).pad(&[0], &[big], &[big], &x, mlx_safe::PadMode::Edge),
        count(&[3]).diag(big),
        mlx_safe::eye(big, big, 0, Dtype::Float32),
        mlx_safe::arange(0.0, 1e300, 1.0, Dtype::Float32),
        mlx_safe::linspace(0.0, 1.0, -5, Dtype::Float32),
        random::uniform(&x, &x, &[big, big], Dtype::Float32, None),
        fft::fft(&count(&[4]), Some(-1), 0, fft::FftNorm::Backward),
        concatenate(&[x.broadcast_to(&[big]).unwrap(), x.broadcast_to(&[big]).unwrap()], 0),
    ] {
        assert!(array.as_ref().map_or(true, |array| array.to_vec::<f32>().is_err()), "{array:?}");
    }
}

/// Calls whose answer does not matter: they end.
#[test]
fn odd_numbers_end_nothing() {
    let x = count(&[2, 3]);
    for n in [0, 1, -1, 2, -2, 3, -3, 4, 7, -7, 64, i32::MAX, i32::MIN] {
        let results = [
            x.partition(n, 1),
            x.partition(n, None),
            x.argpartition(n, 1),
            x.topk(n, 1),
            x.topk(n, None),
            x.roll(&[n], 1),
            x.roll(&[n], ..),
            x.diagonal(n, 0, 1),
            x.trace_axes(n, 0, 1, Dtype::Float32),
            x.tril(n),
            x.triu(n),
            x.diag(n),
            x.diff(n.min(9), 1),
            x.sum(n, false),
            x.sort(n),
            x.cumsum(n, false, true),
            x.argmax(n, false),
            x.expand_dims(n),
            x.squeeze(n),
            x.flatten(n, n),
            x.unflatten(1, &[n, -1]),
            x.reshape(&[n, -1]),
            x.swapaxes(n, 0),
            x.moveaxis(0, n),
            x.tensordot_axis(&x, n),
            x.var(1, false, n),
            x.round(n),
            fast::rope(&x.reshape(&[1, 2, 3]).unwrap(), n, false, Some(1e4), 1.0, n, None),
            x.hadamard_transform(None),
            x.block_masked_mm(&x.t().unwrap(), n, None, None, None),
            x.number_of_elements(&[n], false, Dtype::Float32),
            fft::fft(&x, Some(n.min(1000)), 1, fft::FftNorm::Ortho),
            fft::irfft(&x, Some(n.min(1000)), n, fft::FftNorm::Ortho),
            fft::fftfreq(n.min(1000), 0.0),
            random::bits(&[3], n, None),
            random::permutation_arange(n.min(1000), None),
            random::split_num(&random::key(1).unwrap(), n.min(1000)),
            random::split_num(&x, 2),
            mlx_safe::bartlett(n.min(1000)),
            mlx_safe::hanning(n.min(1000)),
            mlx_safe::tri(3, 3, n, Dtype::Float32),
            mlx_safe::eye(n.min(100), 3, n, Dtype::Float32),
        ];
        results.into_iter().flatten().for_each(|array| drop(array.eval()));
        for parts in
            [x.split(&[n, 1], 1), x.split(&[1, n], 1), x.split_equal(n.min(1000), 1), x.split(&[0], n)]
        {
            let _ = parts.map(|parts| mlx_safe::eval(&parts));
        }
    }
}

/// What a function compiled without shapes carries along from its first call.
#[test]
fn shapeless_functions_stay_inside() {
    type Function = fn(&[Array]) -> Result<Vec<Array>>;
    let small = |x: &Array, f: Function| {
        let f = compile_shapeless(f).unwrap();
        let _ = f.apply(&[count(&[8])]).map(|y| mlx_safe::eval(&y));
        f.apply(std::slice::from_ref(x)).and_then(|y| y[0].to_vec::<f32>())
    };
    let last = |x: &[Array]| Ok(vec![x[0].take(&Array::from_slice(&[7i32, 99], &[2])?, 0)?]);
    for n in [2, 8, 20] {
        let found = small(&count(&[n]), last);
        let expected = [(n - 1).min(7) as f32, (n - 1) as f32];
        assert!(found.as_ref().map_or(true, |found| *found == expected), "{n}: {found:?}");
    }
    let calls: [Function; 5] = [
        |x| Ok(vec![x[0].gather_single(&Array::from_slice(&[0i32], &[1])?, 0, &[6])?]),
        |x| Ok(vec![x[0].slice_dynamic(&Array::from_slice(&[2i32], &[1])?, &[0], &[6])?]),
        |x| Ok(vec![x[0].slice(&[2], &[8], &[1])?]),
        |x| Ok(vec![x[0].reshape(&[2, 4])?]),
        |x| Ok(vec![x[0].as_strided(&[6], &[1], 2)?]),
    ];
    for call in calls {
        assert!(small(&count(&[2]), call).is_err());
    }
}

/// Quotients truncate as Rust's do, and are 0 by 0; remainders have the divisor's sign.
#[test]
fn integers_divide_by_anything() {
    fn check<T: Element + PartialEq + std::fmt::Debug>(a: &[T], b: &[T], quotients: &[T], remainders: &[T]) {
        let n = a.len() as i32;
        let (x, y) = (Array::from_slice(a, &[n]).unwrap(), Array::from_slice(b, &[n]).unwrap());
        let computed = y.add(&y.zeros_like().unwrap()).unwrap();
        for y in [&y, &computed] {
            let both = x.divmod(y).unwrap();
            for quotient in [x.floor_divide(y).unwrap(), both.0] {
                assert_eq!(quotient.to_vec::<T>().unwrap(), quotients);
            }
            for remainder in [x.remainder(y).unwrap(), both.1] {
                assert_eq!(remainder.to_vec::<T>().unwrap(), remainders);
            }
        }
    }
    macro_rules! signed {
        ($($t:ident),*) => {$(
            let (a, b) = ([7, -7, 7, $t::MIN, $t::MIN, 5, 0], [2, 2, 0, -1, 0, -1, 0]);
            check::<$t>(&a, &b, &[3, -3, 0, $t::MIN, 0, -5, 0], &[1, 1, 0, 0, 0, 0, 0]);
        )*};
    }
    macro_rules! unsigned {
        ($($t:ident),*) => {$(
            check::<$t>(&[7, 7, $t::MAX, $t::MAX], &[2, 0, 1, $t::MAX], &[3, 0, $t::MAX, 1], &[1, 0, 0, 0]);
        )*};
    }
    signed!(i8, i16, i32, i64);
    unsigned!(u8, u16, u32, u64);
    check(&[true, true, false], &[true, false, false], &[true, false, false], &[false; 3]);

    let both = |x: &[Array]| Ok(vec![x[0].floor_divide(&x[1])?, (&x[0] % &x[1])?]);
    let a = Array::from_slice(&[7, i32::MIN, -7], &[3]).unwrap();
    let b = Array::from_slice(&[0, -1, 2], &[3]).unwrap();
    let both = compile_shapeless(both).unwrap().apply(&[a, b]).unwrap();
    assert_eq!(both[0].to_vec::<i32>().unwrap(), [0, i32::MIN, -3]);
    assert_eq!(both[1].to_vec::<i32>().unwrap(), [0, 0, 1]);

    let (bytes, wide) = (Array::scalar(-7i8), Array::from_slice(&[0i64, -1, 2], &[3]).unwrap());
    assert_eq!(bytes.floor_divide(&wide).unwrap().to_vec::<i64>().unwrap(), [0, 7, -3]);
    assert_eq!((&wide % 0i64).unwrap().to_vec::<i64>().unwrap(), [0; 3]);
    assert_eq!(values(&wide / 0i64)[1..], [f32::NEG_INFINITY, f32::INFINITY]);
    assert_eq!(values(Array::scalar(1.0f32).floor_divide(&Array::scalar(0.0f32))), [f32::INFINITY]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = count(&[2, 3]);
    let many = vec![1; 70000];
    assert!(Array::scalar(1.0f32).reshape(&many).is_err() && Array::from_slice(&[1.0f32], &many).is_err());
    assert!(
        Array::from_bytes(Dtype::Int8, &many, &[1]).is_err() && mlx_safe::ones(&many, Dtype::Int8).is_err()
    );
    assert!(Array::scalar(1.0f32).broadcast_to(&[1; 65]).is_err());
    assert_eq!(values(mlx_safe::ones(&[1; 64], Dtype::Float32).and_then(|y| y.add(&y))), [2.0]);
    assert_eq!(Array::from_slice::<f32>(&[], &[i32::MAX, i32::MAX, i32::MAX, 0]).unwrap().size(), 0);

    assert!(x.roll(&[1], &[0, 1]).is_err() && x.roll(&[1, 2], &[0]).is_err());
    let pad =
        |axes: &[i32]| x.pad(axes, &[1, 1], &[0, 0], &Array::scalar(0.0f32), mlx_safe::PadMode::Constant);
    assert!(x.pad_symmetric(1, &count(&[5]), mlx_safe::PadMode::Constant).is_err());
    assert!(mlx_safe::depends(&[], &[]).unwrap().is_empty());
    assert!(mlx_safe::depends(&[], std::slice::from_ref(&x)).unwrap().is_empty());
    assert_eq!(mlx_safe::depends(std::slice::from_ref(&x), &[]).unwrap()[0].shape(), [2, 3]);
    assert!(pad(&[0, 0]).is_err() && pad(&[1, -1]).is_err() && pad(&[0, -1]).is_ok());
    assert!(x.reshape(&[-2, -3]).is_err() && x.reshape(&[-1, -1]).is_err() && x.reshape(&[-6]).is_err());
    assert!(x.unflatten(1, &[-1, -3]).is_err());
    let start = Array::from_slice(&[0i32], &[1]).unwrap();
    assert!(
        x.slice_dynamic(&start, &[0], &[-1, 3]).is_err() && x.slice_dynamic(&start, &[0], &[1, -3]).is_err()
    );
    assert!(mlx_safe::einsum("i\u{e9},\u{e9}j->ij", &[x.clone(), x.t().unwrap()]).is_err());
    for kth in [3, -4, 99, i32::MIN, i32::MAX] {
        assert!(x.partition(kth, 1).is_err() && x.argpartition(kth, 1).is_err());
    }
    assert_eq!(values(count(&[3]).partition(-1, 0))[2], 2.0);
    assert_eq!(x.diff(i32::MAX, 1).unwrap().shape(), [2, 0]);
    assert_eq!(values(x.diff(2, 1)), [0.0, 0.0]);
}

#[test]
fn diagonals_far_outside_are_all_or_nothing() {
    let (all, none) = ([1.0; 6], [0.0; 6]);
    let x = mlx_safe::ones(&[2, 3], Dtype::Float32).unwrap();
    for far in [3, 4, i32::MAX - 1, i32::MAX] {
        for below in [-2, -3, i32::MIN + 1, i32::MIN] {
            assert_eq!(values(mlx_safe::tri(2, 3, far, Dtype::Float32)), all);
            assert_eq!(values(mlx_safe::tri(2, 3, below, Dtype::Float32)), none);
            assert_eq!(values(mlx_safe::eye(2, 3, far, Dtype::Float32)), none);
            assert_eq!(values(mlx_safe::eye(2, 3, below, Dtype::Float32)), none);
            assert_eq!(values(x.tril(far)), all);
            assert_eq!(values(x.tril(below)), none);
            assert_eq!(values(x.triu(far)), none);
            assert_eq!(values(x.triu(below)), all);
        }
    }
    assert_eq!(values(mlx_safe::tri(2, 3, -1, Dtype::Float32)), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
}
