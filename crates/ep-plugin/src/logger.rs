//! `tracing` events into ONNX Runtime's log. Each session has its own logger, so entry points set theirs as the
//! default of the calling thread for as long as they run. Spans are not kept.

use std::ffi::CString;
use std::fmt::{self, Write};

use ort_sys::{OrtLogger, OrtLoggingLevel};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use crate::api::{Api, ort};
use crate::error::{Status, c_text};

/// Sends events to `logger`, those that its severity lets through.
///
/// # Safety
/// `logger` must be null or outlive the result and its clones.
pub unsafe fn dispatch(api: Api, logger: *const OrtLogger) -> Dispatch {
    if logger.is_null() {
        return Dispatch::none();
    }
    // SAFETY: the logger is live; the severity is read as the integer it is.
    let severity: Result<i32, _> =
        unsafe { api.get(|out: *mut i32| ort!(api, Logger_GetLoggingSeverityLevel(logger, out.cast()))) };
    let most = match severity {
        Ok(severity) => most_verbose(severity),
        Err(_) => LevelFilter::WARN,
    };
    Dispatch::new(Log { api, logger, most })
}

struct Log {
    api: Api,
    logger: *const OrtLogger,
    most: LevelFilter,
}

// SAFETY: ONNX Runtime's loggers may be used from any thread, from several at once.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line::default();
        event.record(&mut line);
        let (message, file) = (c_text(line.finish()), c_text(metadata.file().unwrap_or_default()));
        let function: CString = c_text(metadata.target());
        let number = metadata.line().and_then(|line| line.try_into().ok()).unwrap_or(0);
        let severity = severity(metadata.level());
        // SAFETY: the logger outlives us; texts are copied; a failure to log is dropped with its status.
        unsafe {
            let (message, file) = (message.as_ptr(), file.as_ptr());
            let status = ort!(
                self.api,
                Logger_LogMessage(self.logger, severity, message, file, number, function.as_ptr())
            );
            drop(Status::take(self.api.statuses(), status));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// One event as text: its message, then its fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn finish(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

fn severity(level: &Level) -> OrtLoggingLevel {
    match *level {
        Level::ERROR => OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR,
        Level::WARN => OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING,
        Level::INFO => OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO,
        Level::DEBUG | Level::TRACE => OrtLoggingLevel::ORT_LOGGING_LEVEL_VERBOSE,
    }
}

fn most_verbose(severity: i32) -> LevelFilter {
    match severity {
        ..=0 => LevelFilter::TRACE,
        1 => LevelFilter::INFO,
        2 => LevelFilter::WARN,
        3.. => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_let_their_own_level_through() {
        for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG] {
            assert!(level <= most_verbose(severity(&level) as i32), "{level}");
        }
        assert!(Level::INFO > most_verbose(OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING as i32));
    }
}
