//! Progress: bars in a terminal, one line per finished step in a log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

/// The bars of one command.
pub struct Progress {
    bars: MultiProgress,
    terminal: bool,
}

/// One step under way.
pub struct Bar {
    bar: ProgressBar,
    name: String,
    bytes: Option<u64>,
    started: Instant,
    terminal: bool,
}

impl Progress {
    /// Shows bars if standard error is a terminal, else prints lines.
    pub fn new() -> Self {
        Self { bars: MultiProgress::new(), terminal: std::io::stderr().is_terminal() }
    }

    /// A download of `bytes` bytes.
    pub fn download(&self, name: &str, bytes: u64) -> Bar {
        let style = "  {prefix:30} {bar:30} {bytes:>11} of {total_bytes:11} {bytes_per_sec}";
        self.bar(name, ProgressBar::new(bytes), style, Some(bytes))
    }

    /// Shows a step of unknown length while `work` runs.
    pub fn during<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let bar = self.bar(name, ProgressBar::new_spinner(), "  {prefix:30} {spinner} {elapsed}", None);
        bar.bar.enable_steady_tick(Duration::from_millis(120));
        let result = work();
        bar.finish(result.is_ok());
        result
    }

    fn bar(&self, name: &str, bar: ProgressBar, style: &str, bytes: Option<u64>) -> Bar {
        let bar = self.bars.add(bar.with_prefix(name.to_owned()));
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Bar { bar, name: name.to_owned(), bytes, started: Instant::now(), terminal: self.terminal }
    }
}

impl Bar {
    /// Shows that `bytes` have come.
    pub fn position(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Takes the bar away and leaves one line if all went well; errors are told by the caller.
    pub fn finish(self, ok: bool) {
        let size = self.bytes.map(|bytes| format!("{}, ", HumanBytes(bytes))).unwrap_or_default();
        let line = format!("  {:30} {size}{:.1} s", self.name, self.started.elapsed().as_secs_f64());
        match (ok, self.terminal) {
            (true, true) => self.bar.suspend(|| eprintln!("{line}")),
            (true, false) => eprintln!("{line}"),
            (false, _) => {}
        }
        self.bar.finish_and_clear();
    }
}
