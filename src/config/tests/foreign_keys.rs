//! Keys of other programs: what is proposed in their place can be pasted.

use super::{good, limit, refused, with_route};

fn by_ip(keys: &str) -> String {
    limit(&format!("key = \"ip\"\n{keys}"))
}

/// What each fault says behind the key.
fn helps(text: &str) -> Vec<String> {
    let help = |line: &String| line.split_once("; ").map(|(_, help)| help.to_owned());
    refused(text).iter().filter_map(help).collect()
}

#[test]
fn a_policy_is_told_the_store_that_it_means() {
    for (policy, kind) in
        [("\"local\"", "memory"), ("\"redis\"", "redis"), ("\"cluster\"", "redis"), ("5", "redis")]
    {
        let text = by_ip(&format!("rate = \"5/second\"\npolicy = {policy}"));
        let expected = format!("it goes for all limits: write `kind = \"{kind}\"` in `[store]`");
        assert_eq!(helps(&text), [expected]);
    }
    good(&with_route("[store]\nkind = \"memory\""));
    good(&with_route("[store]\nkind = \"redis\"\nurl = \"redis://a\""));
}
