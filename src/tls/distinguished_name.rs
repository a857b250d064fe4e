//! Distinguished names as text, by RFC 4514: every name has one text, and no two have the same.

use std::fmt::Write as _;

use x509_parser::asn1_rs::ToDer as _;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The types that are named by a word. All others go by their number, and their values by their
/// encoding: RFC 4514 section 2.4.
const KEYWORDS: [(&str, &str); 11] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The last part first, as people write them: `CN=billing,O=Example`.
pub(crate) fn text(name: &X509Name<'_>) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let mut text = String::new();
    for part in parts.into_iter().rev() {
        for (index, attribute) in part.iter().enumerate() {
            if index > 0 {
                text.push('+');
            } else if !text.is_empty() {
                text.push(',');
            }
            write_attribute(attribute, &mut text);
        }
    }
    text
}

fn write_attribute(attribute: &AttributeTypeAndValue<'_>, text: &mut String) {
    let number = attribute.attr_type().to_id_string();
    let keyword = KEYWORDS.iter().find(|(it, _)| *it == number).map(|(_, keyword)| *keyword);
    text.push_str(keyword.unwrap_or(&number));
    text.push('=');
    match (keyword, attribute.as_str()) {
        (Some(_), Ok(value)) => write_escaped(value, text),
        _ => {
            let encoded = attribute.attr_value().to_der_vec().unwrap_or_default();
            write_hex(&encoded, text);
        }
    }
}

/// As RFC 4514 section 2.4 has it; control characters are escaped as well.
fn write_escaped(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (index, letter) in value.chars().enumerate() {
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', letter]),
            '#' if index == 0 => text.push_str("\\#"),
            ' ' if index == 0 || index == last => text.push_str("\\ "),
            _ if letter.is_ascii_control() => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\{:02X}", u32::from(letter));
            }
            _ => text.push(letter),
        }
    }
}

pub(super) fn write_hex(bytes: &[u8], text: &mut String) {
    text.push('#');
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_mean_something_are_escaped() {
        let escaped = |value: &str| {
            let mut text = String::new();
            write_escaped(value, &mut text);
            text
        };
        for (value, expected) in [
            ("billing", "billing"),
            ("a,O=b", "a\\,O=b"),
            ("a+b;<c>\\\"", "a\\+b\\;\\<c\\>\\\\\\\""),
            (" a ", "\\ a\\ "),
            (" ", "\\ "),
            ("#a#", "\\#a#"),
            ("a\r\nb\0", "a\\0D\\0Ab\\00"),
            ("Zoë", "Zoë"),
            ("", ""),
        ] {
            assert_eq!(escaped(value), expected, "{value:?}");
        }
    }
}
