use super::*;

/// An answer to CLUSTER SLOTS with one range, as it comes over the wire.
fn read(range: &str) -> Option<(u16, u16, Vec<String>)> {
    let wire = range.replace(' ', "\r\n") + "\r\n";
    let value = redis::parse_redis_value(wire.as_bytes()).expect("a reply");
    let range = HashSlotRange::read(&value, &Origin { host: "seed".to_owned(), port: 7000 })?;
    let shown = |it: &Node| format!("{} {} {}", it.origin.host, it.origin.port, it.id);
    Some((range.first, range.last, range.nodes.iter().map(shown).collect()))
}

#[test]
fn the_first_node_of_a_range_owns_it_and_the_others_are_known() {
    let replicas = "*4 :5461 :10922 *3 $9 127.0.0.1 :7001 $2 id *3 $9 127.0.0.1 :7004 $2 of";
    let nodes = vec!["127.0.0.1 7001 id".to_owned(), "127.0.0.1 7004 of".to_owned()];
    assert_eq!(read(replicas), Some((5461, 10_922, nodes)));
    let more = "*3 :0 :16383 *4 $3 ::1 :7001 $2 id *2 $8 hostname $1 a";
    assert_eq!(read(more), Some((0, 16_383, vec!["::1 7001 id".to_owned()])));
}

#[test]
fn a_node_without_an_address_is_the_one_that_was_asked() {
    for host in ["$-1", "$0 ", "+"] {
        let range = format!("*3 :0 :99 *2 {host} :7005");
        assert_eq!(read(&range), Some((0, 99, vec!["seed 7005 ".to_owned()])), "{host}");
    }
}

#[test]
fn what_makes_no_sense_is_not_guessed_at() {
    for range in [
        ":1",
        "*0",
        "*2 :0 :99",
        "*3 :0 :99 $9 127.0.0.1",
        "*3 :0 :99 *1 $9 127.0.0.1",
        "*3 :-1 :99 *2 $1 a :7000",
        "*3 :0 :70000 *2 $1 a :7000",
        "*3 :0 :16384 *2 $1 a :7000",
        "*3 :9 :8 *2 $1 a :7000",
        "*3 :0 :99 *2 $1 a :70000",
        "*4 :0 :99 *2 $1 a :7000 *1 $1 b",
        "*3 $1 0 :99 *2 $1 a :7000",
    ] {
        assert_eq!(read(range), None, "{range}");
    }
}

#[test]
fn a_node_says_whether_it_serves_and_what_it_has_heard_of() {
    let info = "cluster_state:ok\r\ncluster_current_epoch:7\r\ncluster_my_epoch:2\r\n";
    assert_eq!(state(info), (true, 7));
    assert_eq!(state("cluster_state:fail\r\ncluster_current_epoch:9\r\n"), (false, 9));
    assert_eq!(state("what is this"), (true, 0));
}
