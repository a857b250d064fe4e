//! Whether a header is a list of policies as RFC 9651 writes lists.
//!
//! An upstream may state limits of its own. Weir appends to a list that any client can parse and
//! drops one that would spoil the whole field.

use sfv::{BareItem, List, ListEntry, Parser};

/// Whether `text` is a non-empty list whose members are strings with parameters.
#[must_use]
pub(crate) fn is_policy_list(text: &[u8]) -> bool {
    let is_policy = |entry: &ListEntry| matches!(entry, ListEntry::Item(item) if matches!(item.bare_item, BareItem::String(_)));
    let list = Parser::new(text).parse::<List>();
    list.is_ok_and(|list| !list.is_empty() && list.iter().all(is_policy))
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
            r#""a";pk=:a=g:"#,
            r#""a";named=%"%zz""#,
            r#""a";named=%"%ff""#,
        ] {
            assert!(!is_policy_list(bad.as_bytes()), "{bad}");
        }
    }
}
