//! Files: what is written is read, what is broken is an error.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use half::bf16;
use mlx_safe::{Array, Dtype, io};

#[test]
fn npy_round_trips_and_follows_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let x = Array::from_slice(&[1.0f32, 2.5, -3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    io::save_npy(&path, &x).unwrap();
    let back = io::load_npy(&path).unwrap();
    assert_eq!((back.shape(), back.to_vec::<f32>().unwrap()), (&[2, 3][..], x.to_vec::<f32>().unwrap()));
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY"));
    assert_eq!(&bytes[bytes.len() - 24..][..4], 1.0f32.to_le_bytes());
    // Views are written as they read.
    io::save_npy(&path, &x.t().unwrap()).unwrap();
    assert_eq!(io::load_npy(&path).unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0, 2.5, 5.0, -3.0, 6.0]);
}

#[test]
fn safetensors_keep_names_types_and_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let file = io::Safetensors {
        arrays: BTreeMap::from([
            ("bias".to_owned(), Array::from_slice(&[bf16::from_f32(1.5)], &[1]).unwrap()),
            ("weight".to_owned(), Array::from_slice(&[1i64, -2, 3, 4], &[2, 2]).unwrap()),
        ]),
        metadata: BTreeMap::from([("format".to_owned(), "pt".to_owned())]),
    };
    file.save(&path).unwrap();
    let back = io::Safetensors::load(&path).unwrap();
    assert_eq!(back.arrays.keys().collect::<Vec<_>>(), ["bias", "weight"]);
    assert_eq!(back.arrays["bias"].to_vec::<bf16>().unwrap(), [bf16::from_f32(1.5)]);
    assert_eq!(back.arrays["weight"].to_vec::<i64>().unwrap(), [1, -2, 3, 4]);
    assert_eq!(back.metadata["format"], "pt");
}

#[test]
fn broken_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let array = io::load_npy(&path).and_then(|a| a.eval());
        let tensors = io::Safetensors::load(&path).and_then(|s| mlx_safe::eval(s.arrays.values()));
        (array, tensors)
    };
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("short", b"\x93NUM"),
        ("text", b"neither one nor the other, but long enough to hold a header of some kind"),
        ("huge", &[0xff; 16]),
        ("json", b"\x10\0\0\0\0\0\0\0{\"a\":[1,2,3,4]} "),
    ] {
        let (array, tensors) = read(name, bytes);
        assert!(array.is_err() && tensors.is_err(), "{name}: {array:?}, {tensors:?}");
    }
    assert!(io::load_npy(folder.path().join("missing.npy")).is_err());
    assert!(io::Safetensors::load(folder.path().join("missing")).is_err());
    assert!(io::save_npy(folder.path().join("no/such/folder.npy"), &Array::scalar(1.0f32)).is_err());
}

#[test]
fn a_file_cut_short_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    io::save_npy(&path, &Array::from_slice(&[1.0f32; 1000], &[1000]).unwrap()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    assert!(io::load_npy(&path).is_err());
}

/// An `.npy` file of version 1.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), data].concat()
}

/// A file of the safetensors format.
fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// The values follow NumPy's format description; what MLX would read as something else is an error.
#[test]
fn npy_headers_are_read_right_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let data: Vec<u8> = (1..=6u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let load = |header: &str, data: &[u8]| {
        std::fs::write(&path, npy(header, data)).unwrap();
        io::load_npy(&path).and_then(|a| Ok((a.shape().to_vec(), a.to_vec::<f32>()?)))
    };
    let of = |kind: &str, order: &str, shape: &str| {
        format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    let rows = (vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(load(&of("<f4", "False", "(2, 3)"), &data).unwrap(), rows);
    assert_eq!(load(&of("<f4", "True", "(2, 3)"), &data).unwrap().1, [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    assert_eq!(load(&of("<f4", "False", "()"), &data).unwrap(), (vec![], vec![1.0]));
    assert_eq!(load(&of("<f4", "False", "(2,)"), &data).unwrap(), (vec![2], vec![1.0, 2.0]));
    let swapped: Vec<u8> = (1..=6u8).flat_map(|i| f32::from(i).to_be_bytes()).collect();
    assert_eq!(load(&of(">f4", "False", "(2, 3)"), &swapped).unwrap(), rows);
    for shape in ["(6)", "(2,3)", "(-2, -3)", "(2.5,)", "(4294967298,)", "(a, b)", "2, 3", ""] {
        assert!(load(&of("<f4", "False", shape), &data).is_err(), "{shape}");
    }
    for kind in [">c8", "<c16", "<f16", "|S3", "|O", "", "<f4 "] {
        assert!(load(&of(kind, "False", "(1,)"), &data).is_err(), "{kind}");
    }
    for header in [
        "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, 3)}",
        "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}",
        "{",
        "",
    ] {
        assert!(load(header, &data).is_err(), "{header}");
    }
}

#[test]
fn safetensors_headers_are_read_right_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let load = |header: &str| {
        std::fs::write(&path, safetensors(header, &[0; 16])).unwrap();
        io::Safetensors::load(&path).and_then(|file| {
            mlx_safe::eval(file.arrays.values())?;
            Ok(file.arrays.values().map(|a| a.shape().to_vec()).collect::<Vec<_>>())
        })
    };
    let of = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    assert_eq!(load(&of("\"F32\"", "[2, 2]", "[0, 16]")).unwrap(), [[2, 2]]);
    assert_eq!(load(&of("\"F32\"", "[]", "[0, 4]")).unwrap(), [[0i32; 0]]);
    assert_eq!(load("{}").unwrap().len(), 0);
    for shape in ["[-2, -2]", "[4294967300]", "[4.5]", "\"4\"", "[5]", "[65536, 65536, 65536, 65536]"] {
        assert!(load(&of("\"F32\"", shape, "[0, 16]")).is_err(), "{shape}");
    }
    for offsets in ["[0]", "[]", "[-16, 0]", "[1000, 1016]", "[4, 20]", "[0, 4]", "[18446744073709551600, 0]"]
    {
        assert!(load(&of("\"F32\"", "[4]", offsets)).is_err(), "{offsets}");
    }
    for dtype in ["\"F99\"", "7", "\"%s%n\""] {
        assert!(load(&of(dtype, "[4]", "[0, 16]")).is_err(), "{dtype}");
    }
    assert!(load(&"[".repeat(100_000)).is_err() && load(r#"{"a":null}"#).is_err());
    std::fs::write(&path, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    assert_eq!(io::Safetensors::load(&path).unwrap().arrays.len(), 0);
    let named = |name: &str| io::Safetensors {
        arrays: BTreeMap::from([(name.to_owned(), Array::scalar(1.0f32))]),
        ..Default::default()
    };
    for name in ["", "\"%n\\\n", "é漢"] {
        named(name).save(&path).unwrap();
        assert!(io::Safetensors::load(&path).unwrap().arrays.contains_key(name));
    }
    assert!(named("__metadata__").save(&path).is_err() && named("a\0b").save(&path).is_err());
}

#[test]
fn bools_of_files_are_0_or_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let header = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }";
    std::fs::write(&path, npy(header, &[0, 2, 255])).unwrap();
    let numbers = |array: &Array| array.astype(Dtype::Float32).and_then(|a| a.to_vec::<f32>()).unwrap();
    assert_eq!(numbers(&io::load_npy(&path).unwrap()), [0.0, 1.0, 1.0]);
    let header = r#"{"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}"#;
    std::fs::write(&path, safetensors(header, &[0, 2, 255])).unwrap();
    assert_eq!(numbers(&io::Safetensors::load(&path).unwrap().arrays["a"]), [0.0, 1.0, 1.0]);
    let bits = Array::from_slice(&[0u8, 2, 255], &[3]).unwrap().view(Dtype::Bool).unwrap();
    assert_eq!(numbers(&bits), [0.0, 1.0, 1.0]);
}
