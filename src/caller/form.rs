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
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn kind(lines: &[(&str, &str)]) -> BodyKind {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        BodyKind::of(&headers)
    }

    fn of_one(value: &str) -> BodyKind {
        kind(&[("content-type", value)])
    }

    const FORM: &str = "application/x-www-form-urlencoded";
    const TYPE: BodyKind = BodyKind::Unread(UnreadForm::Type);

    #[test]
    fn one_type_in_utf_8_is_a_form() {
        assert_eq!(of_one(FORM), BodyKind::Form);
        assert_eq!(of_one(&FORM.to_uppercase()), BodyKind::Form);
        for rest in
            [";", "; ", " ; x=y", ";charset=utf-8", "; Charset=\"UTF-8\"", ";a=\"b;\\\"\";c=d"]
        {
            assert_eq!(of_one(&format!("{FORM}{rest}")), BodyKind::Form, "{rest}");
        }
        let rests = [
            ",x",
            " x",
            "+x",
            "x",
            "/",
            ";charset=utf-7",
            ";charset=ibm037",
            ";charset=utf-16le",
            ";charset=iso-8859-1",
            ";charset=utf-8;charset=utf-7",
            ";charset",
            ";charset=",
            ";=x",
            ";charset=\"utf-8",
            "; a b",
            ";charset=utf-8,x",
            "; charset =utf-8",
        ];
        for rest in rests {
            assert_eq!(of_one(&format!("{FORM}{rest}")), TYPE, "{rest}");
        }
    }

    #[test]
    fn what_some_upstream_reads_is_told_from_what_none_does() {
        for other in
            ["application/json", "text/plain; charset=utf-16", "image/png", "application/grpc"]
        {
            assert_eq!(of_one(other), BodyKind::Other, "{other}");
        }
        for unread in [
            "",
            "form",
            "multipart/form-data; boundary=x",
            "Multipart/Mixed;boundary=x",
            "application/x-url-encoded",
            "text/x-www-form-urlencoded",
            "text/plain, application/x-www-form-urlencoded",
            "application/json;",
        ] {
            let expected = if unread.ends_with("json;") { BodyKind::Other } else { TYPE };
            assert_eq!(of_one(unread), expected, "{unread}");
        }
        assert_eq!(kind(&[]), TYPE);
        assert_eq!(kind(&[("content-type", "text/plain"), ("content-type", FORM)]), TYPE);
        assert_eq!(kind(&[("content-type", FORM), ("content-type", FORM)]), TYPE);
    }

    #[test]
    fn a_form_in_a_coding_is_not_read() {
        let coded = |coding| kind(&[("content-type", FORM), ("content-encoding", coding)]);
        for plain in ["identity", "Identity", ""] {
            assert_eq!(coded(plain), BodyKind::Form, "{plain}");
        }
        for coding in ["gzip", "identity, gzip", "identity,identity", "br", "x"] {
            assert_eq!(coded(coding), BodyKind::Unread(UnreadForm::Encoded), "{coding}");
        }
        let lines = [
            ("content-type", FORM),
            ("content-encoding", "identity"),
            ("content-encoding", "gzip"),
        ];
        assert_eq!(kind(&lines), BodyKind::Unread(UnreadForm::Encoded));
        let json = [("content-type", "application/json"), ("content-encoding", "gzip")];
        assert_eq!(kind(&json), BodyKind::Other);
    }
}
