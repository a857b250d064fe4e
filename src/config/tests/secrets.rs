//! Files that a configuration names: passwords, certificates, keys, clients, lists.

use crate::test_folder::TestFolder;

/// RFC 8037 appendix A.2 and RFC 7517 appendix A.1.
const JWKS: &str = r#"{"keys": [
    {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty": "EC", "crv": "P-256", "kid": "1",
     "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
     "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}
]}"#;

const CLIENTS: &str = "[[clients]]\nid = \"reports\"\nkey_hash = \
    \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";

/// A folder of one test's own, with the files that the reference names.
pub(super) struct Files(TestFolder);

impl Files {
    pub(super) fn new() -> Self {
        let files = Files(TestFolder::new());
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        files.write("redis-password", b"from a file\n");
        files.write("redis-ca.pem", made.cert.pem().as_bytes());
        files.write("redis.pem", made.cert.pem().as_bytes());
        files.write("redis.key", made.signing_key.serialize_pem().as_bytes());
        files.write("server.pem", made.cert.pem().as_bytes());
        files.write("server.key", made.signing_key.serialize_pem().as_bytes());
        files.write("clients-ca.pem", made.cert.pem().as_bytes());
        files.write("upstream-ca.pem", made.cert.pem().as_bytes());
        files.write("upstream.pem", made.cert.pem().as_bytes());
        files.write("upstream.key", made.signing_key.serialize_pem().as_bytes());
        files.write("jwt-secret", b"0123456789abcdef0123456789abcdef\n");
        files.write("jwt.pem", made.cert.pem().as_bytes());
        files.write("jwks.json", JWKS.as_bytes());
        files.write("jwks-ca.pem", made.cert.pem().as_bytes());
        files.write("clients.toml", CLIENTS.as_bytes());
        files.write("tenants.toml", b"[tenants.a2]\nparent = \"partner-a\"\n");
        files.write("allow.txt", b"10.2.0.0/16\nuser:carol\n");
        files.write("deny.txt", b"# nobody yet\n");
        files
    }

    pub(super) fn folder(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        self.0.file(name, bytes);
    }

    pub(super) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}
