//! Files: what is written is read, what is broken is an error.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use half::bf16;
use mlx_safe::{Array, io};

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
