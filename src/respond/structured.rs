//! Whether a header is a list of policies as RFC 9651 writes lists.
//!
//! An upstream may state limits of its own. Weir appends to a list that any client can parse and
//! drops one that would spoil the whole field.

/// Whether `text` is a non-empty list whose members are strings with parameters.
#[must_use]
pub fn is_policy_list(text: &[u8]) -> bool {
    let mut scan = Scan(text);
    scan.spaces(b" ");
    loop {
        if !scan.string() || !scan.parameters() {
            return false;
        }
        scan.spaces(b" \t");
        if scan.0.is_empty() {
            return true;
        }
        if !scan.take(b',') {
            return false;
        }
        scan.spaces(b" \t");
    }
}

struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn take(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn spaces(&mut self, which: &[u8]) {
        let count = self.0.iter().take_while(|byte| which.contains(byte)).count();
        self.0 = &self.0[count..];
    }

    fn span(&mut self, belongs: impl Fn(u8) -> bool) -> usize {
        let count = self.0.iter().take_while(|&&byte| belongs(byte)).count();
        self.0 = &self.0[count..];
        count
    }

    fn string(&mut self) -> bool {
        if !self.take(b'"') {
            return false;
        }
        loop {
            match self.0 {
                [b'"', ..] => return self.take(b'"'),
                [b'\\', b'"' | b'\\', rest @ ..] => self.0 = rest,
                [b'\\', ..] => return false,
                [0x20..=0x7e, rest @ ..] => self.0 = rest,
                _ => return false,
            }
        }
    }

    fn parameters(&mut self) -> bool {
        while self.take(b';') {
            self.spaces(b" ");
            let starts = self.0.first().is_some_and(|&b| b.is_ascii_lowercase() || b == b'*');
            if !starts {
                return false;
            }
            self.span(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b));
            if self.take(b'=') && !self.bare_item() {
                return false;
            }
        }
        true
    }

    fn bare_item(&mut self) -> bool {
        match self.0.first() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b':') => {
                self.take(b':');
                self.span(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
                self.take(b':')
            }
            Some(b'@') => {
                self.take(b'@');
                self.take(b'-');
                (1..=15).contains(&self.span(|b| b.is_ascii_digit()))
            }
            Some(b'%') => {
                self.take(b'%');
                self.string()
            }
            Some(b'?') => {
                self.take(b'?');
                self.take(b'0') || self.take(b'1')
            }
            Some(b) if b.is_ascii_alphabetic() || *b == b'*' => {
                let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b);
                self.span(token) > 0
            }
            _ => false,
        }
    }

    /// An integer of up to 15 digits, or a decimal of up to 12 and 3.
    fn number(&mut self) -> bool {
        self.take(b'-');
        let whole = self.span(|b| b.is_ascii_digit());
        if !self.take(b'.') {
            return (1..=15).contains(&whole);
        }
        (1..=12).contains(&whole) && (1..=3).contains(&self.span(|b| b.is_ascii_digit()))
    }
}

#[cfg(test)]
mod tests {
    use super::is_policy_list;

    #[test]
    fn lists_of_policies_are_told_from_other_text() {
        for good in [
            r#""a";q=1;w=60"#,
            r#""a";q=1, "b";r=5;t=1.5"#,
            r#""a""#,
            r#""a\"b";pk=:aGk=:;x=?1;y=tok/en;z"#,
            "  \"a\" \t,\t\"b\" ",
            r#""a";at=@1700000000;named=%"caf%c3%a9""#,
        ] {
            assert!(is_policy_list(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "100",
            "a;q=1",
            r#""a"#,
            r#""a";"#,
            r#""a";Q=1"#,
            r#""a";q=1234567890123456"#,
            r#""a";q=1."#,
            r#""a","#,
            r#""a" "b""#,
            r#"limit=100, remaining=5"#,
            "\"\u{e9}\"",
        ] {
            assert!(!is_policy_list(bad.as_bytes()), "{bad}");
        }
    }
}
