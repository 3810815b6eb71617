//! No operation of mlx-c is forgotten: each function of its headers has a wrapper and a case, or a reason.

use std::collections::BTreeSet;
use std::path::Path;

/// Functions without a wrapper, or without a case in ops.json.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("qqmm", "GPU only; tests/quantized.rs calls it"),
    ("gather_qqmm", "GPU only; tests/quantized.rs calls it"),
];

/// The functions of one header, without `mlx_`.
fn declared(header: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/mlx-c/mlx/c").join(header);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("int mlx_"));
    lines.map(|line| line.split('(').next().unwrap().to_owned()).collect()
}

fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = [root.clone(), root.join("ops")];
    let files = files.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "rs"));
    files.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn every_operation_is_wrapped_and_tested() {
    let sources = sources();
    let words: BTreeSet<&str> = sources.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let calls: BTreeSet<_> = crate::tables().into_iter().map(|(name, _)| name).collect();
    let mut missing = Vec::new();
    let mut count = 0;
    for header in ["ops.h", "fast.h", "linalg.h", "fft.h", "random.h"] {
        let functions = declared(header);
        assert!(functions.len() > 5, "{header} was read wrongly");
        // Custom kernels have tests of their own.
        for name in functions.iter().filter(|name| !name.contains("_kernel_")) {
            count += 1;
            // One index array is a list of one, and a convolution of any rank the general one.
            let fixed_rank = name.starts_with("conv") && name.ends_with('d');
            let called =
                if fixed_rank { "conv_general" } else { name.strip_suffix("_single").unwrap_or(name) };
            let wrappers = [format!("mlx_{called}"), format!("ortmlx_{called}")];
            if !wrappers.iter().any(|wrapper| words.contains(wrapper.as_str())) {
                missing.push(format!("{name}: no wrapper"));
            }
            let elsewhere = header == "random.h" || EXCEPTIONS.iter().any(|(exception, _)| exception == name);
            if !elsewhere && !calls.contains(name.as_str()) {
                missing.push(format!("{name}: no case"));
            }
        }
    }
    assert!(count > 290, "only {count} functions were found");
    assert!(missing.is_empty(), "{} of {count}:\n{}", missing.len(), missing.join("\n"));
}
