//! An operation that MLX lacks, written in Rust: the exact median of every row, with a derivative, in a compiled function.
//! `cargo run -p mlx-safe --example host_op`.

use mlx_safe::{Array, HostOp, Result, Spec, compile, grad};

/// The median of every row of a (rows, columns) float32 array with an odd number of columns, as (rows).
fn median() -> Result<HostOp> {
    /// Which column holds the median of `row`.
    fn middle(row: &[f32]) -> usize {
        let mut columns: Vec<usize> = (0..row.len()).collect();
        columns.sort_by(|&i, &j| row[i].total_cmp(&row[j]));
        columns[row.len() / 2]
    }
    // The derivative goes to the one element that is the median.
    let back = HostOp::new(
        "median's derivative",
        |inputs| Ok(vec![inputs[0].clone()]),
        |inputs, outputs| {
            let columns = inputs[0].shape()[1] as usize;
            let rows = inputs[0].as_slice::<f32>()?.chunks(columns);
            let gradients = outputs[0].as_mut_slice::<f32>()?.chunks_mut(columns);
            for ((row, cotangent), gradient) in rows.zip(inputs[1].as_slice::<f32>()?).zip(gradients) {
                gradient[middle(row)] = *cotangent;
            }
            Ok(())
        },
    );
    HostOp::new(
        "median",
        |inputs| match inputs[0].shape[..] {
            [rows, columns] if columns % 2 == 1 => Ok(vec![Spec::new(&[rows], inputs[0].dtype)]),
            _ => Err(format!("wants an odd number of columns, not {:?}", inputs[0].shape).into()),
        },
        |inputs, outputs| {
            let columns = inputs[0].shape()[1] as usize;
            let rows = inputs[0].as_slice::<f32>()?.chunks(columns);
            for (row, out) in rows.zip(outputs[0].as_mut_slice::<f32>()?) {
                *out = row[middle(row)];
            }
            Ok(())
        },
    )
    .with_vjp(move |primals, cotangents, _| back.call(&[&primals[0], &cotangents[0]]))
}

fn main() -> Result<()> {
    let x = Array::from_slice(&[3.0f32, 1.0, 2.0, -5.0, 40.0, 4.0], &[2, 3])?;
    let op = median()?;
    let medians = op.call(&[&x])?.remove(0);
    println!("medians of the rows: {:?}", medians.to_vec::<f32>()?);

    let squares = grad(|x| op.call(&[&x[0]])?[0].square()?.sum(&[0], false), &[0]);
    println!(
        "gradient of the sum of their squares: {:?}",
        squares(std::slice::from_ref(&x))?[0].to_vec::<f32>()?
    );

    let inside = op.clone();
    let doubled = compile(move |x| Ok(vec![inside.call(&[&x[0].add(&x[0])?])?.remove(0)]))?;
    println!("compiled, of twice the rows: {:?}", doubled.apply(&[x])?[0].to_vec::<f32>()?);

    let error = op.call(&[&Array::from_slice(&[1.0f32, 2.0], &[1, 2])?]).map(drop);
    println!("an input that does not fit: {}", error.err().map(|e| e.to_string()).unwrap_or_default());
    Ok(())
}
