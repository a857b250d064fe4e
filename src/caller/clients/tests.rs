use super::*;

fn client(id: &str, key_hash: [u8; 32]) -> Client {
    Client { id: id.to_owned(), key_hash, plan: None, tenant: None, trust: None }
}

#[test]
fn a_client_is_found_by_its_key_and_by_nothing_else() {
    let keys: Vec<String> = (0..100).map(|_| new_key().unwrap()).collect();
    let hash = |key: &String| parse_hash(&hash_key(key).unwrap()).unwrap();
    let all = keys.iter().enumerate().map(|(i, key)| client(&i.to_string(), hash(key)));
    let clients = Clients::new(all.collect());
    assert_eq!(clients.len(), 100);
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(clients.find(key.as_bytes()).map(|it| &it.id), Some(&i.to_string()));
        assert_eq!(clients.find(&key.as_bytes()[1..]), None);
        assert_eq!(clients.find(hash_key(key).unwrap().as_bytes()), None);
    }
    assert_eq!(clients.find(b""), None);
    assert_eq!(Clients::default().find(keys[0].as_bytes()), None);
}

#[test]
fn hashes_that_begin_alike_are_told_apart() {
    let key = "correct horse battery staple";
    let hash = parse_hash(&hash_key(key).unwrap()).unwrap();
    let mut alike = hash;
    alike[31] ^= 1;
    let clients = Clients::new(vec![client("alike", alike), client("own", hash)]);
    assert_eq!(clients.find(key.as_bytes()).map(|it| it.id.as_str()), Some("own"));
    let clients = Clients::new(vec![client("alike", alike)]);
    assert_eq!(clients.find(key.as_bytes()), None);
}

#[test]
fn of_two_clients_with_one_key_the_first_counts() {
    let hash = parse_hash(&hash_key("0123456789abcdef").unwrap()).unwrap();
    let clients = Clients::new(vec![client("first", hash), client("second", hash)]);
    assert_eq!(clients.find(b"0123456789abcdef").map(|it| it.id.as_str()), Some("first"));
}

#[test]
fn a_hash_is_the_sha_256_of_the_key_in_hexadecimal() {
    // FIPS 180-2, appendix B.2.
    let key = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    let hash = "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
    assert_eq!(hash_key(key).as_deref(), Ok(hash));
    assert_eq!(parse_hash(hash).unwrap()[..3], [0x24, 0x8d, 0x6a]);
    assert_eq!(parse_hash(&hash.to_uppercase().replace("SHA", "sha")), parse_hash(hash));
}

#[test]
fn a_key_that_could_be_guessed_is_not_hashed() {
    assert_eq!(hash_key("0123456789abcde"), Err(ShortKey));
    assert_eq!(hash_key("ééééééééééééééé"), Err(ShortKey), "characters count, not bytes");
    assert!(hash_key("0123456789abcdef").is_ok());
    assert!(ShortKey.to_string().contains("no salt"));
}

#[test]
fn what_is_no_hash_is_refused() {
    for text in ["", "sha256", "SHA256:00", "md5:00", "my-key", &"0".repeat(64)] {
        assert_eq!(parse_hash(text), Err(HashError::Scheme), "{text}");
    }
    for digits in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
        let text = format!("sha256:{digits}");
        assert_eq!(parse_hash(&text), Err(HashError::Digits), "{text}");
    }
}

#[test]
fn new_keys_are_long_and_differ() {
    let key = new_key().unwrap();
    assert!(key.starts_with(PREFIX) && key.len() == PREFIX.len() + 43, "{key}");
    assert!(
        key[PREFIX.len()..].bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it))
    );
    assert_ne!(key, new_key().unwrap());
    assert!(hash_key(&key).is_ok());
}
