//! Provider options: declared once, parsed in one place.
//!
//! Session options come first; an environment variable `ORT_MLX_<NAME>` overrides them, for people who cannot change the
//! program. An empty one counts as unset.

use std::fmt;
use std::path::PathBuf;

/// Which device runs the claimed nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// The GPU, or an error.
    Gpu,
    /// The CPU.
    Cpu,
}

/// Which nodes are taken among those that could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClaimPolicy {
    /// On a GPU everything worth the trip, on a CPU only what MLX runs faster than ONNX Runtime.
    #[default]
    Auto,
    /// Everything.
    All,
    /// Nothing.
    None,
}

/// Whether recurrences run as fused kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SelectiveScanChoice {
    /// Where they are recognised.
    #[default]
    Auto,
    /// Never: operator by operator.
    Off,
}

/// Whether programs are recorded and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CompileChoice {
    /// Where that is right.
    #[default]
    Auto,
    /// Never: every run is built anew.
    Off,
}

/// Whether operators that models spell out in smaller ones run as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RewriteChoice {
    /// Where they are recognised.
    #[default]
    Auto,
    /// Never: as they are spelled.
    Off,
}

/// How exact products of float32 are on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Precision {
    /// As float32 is, unless the user's own `MLX_ENABLE_TF32` says otherwise.
    #[default]
    Float32,
    /// Factors may be rounded to TF32 (10 bits of mantissa), where the GPU is faster with it.
    Tf32,
}

/// As the option has it.
impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float32 => "float32",
            Self::Tf32 => "tf32",
        })
    }
}

/// The options of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Option `device`.
    pub device: DeviceChoice,
    /// Option `claim`.
    pub claim: ClaimPolicy,
    /// Option `selective_scan`.
    pub selective_scan: SelectiveScanChoice,
    /// Option `rewrite`.
    pub rewrite: RewriteChoice,
    /// Option `precision`, for the whole process.
    pub precision: Precision,
    /// Option `compile`.
    pub compile: CompileChoice,
    /// Option `cache`: for how many shapes of its inputs a cluster is kept recorded.
    pub cache: usize,
    /// Option `memory_cache`: how many bytes MLX keeps for reuse, in the whole process; 1 GiB on a CPU and MLX's choice on a GPU if not
    /// given.
    pub memory_cache: Option<usize>,
    /// Option `trace`: a file that gets one JSON line for every node asked about and every cluster made.
    pub trace: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: DeviceChoice::default(),
            claim: ClaimPolicy::default(),
            selective_scan: SelectiveScanChoice::default(),
            rewrite: RewriteChoice::default(),
            precision: Precision::default(),
            compile: CompileChoice::default(),
            cache: 16,
            memory_cache: None,
            trace: None,
        }
    }
}

/// An option that is not one, or a value that it does not take.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown option '{key}' of MLXExecutionProvider; the options are {valid}")]
    UnknownKey {
        /// What was given.
        key: String,
        /// What there is.
        valid: String,
    },
    /// No such value.
    #[error("option '{key}' of MLXExecutionProvider cannot be '{value}'; it takes {valid}")]
    BadValue {
        /// The option.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        valid: &'static str,
    },
}

struct Declaration {
    name: &'static str,
    values: &'static str,
    set: fn(&mut Options, &str) -> Option<()>,
}

/// The one of `choices` that is called `value`, as an option's value.
fn pick<T: Copy>(option: &mut T, value: &str, choices: &[(&str, T)]) -> Option<()> {
    *option = choices.iter().find(|(name, _)| *name == value)?.1;
    Some(())
}

const DECLARATIONS: &[Declaration] = &[
    Declaration {
        name: "device",
        values: "auto, gpu or cpu",
        set: |options, value| {
            pick(
                &mut options.device,
                value,
                &[("auto", DeviceChoice::Auto), ("gpu", DeviceChoice::Gpu), ("cpu", DeviceChoice::Cpu)],
            )
        },
    },
    Declaration {
        name: "claim",
        values: "auto, all or none",
        set: |options, value| {
            pick(
                &mut options.claim,
                value,
                &[("auto", ClaimPolicy::Auto), ("all", ClaimPolicy::All), ("none", ClaimPolicy::None)],
            )
        },
    },
    Declaration {
        name: "selective_scan",
        values: "auto or off",
        set: |options, value| {
            pick(
                &mut options.selective_scan,
                value,
                &[("auto", SelectiveScanChoice::Auto), ("off", SelectiveScanChoice::Off)],
            )
        },
    },
    Declaration {
        name: "rewrite",
        values: "auto or off",
        set: |options, value| {
            pick(&mut options.rewrite, value, &[("auto", RewriteChoice::Auto), ("off", RewriteChoice::Off)])
        },
    },
    Declaration {
        name: "precision",
        values: "float32 or tf32",
        set: |options, value| {
            pick(&mut options.precision, value, &[("float32", Precision::Float32), ("tf32", Precision::Tf32)])
        },
    },
    Declaration {
        name: "compile",
        values: "auto or off",
        set: |options, value| {
            pick(&mut options.compile, value, &[("auto", CompileChoice::Auto), ("off", CompileChoice::Off)])
        },
    },
    Declaration {
        name: "cache",
        values: "a number of shapes, 1 or more",
        set: |options, value| {
            options.cache = value.parse().ok().filter(|&shapes| shapes > 0)?;
            Some(())
        },
    },
    Declaration {
        name: "memory_cache",
        values: "a number of MiB",
        set: |options, value| {
            options.memory_cache = Some(value.parse::<usize>().ok()?.checked_mul(1 << 20)?);
            Some(())
        },
    },
    Declaration {
        name: "trace",
        values: "the path of a file to write",
        set: |options, value| {
            options.trace = (!value.is_empty()).then(|| PathBuf::from(value));
            options.trace.as_ref().map(|_| ())
        },
    },
];

impl Options {
    /// Parses `entries` (name, value), then lets the environment override them.
    ///
    /// # Errors
    /// For a name or a value that is not one, wherever it came from; the message lists what there is.
    pub fn parse<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, OptionError> {
        Self::parse_with(entries, |name| std::env::var(name).ok())
    }

    fn parse_with<'a>(
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for (key, value) in entries {
            let Some(declaration) = DECLARATIONS.iter().find(|d| d.name == key) else {
                let valid: Vec<String> =
                    DECLARATIONS.iter().map(|d| format!("{} ({})", d.name, d.values)).collect();
                return Err(OptionError::UnknownKey { key: key.to_owned(), valid: valid.join("; ") });
            };
            options.set(declaration, value)?;
        }
        for declaration in DECLARATIONS {
            let given = environment(&format!("ORT_MLX_{}", declaration.name.to_uppercase()));
            if let Some(value) = given.filter(|value| !value.is_empty()) {
                options.set(declaration, &value)?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, declaration: &Declaration, value: &str) -> Result<(), OptionError> {
        (declaration.set)(self, value).ok_or_else(|| OptionError::BadValue {
            key: declaration.name,
            value: value.to_owned(),
            valid: declaration.values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<Options, OptionError> {
        let find = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Options::parse_with(entries.iter().copied(), find)
    }

    #[test]
    fn environment_overrides_the_session() {
        let options = parse(&[("device", "gpu"), ("claim", "all")], &[("ORT_MLX_DEVICE", "cpu")]).unwrap();
        assert_eq!((options.device, options.claim), (DeviceChoice::Cpu, ClaimPolicy::All));
        assert_eq!(parse(&[], &[]).unwrap(), Options::default());
        let options = parse(&[("claim", "all")], &[("ORT_MLX_CLAIM", ""), ("ORT_MLX_TRACE", "")]).unwrap();
        assert_eq!((options.claim, options.trace), (ClaimPolicy::All, None));
    }

    #[test]
    fn mistakes_are_named_with_what_is_valid() {
        let error = parse(&[("devise", "gpu")], &[]).unwrap_err().to_string();
        assert!(error.contains("'devise'") && error.contains("device (auto, gpu or cpu)"), "{error}");
        let error = parse(&[], &[("ORT_MLX_CLAIM", "everything")]).unwrap_err().to_string();
        let off = parse(&[("selective_scan", "off")], &[]).unwrap();
        assert_eq!(off.selective_scan, SelectiveScanChoice::Off);
        assert_eq!(parse(&[("rewrite", "off")], &[]).unwrap().rewrite, RewriteChoice::Off);
        assert!(parse(&[("rewrite", "on")], &[]).unwrap_err().to_string().contains("'on'"));
        let scan = parse(&[("selective_scan", "on")], &[]).unwrap_err().to_string();
        assert!(scan.contains("'on'") && scan.contains("auto or off"), "{scan}");
        assert_eq!(parse(&[("precision", "tf32")], &[]).unwrap().precision, Precision::Tf32);
        for (key, value) in [
            ("precision", "half"),
            ("compile", "on"),
            ("cache", "0"),
            ("cache", "-1"),
            ("memory_cache", "1.5"),
        ] {
            let error = parse(&[(key, value)], &[]).unwrap_err().to_string();
            assert!(error.contains(&format!("'{value}'")) && error.contains("it takes "), "{error}");
        }
        let sizes = parse(&[("cache", "3"), ("memory_cache", "2"), ("compile", "off")], &[]).unwrap();
        assert_eq!((sizes.cache, sizes.memory_cache), (3, Some(2 << 20)));
        assert_eq!(sizes.compile, CompileChoice::Off);
        assert!(error.contains("'everything'") && error.contains("auto, all or none"), "{error}");
    }
}
