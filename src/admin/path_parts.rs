//! What the parts of a path below `/v1/` say.

use super::api_error::ApiError;
use crate::overrides::{self, AccessAction, CallerKind};

pub(super) fn parse_action(text: &str) -> Result<AccessAction, ApiError> {
    match text {
        "allow" => Ok(AccessAction::Allow),
        "deny" => Ok(AccessAction::Deny),
        _ => Err(ApiError::not_found()),
    }
}

pub(super) fn parse_caller_kind(text: &str) -> Result<CallerKind, ApiError> {
    match text {
        "ip" => Ok(CallerKind::Ip),
        "user" => Ok(CallerKind::User),
        "client" => Ok(CallerKind::Client),
        _ => Err(ApiError::not_found()),
    }
}

pub(super) fn percent_decoded(text: &str) -> Result<String, ApiError> {
    let bytes = crate::limit::source::unpercent(text).to_vec();
    let good = |text: &String| !text.is_empty() && !text.chars().any(char::is_control);
    String::from_utf8(bytes)
        .ok()
        .filter(good)
        .ok_or_else(|| ApiError::bad_request("That is no name."))
}

/// One spelling for each network.
pub(super) fn canonical_network(text: &str) -> Result<String, ApiError> {
    let network = overrides::network(text)
        .ok_or_else(|| ApiError::bad_request("That is neither an address nor a network."))?;
    let single = network.prefix_len() == network.max_prefix_len();
    Ok(if single { network.addr().to_string() } else { network.to_string() })
}
