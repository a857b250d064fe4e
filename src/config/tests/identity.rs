//! Whose address a caller has, and what of it counts.

use super::faults::{doubtful, each};
use super::{good, limit};
use crate::config::{Settings, summary};
use crate::limit::{Key, Source};

fn means(text: &str) -> Settings {
    let loaded = good(text);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings
}

#[test]
fn keys_may_name_a_prefix_of_ipv6() {
    let text = |key: &str| limit(&format!("key = {key}\nrate = \"1/second\""));
    let key = |written: &str| means(&text(written)).limits[0].key.clone();
    assert_eq!(key("\"ip/48\""), Key(vec![Source::IpPrefix(48)]));
    assert_eq!(key("[\"ip\", \"ip/128\"]"), Key(vec![Source::Ip, Source::IpPrefix(128)]));
    assert!(summary(&good(&text("[\"route\", \"ip/56\"]"))).contains("route + ip/56"));
    each(&[
        (text("\"ip/0\""), "has no valid prefix of IPv6: `0`; write a number from 1 to 128"),
        (text("\"ip/129\""), "has no valid prefix of IPv6: `129`"),
        (text("\"ip/+48\""), "has no valid prefix of IPv6: `+48`"),
        (text("\"ip/048\""), "has no valid prefix of IPv6: `048`"),
        (text("\"ip/\""), "has no valid prefix of IPv6: ``"),
        (text("[\"ip/48\", \"ip/48\"]"), "repeats an earlier one: `ip/48`"),
    ]);
    doubtful(&[
        (
            text("\"ip/24\""),
            "counts IPv6 addresses by 24 bits, and IPv4 addresses whole; write a prefix of IPv6",
        ),
        (
            text("\"ip/48\"\nmissing = \"deny\""),
            "`missing` has no effect: no request is without this key",
        ),
    ]);
}
