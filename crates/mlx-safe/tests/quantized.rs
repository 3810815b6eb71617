//! Products of matrices that are both packed: MLX has them on some GPUs only.
#![allow(clippy::unwrap_used)]

use mlx_safe::{Array, Device, Quantization, Stream};

#[test]
fn packed_products_on_the_cpu_are_an_answer_or_an_error() {
    Stream::default_on(Device::CPU).unwrap().scope(|| {
        let x = Array::from_slice(&[0.5f32; 64 * 64], &[64, 64]).unwrap();
        let packed = x.quantize(Quantization::Nvfp4, None).unwrap();
        let (w, scales) = (&packed[0], Some(&packed[1]));
        let plain = x.qqmm(w, scales, Quantization::Nvfp4, None, None);
        let chosen = x.gather_qqmm(w, scales, None, None, Quantization::Nvfp4, None, None, false);
        for product in [plain, chosen] {
            match product.and_then(|p| p.to_vec::<f32>()) {
                Ok(values) => assert!(values.iter().all(|v| (v - 16.0).abs() < 0.5)),
                Err(error) => assert!(error.to_string().to_lowercase().contains("qqm"), "{error}"),
            }
        }
    });
}
