//! The text that MLX 0.32 writes around a kernel's body (its `fast.metal_kernel`), and a `main` that calls it.

use std::fmt::Write as _;

use mlx_safe::{Dtype, KernelSource, Launch, Spec, TemplateArg};

use crate::{Error, Result};

/// Inputs with fewer elements come in the constant address space.
const CONSTANT_BELOW: i32 = 8;

/// The attributes that a kernel gets if its body mentions them, with their types.
const ATTRIBUTES: [(&str, &str); 20] = [
    ("dispatch_quadgroups_per_threadgroup", "uint"),
    ("dispatch_simdgroups_per_threadgroup", "uint"),
    ("dispatch_threads_per_threadgroup", "uint3"),
    ("grid_origin", "uint3"),
    ("grid_size", "uint3"),
    ("quadgroup_index_in_threadgroup", "uint"),
    ("quadgroups_per_threadgroup", "uint"),
    ("simdgroup_index_in_threadgroup", "uint"),
    ("simdgroups_per_threadgroup", "uint"),
    ("thread_execution_width", "uint"),
    ("thread_index_in_quadgroup", "uint"),
    ("thread_index_in_simdgroup", "uint"),
    ("thread_index_in_threadgroup", "uint"),
    ("thread_position_in_grid", "uint3"),
    ("thread_position_in_threadgroup", "uint3"),
    ("threadgroup_position_in_grid", "uint3"),
    ("threadgroups_per_grid", "uint3"),
    ("threads_per_grid", "uint3"),
    ("threads_per_simdgroup", "uint"),
    ("threads_per_threadgroup", "uint3"),
];

/// The parts of a program.
pub(crate) struct Text {
    /// In Metal's language: header, signature and body.
    pub kernel: String,
    /// In C++.
    pub main: String,
}

/// One parameter and what `main` passes for it.
struct Parameter {
    declaration: String,
    argument: String,
}

pub(crate) fn program(source: &KernelSource, launch: &Launch, inputs: &[Spec]) -> Result<Text> {
    let mut parameters = Vec::new();
    for (i, (name, spec)) in source.inputs.iter().zip(inputs).enumerate() {
        input(&mut parameters, source, name, spec, i)?;
    }
    for (i, (name, spec)) in source.outputs.iter().zip(&launch.outputs).enumerate() {
        let element = match source.atomic_outputs {
            true => format!("atomic<{}>", name_of(spec.dtype)?),
            false => name_of(spec.dtype)?.to_owned(),
        };
        parameters.push(Parameter {
            declaration: format!("device {element}* {name} [[buffer({})]]", parameters.len()),
            argument: format!("({element}*)launch.outputs[{i}].data"),
        });
    }
    for (name, kind) in ATTRIBUTES.iter().filter(|(name, _)| source.body.contains(name)) {
        parameters.push(Parameter {
            declaration: format!("{kind} {name} [[{name}]]"),
            argument: format!("place.{name}"),
        });
    }
    let declarations: Vec<_> = parameters.iter().map(|p| format!("  {}", p.declaration)).collect();
    let arguments: Vec<_> = parameters.iter().map(|p| format!("      {}", p.argument)).collect();
    let (template, values) = template(&launch.template)?;
    let name = format!("custom_kernel_{}", source.name);
    let mut kernel = source.header.clone();
    let _ = write!(kernel, "\n{template}[[kernel]] void {name}(\n{}) {{\n", declarations.join(",\n"));
    kernel.push_str(&source.body);
    kernel.push_str("\n}\n");
    let main = format!(
        "int main() {{\n  auto launch = metal_host::read_launch({}, {});\n  \
         metal_host::run(launch, [&](const metal_host::Place& place) {{\n    {name}{values}(\n{});\n  }});\n  \
         metal_host::write_outputs(launch);\n}}\n",
        inputs.len(),
        launch.outputs.len(),
        arguments.join(",\n")
    );
    Ok(Text { kernel, main })
}

fn input(
    parameters: &mut Vec<Parameter>,
    source: &KernelSource,
    name: &str,
    spec: &Spec,
    i: usize,
) -> Result<()> {
    let element = name_of(spec.dtype)?;
    let space = if spec.shape.iter().product::<i32>() < CONSTANT_BELOW { "constant" } else { "device" };
    let (mark, load) = if spec.shape.is_empty() { ("&", "*") } else { ("*", "") };
    let mut push = |declaration: String, argument: String| {
        let declaration = format!("const {declaration} [[buffer({})]]", parameters.len());
        parameters.push(Parameter { declaration, argument });
    };
    push(
        format!("{space} {element}{mark} {name}"),
        format!("{load}(const {element}*)launch.inputs[{i}].data"),
    );
    if spec.shape.is_empty() {
        return Ok(());
    }
    let wanted = |what: &str| source.body.contains(&format!("{name}_{what}"));
    if wanted("shape") {
        push(format!("constant int* {name}_shape"), format!("launch.inputs[{i}].shape.data()"));
    }
    if wanted("strides") {
        push(format!("constant int64_t* {name}_strides"), format!("launch.inputs[{i}].strides.data()"));
    }
    if wanted("ndim") {
        push(format!("constant int& {name}_ndim"), format!("launch.inputs[{i}].ndim"));
    }
    Ok(())
}

/// The template's head and the values that it is called with.
fn template(arguments: &[(String, TemplateArg)]) -> Result<(String, String)> {
    if arguments.is_empty() {
        return Ok(Default::default());
    }
    let mut parameters = Vec::new();
    let mut values = Vec::new();
    for (name, value) in arguments {
        let (kind, value) = match *value {
            TemplateArg::Dtype(dtype) => ("typename", name_of(dtype)?.to_owned()),
            TemplateArg::Int(value) => ("int", value.to_string()),
            TemplateArg::Bool(value) => ("bool", u8::from(value).to_string()),
        };
        parameters.push(format!("{kind} {name}"));
        values.push(value);
    }
    Ok((format!("template <{}>\n", parameters.join(", ")), format!("<{}>", values.join(", "))))
}

/// MLX's name of a type in Metal.
fn name_of(dtype: Dtype) -> Result<&'static str> {
    Ok(match dtype {
        Dtype::Bool => "bool",
        Dtype::Uint8 => "uint8_t",
        Dtype::Uint16 => "uint16_t",
        Dtype::Uint32 => "uint32_t",
        Dtype::Uint64 => "uint64_t",
        Dtype::Int8 => "int8_t",
        Dtype::Int16 => "int16_t",
        Dtype::Int32 => "int32_t",
        Dtype::Int64 => "int64_t",
        Dtype::Float16 => "float16_t",
        Dtype::Float32 => "float",
        Dtype::Bfloat16 => "bfloat16_t",
        Dtype::Float64 | Dtype::Complex64 => return Err(Error::Dtype(dtype)),
    })
}
