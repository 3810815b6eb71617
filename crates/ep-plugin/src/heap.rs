//! Memory that ONNX Runtime has freed, back to the system.

/// More constants than this are worth the time.
const WORTH_IT: usize = 16 << 20;

/// Call it once `freed` bytes of constants were freed. glibc's allocator keeps what lies between other objects, which after a large
/// model is as much as its weights; other allocators are left to themselves.
pub fn trim(freed: usize) {
    if freed >= WORTH_IT {
        give_back();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: may be called at any time, from any thread.
    unsafe { malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}
