//! How many entries a page of a list has.

use super::api_error::ApiError;

/// Where a question does not say it.
pub(super) const DEFAULT: usize = 100;
const MOST: usize = 1_000;

pub(super) fn parse(max: &str) -> Result<usize, ApiError> {
    let max = max.parse().ok().filter(|max| (1..=MOST).contains(max));
    max.ok_or_else(|| ApiError::bad_request("max must be a number from 1 to 1000."))
}
