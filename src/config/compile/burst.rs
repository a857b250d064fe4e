//! `burst` and `burst_allowance`: how much a bucket holds.

use super::parsed_key::{ParsedKey, ReportTarget};
use crate::limit::refill_bucket::RefillError;
use crate::limit::token_bucket::BurstError;

/// What says how large a burst is.
pub(super) struct BurstSpec<'t, 'a> {
    pub(super) size: &'t ParsedKey<'a, u64>,
    pub(super) allowance: &'t ParsedKey<'a, f64>,
    pub(super) target: ReportTarget<'t, 'a>,
}

/// Why a burst does not fit its bucket.
pub(super) enum BurstMisfit {
    OutOfRange(String),
    /// It would take more than a century to refill.
    TooSlow,
}

impl From<BurstError> for BurstMisfit {
    fn from(error: BurstError) -> Self {
        match error {
            BurstError::TooSlow => BurstMisfit::TooSlow,
            BurstError::OutOfRange => BurstMisfit::OutOfRange(error.to_string()),
        }
    }
}

impl From<RefillError> for BurstMisfit {
    fn from(error: RefillError) -> Self {
        match error {
            RefillError::TooSlow => BurstMisfit::TooSlow,
            RefillError::Every | RefillError::Amount | RefillError::Burst => {
                BurstMisfit::OutOfRange(error.to_string())
            }
        }
    }
}

impl BurstSpec<'_, '_> {
    /// A bucket of this burst, or of `default` times the allowance if none is written.
    pub(super) fn fit<T>(
        &self,
        default: u64,
        build: impl Fn(u64) -> Result<T, BurstMisfit>,
    ) -> Option<T> {
        let size = self.size.or(default)?;
        let factor = self.allowance.or(1.0)?;
        if let Some(value) = self.allowance.value.as_ref().filter(|_| size as f64 * factor < 1.0) {
            value.warning(
                &format!(
                    "leaves less than one of a burst of {size}, and a limit holds at least one"
                ),
                "write a larger factor, or `burst = 1` alone",
            );
        }
        let burst = scale_burst(size, factor);
        let (message, help) = match build(burst) {
            Ok(bucket) => return Some(bucket),
            Err(BurstMisfit::OutOfRange(range)) => (String::new(), range),
            Err(BurstMisfit::TooSlow) => (
                ", which takes more than 100 years to refill at this rate".to_owned(),
                format!("the largest burst that fits is {}", largest(&build, burst)),
            ),
        };
        self.target.error(&format!("makes a burst of {burst}{message}"), help);
        None
    }

    /// Warns of a burst that holds less than `what`, which comes to `least`.
    pub(super) fn warn_if_below(&self, burst: u64, least: u64, what: &str) {
        if burst < least {
            self.target.warning(
                &format!(
                    "makes a burst of {burst}, which holds less than {what}, so steady traffic at \
                     that rate is refused in part"
                ),
                format!("write a burst of at least {least}"),
            );
        }
    }
}

/// The largest burst below one that is too large for its rate.
fn largest<T>(build: impl Fn(u64) -> Result<T, BurstMisfit>, too_large: u64) -> u64 {
    let (mut fits, mut beyond) = (1, too_large);
    while beyond - fits > 1 {
        let middle = fits.midpoint(beyond);
        match build(middle) {
            Ok(_) => fits = middle,
            Err(_) => beyond = middle,
        }
    }
    fits
}

/// Burst times allowance, rounded down, at least one. The product is lifted by a few parts in
/// 10^16 first: 100 × 1.15 is 115, though the nearest double lies below it.
fn scale_burst(burst: u64, factor: f64) -> u64 {
    ((burst as f64 * factor * (1.0 + 4.0 * f64::EPSILON)).floor() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretched_bursts_round_down_as_decimals_do_and_hold_at_least_one() {
        assert_eq!(scale_burst(100, 1.15), 115);
        assert_eq!(scale_burst(100, 1.5), 150);
        assert_eq!(scale_burst(3, 1.5), 4);
        assert_eq!(scale_burst(1, 0.1), 1);
        assert_eq!(scale_burst(1_000_000_000, 1.0), 1_000_000_000);
    }
}
