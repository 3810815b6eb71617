//! Runs a kernel's program: the launch goes in by its standard input, the outputs come back by its standard output.

use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

const SECONDS: u64 = 120;

/// Adds numbers as the program reads them.
pub(crate) fn put<const N: usize>(message: &mut Vec<u8>, numbers: [i64; N]) {
    numbers.iter().for_each(|n| message.extend_from_slice(&n.to_ne_bytes()));
}

/// Adds a buffer's description.
pub(crate) fn put_shape(message: &mut Vec<u8>, shape: &[i32], bytes: usize) {
    put(message, [shape.len() as i64]);
    shape.iter().for_each(|&n| put(message, [n.into()]));
    put(message, [bytes as i64]);
}

/// What the program writes.
pub(crate) fn run(executable: &Path, message: Vec<u8>) -> Result<Vec<u8>> {
    let what = || executable.display().to_string();
    let mut command = Command::new(executable);
    // A kernel's program allocates its buffers and ends: nothing is freed.
    command.env("ASAN_OPTIONS", "detect_leaks=0").env("UBSAN_OPTIONS", "print_stacktrace=1");
    command.env("TSAN_OPTIONS", "halt_on_error=1");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(Error::io(what()))?;
    let mut stdin = child.stdin.take();
    // A program that fails early closes its end: its own message says more.
    let writer = thread::spawn(move || stdin.as_mut().map(|to| to.write_all(&message)));
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let started = Instant::now();
    let status: ExitStatus = loop {
        if let Some(status) = child.try_wait().map_err(Error::io(what()))? {
            break status;
        }
        if started.elapsed() > Duration::from_secs(SECONDS) {
            child.kill().map_err(Error::io(what()))?;
            child.wait().map_err(Error::io(what()))?;
            return Err(Error::Hang(SECONDS));
        }
        thread::sleep(Duration::from_millis(2));
    };
    let _ = writer.join();
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if status.success() {
        return Ok(out);
    }
    Err(Error::Run(format!("{status}\n{}", String::from_utf8_lossy(&err))))
}

fn collect(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before a failure is worth showing.
        let _ = from.map(|mut from| from.read_to_end(&mut bytes));
        bytes
    })
}
