//! `rewrite` and the `to` of a redirect: texts with parts of the request in them.
//!
//! Where a part may stand is decided here, so that no request can choose the host that it is sent to:
//! a location begins with a scheme and a host that are written out (or the request's own host), or
//! with one slash, and no part that could begin with a slash comes right behind that.

use super::host::is_name;
use super::value_error::ValueError;
use crate::config::file::Value;
use crate::config::settings::{PathPattern, Segment};
use crate::config::suggest::{one_of, quote, shown};
use crate::route::{Encoding, PathTemplate, TemplatePart, TemplatePiece};

const NAME_SEGMENT: &str = "give a segment of `path` that name";

/// `rewrite`: the path for the upstream.
pub(super) fn rewrite(value: &Value<'_>, path: Option<&PathPattern>) -> Option<PathTemplate> {
    let text = value.text("/v2/{id}")?;
    let parsed = Builder::new(path?, Encoding::AsIs, &[]).rewrite(text);
    parsed.inspect_err(|error| error.report(value)).ok()
}

/// The `to` of a redirect.
pub(super) fn location(value: &Value<'_>, path: Option<&PathPattern>) -> Option<PathTemplate> {
    let text = value.text("https://example.com{path}")?;
    let parsed = Builder::new(path?, Encoding::Uri, &["path", "query", "host"]).location(text);
    parsed.inspect_err(|error| error.report(value)).ok()
}

/// Which part of a URI is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Path,
    Query,
    Fragment,
}

struct Builder<'p> {
    path: &'p PathPattern,
    /// For parts within the path.
    encoding: Encoding,
    /// Names besides those of the path.
    names: &'static [&'static str],
    place: Place,
    /// How much of the path was written.
    written: usize,
    pieces: Vec<TemplatePiece>,
}

impl<'p> Builder<'p> {
    fn new(path: &'p PathPattern, encoding: Encoding, names: &'static [&'static str]) -> Self {
        Builder { path, encoding, names, place: Place::Path, written: 0, pieces: Vec::new() }
    }

    fn rewrite(mut self, text: &str) -> Result<PathTemplate, ValueError> {
        if !text.starts_with('/') || text.starts_with("//") {
            return Err(ValueError::new(
                format!("does not begin with one `/`: {}", quote(text)),
                "write a path such as `\"/v2/{id}\"`",
            ));
        }
        if text.contains(['?', '#']) {
            return Err(ValueError::new(
                format!("has a query or a fragment: {}", quote(text)),
                "write the path alone: the query of the request is kept",
            ));
        }
        self.append(text)?;
        Ok(PathTemplate { pieces: self.pieces })
    }

    fn location(mut self, text: &str) -> Result<PathTemplate, ValueError> {
        let absolute = ["https://", "http://"].into_iter().find(|it| text.starts_with(it));
        let rest = match absolute {
            Some(scheme) => self.authority(scheme, &text[scheme.len()..])?,
            None if text.starts_with('/') && !text.starts_with("//") => text,
            None if text.starts_with("{path}") => text,
            None => {
                return Err(ValueError::new(
                    format!("is neither a URL nor a path: {}", quote(text)),
                    "begin it with `https://`, `http://`, one `/`, or `{path}`",
                ));
            }
        };
        self.append(rest)?;
        Ok(PathTemplate { pieces: self.pieces })
    }

    /// Scheme and host; returns what follows them.
    fn authority<'t>(&mut self, scheme: &str, text: &'t str) -> Result<&'t str, ValueError> {
        let own = text.strip_prefix("{host}");
        let end = |text: &str| text.find(['/', '?', '#', '{']).unwrap_or(text.len());
        let (name, rest) = match own {
            Some(rest) => rest.split_at(end(rest)),
            None => text.split_at(end(text)),
        };
        let (name, port) = match name.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((name, port)) => (name, Some(port)),
            None => (name, None),
        };
        let address = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let good_name = match own {
            Some(_) => name.is_empty(),
            None => {
                is_name(name) || address.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok())
            }
        };
        let good_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        let ends =
            rest.is_empty() || rest.starts_with(['/', '?', '#']) || rest.starts_with("{path}");
        if !(good_name && good_port && ends) {
            return Err(ValueError::new(
                format!("has no host that is written out: {}", quote(text)),
                "write one such as `example.com`, or `{host}`, and then `/`, `?` or `{path}`: \
                 no other part of a request may choose where it leads",
            ));
        }
        self.pieces.push(TemplatePiece::Literal(scheme.to_owned()));
        if own.is_some() {
            self.pieces.push(TemplatePiece::Part(TemplatePart::Host, Encoding::Uri));
        }
        let rest_of_name = &text[if own.is_some() { "{host}".len() } else { 0 }..];
        self.literal(&rest_of_name[..rest_of_name.len() - rest.len()]);
        Ok(rest)
    }

    /// Literals and parts, from where the path begins.
    fn append(&mut self, text: &str) -> Result<(), ValueError> {
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            self.text(&rest[..open])?;
            let inner = rest[open..].strip_prefix('{').and_then(|it| it.split_once('}'));
            let Some((name, after)) = inner.filter(|(name, _)| !name.contains('{')) else {
                return Err(ValueError::new(
                    format!("has a brace without its partner: {}", quote(text)),
                    "write `{` and `}` around a name only",
                ));
            };
            self.part(name, after)?;
            rest = after;
        }
        self.text(rest)
    }

    fn text(&mut self, text: &str) -> Result<(), ValueError> {
        let next = match self.place {
            Place::Path => text.find(['?', '#']),
            Place::Query => text.find('#'),
            Place::Fragment => None,
        };
        let Some(at) = next else { return self.checked(text) };
        self.checked(&text[..at])?;
        self.place = if text[at..].starts_with('?') { Place::Query } else { Place::Fragment };
        self.literal(&text[at..=at]);
        self.text(&text[at + 1..])
    }

    fn checked(&mut self, text: &str) -> Result<(), ValueError> {
        let bad = text.chars().find(|c| !c.is_ascii_graphic() || "\"<>\\^`|#".contains(*c));
        if let Some(bad) = bad {
            return Err(ValueError::new(
                format!("holds {}, which no URI may hold", quote(&bad.to_string())),
                "percent-encode it",
            ));
        }
        let digits =
            |it: &str| it.get(..2).is_some_and(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
        if !text.split('%').skip(1).all(digits) {
            return Err(ValueError::new(
                format!("has a bad percent-encoding: {}", quote(text)),
                "write `%` and two hexadecimal digits",
            ));
        }
        let dots = |it: &str| matches!(it, "." | "..");
        if self.place == Place::Path && (text.contains("//") || text.split('/').any(dots)) {
            return Err(ValueError::new(
                format!("has an empty segment or one of dots: {}", quote(text)),
                "write the path that it leads to",
            ));
        }
        if self.place == Place::Path {
            self.written += text.len();
        }
        self.literal(text);
        Ok(())
    }

    fn literal(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(TemplatePiece::Literal(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(TemplatePiece::Literal(text.to_owned())),
        }
    }

    /// Takes a mark back that was written last.
    fn take_back(&mut self, marks: &[char]) -> Option<char> {
        let Some(TemplatePiece::Literal(last)) = self.pieces.last_mut() else { return None };
        let mark = last.chars().next_back().filter(|mark| marks.contains(mark))?;
        last.pop();
        if last.is_empty() {
            self.pieces.pop();
        }
        Some(mark)
    }

    /// One part by its name; `after` is what follows it.
    fn part(&mut self, name: &str, after: &str) -> Result<(), ValueError> {
        let mut part = self.resolve(name)?;
        let wrong = |message: &str, help: &str| {
            Err(ValueError::new(format!("has `{{{}}}` {message}", shown(name)), help))
        };
        match &mut part {
            TemplatePart::Rest { or_root, .. } if self.place == Place::Path => {
                let ends = after.is_empty() || after.starts_with(['?', '#']);
                if !ends || self.take_back(&['/']).is_none() {
                    return wrong(
                        "within a segment",
                        "write it behind a `/`, at the end of the path",
                    );
                }
                self.written -= 1;
                *or_root = self.written == 0;
            }
            TemplatePart::Path if self.place == Place::Path => {
                // The two slashes would name a host.
                if matches!(self.pieces.last(), Some(TemplatePiece::Literal(it)) if it.ends_with('/'))
                {
                    return wrong("behind a `/`", "leave the `/` out: the path begins with one");
                }
            }
            TemplatePart::Query { mark } => {
                let before = match self.place {
                    Place::Query => self.take_back(&['?', '&']),
                    _ => None,
                };
                match before {
                    Some(before) => *mark = before,
                    None => return wrong("without a `?` before it", "write `?{query}`"),
                }
            }
            _ => {}
        }
        if self.place == Place::Path {
            self.written += 1;
        }
        let encoding = match (self.place, part) {
            (Place::Path, _) | (_, TemplatePart::Query { .. }) => self.encoding,
            _ => Encoding::QueryValue,
        };
        self.pieces.push(TemplatePiece::Part(part, encoding));
        Ok(())
    }

    fn resolve(&self, name: &str) -> Result<TemplatePart, ValueError> {
        let is_it = |segment: &Segment| matches!(segment, Segment::Parameter(it) if it == name);
        let position = self.path.segments.iter().position(is_it);
        let extra = self.names.contains(&name);
        match (name, position) {
            (_, Some(_)) if extra => Err(ValueError::new(
                format!("has `{{{}}}`, which is also a parameter of `path`", shown(name)),
                "give the parameter of `path` another name",
            )),
            (_, Some(position)) => Ok(TemplatePart::Segment(position)),
            ("path", None) if extra => Ok(TemplatePart::Path),
            ("query", None) if extra => Ok(TemplatePart::Query { mark: '?' }),
            ("host", None) if extra => Ok(TemplatePart::Host),
            ("*", None) if self.path.prefix => {
                Ok(TemplatePart::Rest { after: self.path.segments.len(), or_root: false })
            }
            _ => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> ValueError {
        let parameters = self.path.segments.iter().filter_map(|segment| match segment {
            Segment::Parameter(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        });
        let known = parameters.chain(self.path.prefix.then_some("*"));
        let known: Vec<String> =
            known.chain(self.names.iter().copied()).map(|it| format!("{{{it}}}")).collect();
        let help = match (name, known.is_empty()) {
            ("*", _) => "`{*}` is what `/*` at the end of `path` stands for".to_owned(),
            (_, true) => format!("`path` has no parameters: leave it out, or {NAME_SEGMENT}"),
            (_, false) => {
                format!("write {}, or {NAME_SEGMENT}", one_of(known.iter().map(String::as_str)))
            }
        };
        ValueError::new(format!("has a part that there is not: `{{{}}}`", shown(name)), help)
    }
}

#[cfg(test)]
mod tests;
