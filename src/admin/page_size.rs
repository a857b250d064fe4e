//! How many entries a page of a list has.

use super::api_error::ApiError;

/// Where a question does not say it.
pub(super) const DEFAULT: usize = 100;
const MOST: usize = 1_000;

pub(super) fn parse(max: &str) -> Result<usize, ApiError> {
    // One spelling for each number: no sign, no zero before it.
    let digits = max.bytes().all(|it| it.is_ascii_digit()) && !max.starts_with('0');
    let max = max.parse().ok().filter(|max| digits && (1..=MOST).contains(max));
    max.ok_or_else(|| ApiError::bad_request("max must be a number from 1 to 1000."))
}
