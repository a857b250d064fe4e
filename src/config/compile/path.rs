//! The `path` of a route: exact, with `/*` at its end, or with parameters such as `{id}`.
//!
//! Requests are matched by what their path means, so literals are kept as they are compared:
//! percent-decoded, ASCII letters in lower case, no trailing slash. What the router would never
//! let through, such as `..` or `;`, can match nothing and is refused here.

use super::value_error::ValueError;
use crate::config::file::Value;
use crate::config::settings::{PathPattern, Segment};
use crate::config::suggest::{quote, shown};

pub(super) fn pattern(value: &Value<'_>) -> Option<PathPattern> {
    let text = value.text("/api/*")?;
    match parse(text) {
        Ok(pattern) => {
            if let Some(colon) = colon_segment(&pattern) {
                value.warning(
                    &format!("takes {} literally", quote(&format!(":{colon}"))),
                    format!("write `{{{}}}` for a parameter", shown(colon)),
                );
            }
            Some(pattern)
        }
        Err(error) => {
            error.report(value);
            None
        }
    }
}

/// `strip_prefix`: a leading part of the path that is spelled out.
pub(super) fn strip_prefix(value: &Value<'_>, path: Option<&PathPattern>) -> Option<String> {
    let text = value.text("/api")?;
    let prefix = match parse(text) {
        Ok(prefix) => prefix,
        Err(error) => {
            error.report(value);
            return None;
        }
    };
    let literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
    if prefix.prefix || prefix.segments.is_empty() || !prefix.segments.iter().all(literal) {
        value.error(
            &format!("is not a plain leading part of a path: {}", quote(text)),
            "write one such as `\"/api\"`, or leave it out to forward paths as they are",
        );
        return None;
    }
    if path.is_some_and(|path| !path.segments.starts_with(&prefix.segments)) {
        value.error(
            &format!("is not how `path` begins: {}", quote(text)),
            "write the leading part of `path` that is to be removed",
        );
        return None;
    }
    let mut kept = String::new();
    for segment in prefix.segments {
        if let Segment::Literal(text) = segment {
            kept.push('/');
            kept.push_str(&text);
        }
    }
    Some(kept)
}

fn parse(text: &str) -> Result<PathPattern, ValueError> {
    if is_expression(text) {
        return Err(ValueError::new(
            format!("looks like a regular expression: {}", quote(text)),
            "paths are exact (`/a/b`), a prefix (`/a/*`) or have parameters (`/a/{id}`)",
        ));
    }
    let Some(rest) = text.strip_prefix('/') else {
        return Err(ValueError::new(
            format!("does not begin with `/`: {}", quote(text)),
            match format!("/{text}") {
                all if matches!(text, "" | "*") || parse(&all).is_err() => {
                    "write `\"/*\"` to match every path, or one such as `\"/api/*\"`".to_owned()
                }
                meant => format!("write {}", quote(&meant)),
            },
        ));
    };
    if let Some(bad) = text.find(['?', '#']) {
        return Err(ValueError::new(
            format!("has a query or a fragment: {}", quote(&text[bad..])),
            "routes match paths only: leave it out",
        ));
    }
    if text.contains("//") {
        return Err(ValueError::new(
            "has an empty segment: `//`",
            "write a single `/`: requests are matched without doubled slashes",
        ));
    }
    let (rest, prefix) = match rest.strip_suffix('*') {
        Some(before) if before.is_empty() || before.ends_with('/') => (before, true),
        _ => (rest, false),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let mut segments = Vec::new();
    if !rest.is_empty() {
        for part in rest.split('/') {
            let segment = segment(part)?;
            if matches!(segment, Segment::Parameter(_)) && segments.contains(&segment) {
                return Err(ValueError::new(
                    format!("has two parameters {}", quote(part)),
                    "give each its own name",
                ));
            }
            segments.push(segment);
        }
    }
    Ok(PathPattern { segments, prefix })
}

/// Whether a text has what only regular expressions have: nobody means that literally.
fn is_expression(text: &str) -> bool {
    text.starts_with(['^', '~'])
        || text.ends_with('$')
        || ["(?", ".*", ".+", "\\d", "\\w", "[^", ")?", "]+", "]*"]
            .iter()
            .any(|it| text.contains(it))
        || (text.contains('(') && text.contains('|'))
}

fn segment(part: &str) -> Result<Segment, ValueError> {
    let wrong = |what: String, help: &str| Err(ValueError::new(what, help));
    if part.contains(['{', '}']) {
        let inner = part.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        return match inner {
            Some(name) if is_parameter(name) => Ok(Segment::Parameter(name.to_owned())),
            Some(name) if name.starts_with('*') => wrong(
                format!("has a parameter for several segments: {}", quote(part)),
                "write `/*` at the end of the path for all that follows",
            ),
            _ => wrong(
                format!("has a bad parameter: {}", quote(part)),
                "a parameter is a whole segment: `{` a letter, then letters, digits or `_` `}`",
            ),
        };
    }
    if part.contains('*') {
        return wrong(
            format!("has a `*` within: {}", quote(part)),
            "write `/*` at the end only; `{name}` stands for one segment",
        );
    }
    let Some(text) = decode(part) else {
        return wrong(
            format!("has a bad percent-encoding: {}", quote(part)),
            "write the character itself, or `%` and two hexadecimal digits of UTF-8",
        );
    };
    if text == "." || text == ".." {
        return wrong(
            format!("has a dot segment: {}", quote(part)),
            "requests are matched after `.` and `..` are resolved: write the path they lead to",
        );
    }
    if let Some(bad) = text.chars().find(|c| matches!(c, '/' | '\\' | ';' | ' ') || c.is_control())
    {
        return wrong(
            format!(
                "holds {}, which no request path can hold when it is matched",
                quote(&bad.to_string())
            ),
            "leave it out",
        );
    }
    Ok(Segment::Literal(text.to_ascii_lowercase()))
}

fn is_parameter(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The name in a segment such as `:id`, as other routers write parameters.
fn colon_segment(pattern: &PathPattern) -> Option<&str> {
    pattern.segments.iter().find_map(|segment| match segment {
        Segment::Literal(text) => text.strip_prefix(':').filter(|name| is_parameter(name)),
        Segment::Parameter(_) => None,
    })
}

#[cfg(test)]
mod tests;
