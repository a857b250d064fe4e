//! Keys as people write them: many spellings of one bucket, and one text that it is known by.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header;

use super::key::{Key, Part, feed_ip};
use super::source::{Source, cut, unpercent};

/// A key as somebody wrote it, brought into the form that requests have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalizedKey {
    /// What its bucket is named by: the parts that a request of this key has.
    pub parts: Vec<(Part, Vec<u8>)>,
    /// The one text for it: addresses as they count, and nothing escaped that need not be.
    pub text: String,
}

/// The parts of a key as lists and logs show them, with `, ` between them.
#[derive(Debug, Default)]
pub struct ReadableKey(String);

/// How a request's address and host are brought into the form that counts.
pub trait KeyNormalizer {
    fn ip(&self, ip: IpAddr) -> IpAddr;
    fn host(&self, host: &str) -> String;
}

impl Key {
    /// Reads the values of a key's sources, with commas between them; `%2c` is a comma in one of
    /// them. `None` if there are not as many as the key has sources, or one is empty, or is no address
    /// that has to be: no request has such a key.
    pub fn spelled(&self, text: &str, normalizer: &impl KeyNormalizer) -> Option<NormalizedKey> {
        if self.0.contains(&Source::Global) {
            let global = NormalizedKey { parts: Vec::new(), text: text.to_owned() };
            return Some(global).filter(|it| it.text == "global");
        }
        let texts: Vec<&str> = text.split(',').collect();
        if texts.len() != self.0.len() {
            return None;
        }
        let mut spelled = NormalizedKey { parts: Vec::new(), text: String::new() };
        for (index, (source, text)) in self.0.iter().zip(texts).enumerate() {
            if index > 0 {
                spelled.text.push(',');
            }
            spelled.read(source, &unpercent(text), normalizer)?;
        }
        Some(spelled)
    }
}

impl ReadableKey {
    pub fn push(&mut self, part: Part, bytes: &[u8]) {
        let ReadableKey(text) = self;
        if !text.is_empty() {
            text.push_str(", ");
        }
        let address = if part == Part::Ip { address(bytes) } else { None };
        // Writing into a string does not fail.
        let _ = match address {
            Some(ip) => write!(text, "{ip}"),
            None => write!(text, "{}", String::from_utf8_lossy(bytes)),
        };
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

impl NormalizedKey {
    /// As lists and logs show it.
    pub fn readable(&self) -> String {
        let mut text = ReadableKey::default();
        self.parts.iter().for_each(|(part, bytes)| text.push(*part, bytes));
        text.into_text()
    }

    fn read(
        &mut self,
        source: &Source,
        value: &[u8],
        normalizer: &impl KeyNormalizer,
    ) -> Option<()> {
        let part = source.part()?;
        let plain = std::str::from_utf8(value);
        let host = match source {
            Source::Header(name) if *name == header::HOST => {
                plain.ok().map(|it| normalizer.host(it))
            }
            _ => None,
        };
        let value = host.as_ref().map_or(value, |host| host.as_bytes());
        if value.is_empty() {
            return None;
        }
        if part != Part::Ip {
            self.parts.push((part, value.to_vec()));
            escape(value, &mut self.text);
            return Some(());
        }
        let ip = plain.ok()?.parse::<IpAddr>().ok()?.to_canonical();
        let ip = match source {
            Source::IpPrefix(bits) => cut(ip, *bits),
            _ => normalizer.ip(ip),
        };
        feed_ip(ip, &mut |part, bytes: &[u8]| self.parts.push((part, bytes.to_vec())));
        // Writing into a string does not fail.
        let _ = write!(self.text, "{ip}");
        Some(())
    }
}

/// Appends a value so that [`unpercent`] reads it again: escaped is only what would end it, or is no
/// text.
fn escape(value: &[u8], text: &mut String) {
    for chunk in value.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '%' | ',' | '/' | '?' | '#' => write!(text, "%{:02X}", letter as u32),
                letter if letter.is_ascii_control() => write!(text, "%{:02X}", letter as u32),
                letter => write!(text, "{letter}"),
            }
            .unwrap_or_default();
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests;
