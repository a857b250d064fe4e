//! Names that are verified in one source and merely claimed in another: callers that lack the one can
//! take any name by the other.

use super::request_source::{self, SourceUse};
use crate::config::file::Value;
use crate::config::suggest::quote;
use crate::limit::Source;

/// What no request gets far without.
#[derive(Debug, Clone, Copy)]
pub(super) struct AlwaysVerified {
    pub(super) certificates: bool,
    pub(super) tokens: bool,
}

impl AlwaysVerified {
    /// Whether a source that comes first leaves none to those after it.
    fn has(self, source: &Source) -> bool {
        match source {
            Source::Jwt(_) => self.tokens,
            Source::TlsSubject | Source::TlsNames => self.certificates,
            _ => false,
        }
    }
}

/// Notes the first source of an identity that any caller may fill with a name that another verifies.
pub(super) fn warn_of_claims(value: &Value<'_>, always: AlwaysVerified) {
    let entries = value.one_or_more();
    // What is wrong with one has been noted.
    let parsed = entries.iter().filter_map(|entry| {
        let source = request_source::parse(entry.as_str()?, SourceUse::Identity).ok()?;
        Some((entry, source))
    });
    let sources: Vec<(&Value<'_>, Source)> = parsed.collect();
    let Some((_, verified)) = sources.iter().find(|(_, it)| it.is_verified()) else { return };
    let reached = sources.iter().take_while(|(_, it)| !always.has(it));
    let claimed = reached.into_iter().find(|(_, it)| !it.is_verified());
    if let Some((entry, source)) = claimed {
        entry.warning(
            &format!(
                "may be any name that {} verifies: nothing says that the caller of {} is who it \
                 claims to be",
                quote(&verified.to_string()),
                quote(&source.to_string())
            ),
            "leave it out, or give callers keys in `[[clients]]` and know them as a `client`",
        );
    }
}
