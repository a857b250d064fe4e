//! Verdicts, and files that change.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::config::settings::AccessEntries;
use crate::test_folder::TestFolder;

fn list(entries: &[&str]) -> AccessList {
    AccessList::new(entries.iter().map(|entry| entry.parse().unwrap()))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn callers_are_judged_by_network_user_and_client() {
    let access = AccessLists {
        allow: list(&["10.1.0.0/16", "user:alice", "client:batch"]),
        deny: list(&["10.2.0.0/16", "2001:db8::/32", "user:mallory", "client:old"]),
    };
    let check = |address, user, client| access.check(ip(address), user, client);
    assert_eq!(check("10.1.2.3", None, None), AccessDecision::Allowed);
    assert_eq!(check("10.2.2.3", None, None), AccessDecision::Denied);
    assert_eq!(check("10.3.2.3", None, None), AccessDecision::Neither);
    assert_eq!(check("2001:db8:ffff::", None, None), AccessDecision::Denied);
    assert_eq!(check("10.3.2.3", Some("alice"), None), AccessDecision::Allowed);
    assert_eq!(check("10.3.2.3", None, Some("batch")), AccessDecision::Allowed);
    assert_eq!(check("10.3.2.3", Some("mallory"), Some("batch")), AccessDecision::Denied);
    // A name is one of its kind, and to the letter.
    assert_eq!(check("10.3.2.3", Some("batch"), Some("alice")), AccessDecision::Neither);
    assert_eq!(check("10.3.2.3", Some("Alice"), Some("batch ")), AccessDecision::Neither);
    assert_eq!(check("10.3.2.3", Some(""), Some("")), AccessDecision::Neither);
    assert_eq!(
        AccessLists::default().check(ip("10.1.2.3"), Some("alice"), None),
        AccessDecision::Neither
    );
}

#[test]
fn a_denial_outweighs_whatever_allows() {
    let access = AccessLists {
        allow: list(&["10.0.0.1", "user:alice", "client:batch"]),
        deny: list(&["10.0.0.0/8", "user:eve"]),
    };
    assert_eq!(access.check(ip("10.0.0.1"), Some("alice"), Some("batch")), AccessDecision::Denied);
    assert_eq!(access.check(ip("1.1.1.1"), Some("eve"), Some("batch")), AccessDecision::Denied);
}

#[test]
fn mapped_addresses_and_networks_are_ipv4() {
    let access = AccessLists { allow: list(&["::ffff:10.0.0.0/104"]), deny: list(&["192.0.2.1"]) };
    for (address, verdict) in [
        ("10.1.2.3", AccessDecision::Allowed),
        ("::ffff:10.1.2.3", AccessDecision::Allowed),
        ("11.1.2.3", AccessDecision::Neither),
        ("::ffff:192.0.2.1", AccessDecision::Denied),
        ("::10.1.2.3", AccessDecision::Neither),
    ] {
        assert_eq!(access.check(ip(address), None, None), verdict, "{address}");
    }
    assert!(!list(&["::/0"]).holds_address(ip("1.2.3.4")), "each family has its own");
}

#[test]
fn networks_reach_from_end_to_end() {
    for (entries, within, without) in [
        (&["0.0.0.0/0"][..], &["0.0.0.0", "255.255.255.255"][..], &["::"][..]),
        (&["::/0"], &["::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], &["0.0.0.0"]),
        (&["10.0.0.0/31"], &["10.0.0.0", "10.0.0.1"], &["9.255.255.255", "10.0.0.2"]),
        (&["10.0.0.0/8", "10.0.0.0/9", "10.1.1.1"], &["10.255.255.255"], &["11.0.0.0"]),
        (&["10.1.2.3/8"], &["10.0.0.0"], &["11.0.0.0"]),
        (&["255.255.255.255"], &["255.255.255.255"], &["255.255.255.254"]),
        (&[], &[], &["0.0.0.0", "::"]),
    ] {
        let list = list(entries);
        assert_eq!(list.is_empty(), entries.is_empty());
        for address in within {
            assert!(list.holds_address(ip(address)), "{address} in {entries:?}");
        }
        for address in without {
            assert!(!list.holds_address(ip(address)), "{address} in {entries:?}");
        }
    }
}

/// Addresses that often share a network.
fn near() -> impl Strategy<Value = IpAddr> {
    let v4 = (0..4u8, 0..4u8, any::<u8>()).prop_map(|(a, b, c)| IpAddr::from([a, b, 0, c]));
    let v6 = (0..4u16, any::<u16>()).prop_map(|(a, b)| IpAddr::from([a, b, 0, 0, 0, 0, 0, b]));
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn bisection_finds_what_a_walk_finds(
        networks in prop::collection::vec((near(), 0..=128u8), 0..60),
        asked in prop::collection::vec(near(), 1..60),
    ) {
        let longest = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        let networks: Vec<IpNet> = networks
            .into_iter()
            .map(|(ip, bits)| IpNet::new(ip, bits.min(longest(ip))).unwrap())
            .collect();
        let set: NetworkSet = networks.iter().copied().collect();
        for ip in asked.into_iter().chain(networks.iter().map(IpNet::broadcast)) {
            prop_assert_eq!(set.contains(ip), networks.iter().any(|it| it.contains(&ip)), "{}", ip);
        }
    }
}

#[test]
fn lists_are_what_is_written_and_what_files_say() {
    let folder = TestFolder::new();
    let files = vec![
        folder.file("a.txt", "10.2.0.0/16\nuser:bob\n"),
        folder.file("b.txt", "# none\nclient:batch\n"),
    ];
    let allow = AccessEntries {
        ip: vec!["10.1.0.0/16".parse().unwrap()],
        user: vec!["alice".to_owned()],
        client: Vec::new(),
        files,
    };
    let access = settings::Access { allow, deny: AccessEntries::default() };
    let access = AccessLists::load(&access).unwrap();
    for (address, user, client) in [
        ("10.1.0.1", None, None),
        ("10.2.0.1", None, None),
        ("1.1.1.1", Some("alice"), None),
        ("1.1.1.1", Some("bob"), None),
        ("1.1.1.1", None, Some("batch")),
    ] {
        assert_eq!(
            access.check(ip(address), user, client),
            AccessDecision::Allowed,
            "{address} {user:?}"
        );
    }
}

#[test]
fn a_faulty_file_is_refused_by_name_and_line() {
    let folder = TestFolder::new();
    let files = vec![folder.file("deny.txt", "10.0.0.0/8\n\n10.0.0.256\nuser:\n")];
    let written = settings::Access {
        deny: AccessEntries { files, ..AccessEntries::default() },
        ..settings::Access::default()
    };
    let error = AccessLists::load(&written).unwrap_err().to_string();
    assert!(error.contains("deny.txt:3: `10.0.0.256` is no entry; write a CIDR"), "{error}");
    assert!(error.ends_with("(and another line is wrong)"), "{error}");
    let missing = list_file::load(Path::new("/no/such/list.txt")).unwrap_err();
    assert_eq!(missing.to_string(), "cannot read /no/such/list.txt");
    assert!(std::error::Error::source(&missing).is_some());
}
