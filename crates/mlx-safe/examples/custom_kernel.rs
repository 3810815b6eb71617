//! The same operation, a x + y, as a Metal kernel, as a CUDA kernel, or, where there is neither, as a host op:
//! `cargo run -p mlx-safe --example custom_kernel`.

use mlx_safe::{Array, CudaKernel, Device, Dtype, HostOp, KernelSource, Launch, MetalKernel, Result, Stream};

const METAL: &str = "
    uint i = thread_position_in_grid.x;
    if (i < uint(x_shape[0])) {
        out[i] = a[0] * x[i] + y[i];
    }
";

const CUDA: &str = "
    auto i = cooperative_groups::this_grid().thread_rank();
    if (i < x_shape[0]) {
        out[i] = a[0] * x[i] + y[i];
    }
";

fn source(body: &str) -> KernelSource {
    KernelSource::new("axpy", body).inputs(&["a", "x", "y"]).outputs(&["out"])
}

/// `inputs` are a (1), x (n) and y (n), float32.
fn axpy(inputs: &[&Array]) -> Result<Array> {
    let n = inputs[1].dim(0)?;
    // A grid has at least one thread; the kernels check their index.
    let launch = Launch::new([n.max(1), 1, 1], [256, 1, 1]).output(inputs[1].into());
    let mut outputs = if MetalKernel::is_available() {
        println!("on Metal");
        let kernel = MetalKernel::new(&source(METAL))?;
        // SAFETY: the body reads and writes at its index only, below x's size, which is y's and the output's too; every
        // element is written by its own thread.
        Stream::default_on(Device::GPU)?.scope(|| unsafe { kernel.launch(&launch, inputs) })?
    } else if CudaKernel::is_available() {
        println!("on CUDA");
        let kernel = CudaKernel::new(&source(CUDA))?;
        // SAFETY: as above.
        Stream::default_on(Device::GPU)?.scope(|| unsafe { kernel.launch(&launch, inputs) })?
    } else {
        println!("neither Metal nor CUDA here: on the CPU, as a host op");
        host_axpy().call(inputs)?
    };
    Ok(outputs.remove(0))
}

fn host_axpy() -> HostOp {
    HostOp::new(
        "axpy",
        |inputs| Ok(vec![inputs[1].clone()]),
        |inputs, outputs| {
            let (a, x, y) =
                (inputs[0].as_slice::<f32>()?, inputs[1].as_slice::<f32>()?, inputs[2].as_slice::<f32>()?);
            for ((out, x), y) in outputs[0].as_mut_slice::<f32>()?.iter_mut().zip(x).zip(y) {
                *out = a[0] * x + y;
            }
            Ok(())
        },
    )
}

fn main() -> Result<()> {
    let n = 1000;
    let x = mlx_safe::arange(0.0, n.into(), 1.0, Dtype::Float32)?;
    let y = mlx_safe::full(&[n], &Array::scalar(1.0f32))?;
    let out = axpy(&[&Array::from_slice(&[2.0f32], &[1])?, &x, &y])?.to_vec::<f32>()?;
    let wrong = out.iter().enumerate().filter(|(i, out)| **out != 2.0 * *i as f32 + 1.0).count();
    println!("2 x + 1 of 0, 1, 2, ... is {:?} ...; {wrong} of {n} are wrong", &out[..4]);
    if wrong > 0 { Err(mlx_safe::Error::Closure("the kernel is wrong".into())) } else { Ok(()) }
}
