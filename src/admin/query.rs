//! What stands behind the question mark.

use super::api_error::ApiError;

/// The parameters with their values, as they were sent. An empty value is as good as none, so that a
/// form can send all of its fields.
///
/// # Errors
/// If one has another name, or is given twice.
pub(super) fn parameters<'q>(
    text: &'q str,
    known: &[&str],
) -> Result<Vec<(&'q str, &'q str)>, ApiError> {
    let mut given: Vec<(&str, &str)> = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !known.contains(&name) {
            let known = known.join(", ");
            let why = format!("There is no parameter {name:?}; there are {known}.");
            return Err(ApiError::bad_request(why));
        }
        if value.is_empty() {
            continue;
        }
        if given.iter().any(|(other, _)| *other == name) {
            let why = format!("{name} is given twice; ask for one at a time.");
            return Err(ApiError::bad_request(why));
        }
        given.push((name, value));
    }
    Ok(given)
}
