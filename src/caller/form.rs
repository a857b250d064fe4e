//! Which bodies are forms: those that are read, those that are none, and those that Weir does not
//! read but some upstream might.

use http::{HeaderMap, header};

use crate::limit::source::UnreadForm;

/// Whether a field of a form can be looked up in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// `application/x-www-form-urlencoded`, as it is.
    Form,
    /// Of a type that nobody takes for a form.
    Other,
    Unread(UnreadForm),
}

impl BodyKind {
    /// What a body is, by the headers that come with it.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut types = headers.get_all(header::CONTENT_TYPE).iter();
        let kind = match (types.next(), types.next()) {
            (Some(kind), None) => of_type(kind.as_bytes()),
            // Some readers take what has no type for a form, and of two each may believe another.
            _ => BodyKind::Unread(UnreadForm::Type),
        };
        match kind {
            BodyKind::Form if is_encoded(headers) => BodyKind::Unread(UnreadForm::Encoded),
            kind => kind,
        }
    }
}

fn of_type(value: &[u8]) -> BodyKind {
    let unread = BodyKind::Unread(UnreadForm::Type);
    let Some(kind) = std::str::from_utf8(value).ok().and_then(MediaType::parse) else {
        return unread;
    };
    let is = |name: &str| kind.essence.eq_ignore_ascii_case(name);
    if is("application/x-www-form-urlencoded") {
        let charset = kind.charset.as_deref().unwrap_or("utf-8");
        return if charset.eq_ignore_ascii_case("utf-8") { BodyKind::Form } else { unread };
    }
    let essence = kind.essence.to_ascii_lowercase();
    // Older names of the same two are still understood here and there.
    let alike = ["multipart/", "urlencoded", "url-encoded", "form-data"];
    if alike.iter().any(|name| essence.contains(name)) { unread } else { BodyKind::Other }
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let is_plain = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
    !codings.map(|coding| coding.as_bytes()).all(is_plain)
}

/// RFC 9110 section 8.3.1, to the letter: what is written otherwise is read by some and not by
/// others.
#[derive(Debug, PartialEq, Eq)]
struct MediaType<'a> {
    essence: &'a str,
    charset: Option<String>,
}

impl<'a> MediaType<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let blanks = [' ', '\t'];
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        let (essence, mut rest) = text.split_at(end);
        let (name, subtype) = essence.split_once('/')?;
        if !is_token(name) || !is_token(subtype) {
            return None;
        }
        let mut charset = None;
        loop {
            rest = rest.trim_start_matches(blanks);
            if rest.is_empty() {
                return Some(MediaType { essence, charset });
            }
            rest = rest.strip_prefix(';')?.trim_start_matches(blanks);
            if rest.is_empty() || rest.starts_with(';') {
                continue;
            }
            let (name, value) = rest.split_once('=')?;
            let (value, behind) = parameter_value(value)?;
            if !is_token(name) {
                return None;
            }
            // Of two, each reader may believe another.
            if name.eq_ignore_ascii_case("charset") && charset.replace(value).is_some() {
                return None;
            }
            rest = behind;
        }
    }
}

/// A token or a quoted string, RFC 9110 section 5.6.6, and what follows it.
fn parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return is_token(value).then(|| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(letters.next()?.1),
            letter => value.push(letter),
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    let in_tokens = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(in_tokens)
}

#[cfg(test)]
mod tests;
