//! How exact float32 products are on a GPU. MLX reads its switch once, so the first session of the process decides for all.

use std::sync::{Mutex, PoisonError};

use crate::{Error, Precision};

/// What sessions on a GPU have agreed on.
#[derive(Default)]
struct Agreement(Mutex<Option<Precision>>);

static PROCESS: Agreement = Agreement(Mutex::new(None));

/// Has MLX's products on a GPU be as exact as `wanted`. Call it before any of the session's.
///
/// # Errors
/// [`Error::Precision`] if an earlier session of the process asked for something else.
pub(crate) fn agree(wanted: Precision) -> Result<(), Error> {
    PROCESS.on(wanted, || {
        if wanted == Precision::Tf32 {
            mlx_safe::environment::allow_tf32();
        }
    })
}

impl Agreement {
    /// Calls `first` if nobody asked before.
    fn on(&self, wanted: Precision, first: impl FnOnce()) -> Result<(), Error> {
        let mut agreed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *agreed {
            Some(agreed) if agreed != wanted => Err(Error::Precision { wanted, agreed }),
            Some(_) => Ok(()),
            None => {
                first();
                *agreed = Some(wanted);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_session_decides() {
        let agreement = Agreement::default();
        let mut calls = 0;
        agreement.on(Precision::Tf32, || calls += 1).unwrap();
        agreement.on(Precision::Tf32, || calls += 1).unwrap();
        let error = agreement.on(Precision::Float32, || calls += 1).unwrap_err().to_string();
        assert_eq!(calls, 1);
        assert!(error.contains("precision=float32") && error.contains("precision=tf32"), "{error}");
    }
}
