//! Keys that change while requests are served, in a file and behind a URL.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::issuer::{Issuer, jwks};
use super::*;
use crate::config::settings::{JwksUrl, Origin};

/// Serves a response of one's choice, and counts how often.
struct Server {
    port: u16,
    response: Arc<Mutex<Vec<u8>>>,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(response: Vec<u8>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.expect("a port"), response, None)
    }

    fn on(
        listener: TcpListener,
        response: Vec<u8>,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let response = Arc::new(Mutex::new(response));
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, count) = (response.clone(), asked.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let response = answer.lock().clone();
                match &tls {
                    None => serve(stream, response, &count).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => serve(stream, response, &count).await,
                        Err(_) => continue,
                    },
                }
            }
        });
        Server { port, response, asked, task }
    }

    fn serves(&self, response: Vec<u8>) {
        *self.response.lock() = response;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// A verifier of its keys that is in a hurry, and does not fetch of its own accord.
    fn verifier(&self, tls: Option<Vec<u8>>) -> Arc<Verifier> {
        let host = if tls.is_some() { "localhost" } else { "127.0.0.1" };
        let url = JwksUrl {
            tls: tls.is_some(),
            origin: Origin { host: host.to_owned(), port: self.port },
            path: "/keys?all=1".parse().expect("a path"),
            ca: tls,
            refresh: Duration::from_secs(3600),
        };
        let mut verifier = Verifier::new(&settings(JwtKeys::JwksUrl(Box::new(url)))).unwrap();
        let ms = Duration::from_millis;
        verifier.timing =
            RefreshTiming { file_interval: ms(5), gap: ms(20), retry: ms(5), longest: ms(20) };
        Arc::new(verifier)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    response: Vec<u8>,
    count: &AtomicUsize,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_err() {
            return;
        }
        request.push(byte[0]);
    }
    assert!(request.starts_with(b"GET /keys?all=1 HTTP/1.1\r\n"), "{}", request.escape_ascii());
    count.fetch_add(1, Ordering::Relaxed);
    let _ = stream.write_all(&response).await;
    let _ = stream.shutdown().await;
}

fn ok(issuers: &[&Issuer]) -> Vec<u8> {
    answer("200 OK", &jwks(issuers).to_string())
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

fn is_good(verifier: &Verifier, token: &str) -> bool {
    verifier.verify(token.as_bytes(), NOW).is_ok()
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it_and_the_old_one_goes() {
    let [one, two] = [Issuer::rsa("one"), Issuer::p256("two")];
    let server = Server::start(ok(&[&one])).await;
    let verifier = server.verifier(None);
    let [first, second] = [one.token(&claims()), two.token(&claims())];
    assert!(!is_good(&verifier, &first), "it has no keys yet");
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("the first fetch", || is_good(&verifier, &first)).await;
    assert!(!is_good(&verifier, &second));
    server.serves(ok(&[&one, &two]));
    until("rotation", || is_good(&verifier, &second)).await;
    assert!(is_good(&verifier, &first), "both are served for a while");
    server.serves(ok(&[&two]));
    let unknown = Issuer::p256("three").token(&claims());
    until("the end of the old key", || {
        let _ = verifier.verify(unknown.as_bytes(), NOW);
        !is_good(&verifier, &first)
    })
    .await;
    assert!(is_good(&verifier, &second));
    keeping.abort();
}

#[tokio::test]
async fn a_nameless_token_of_a_new_key_has_it_fetched_too() {
    let [one, two] = [Issuer::p256("one"), Issuer::p256("two")];
    let server = Server::start(ok(&[&one])).await;
    let verifier = server.verifier(None);
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("the first fetch", || verifier.key_count() == 1).await;
    server.serves(ok(&[&two]));
    let token = two.nameless(&claims());
    until("rotation", || is_good(&verifier, &token)).await;
    keeping.abort();
}

#[tokio::test]
async fn keys_are_kept_whatever_the_url_answers() {
    let issuer = Issuer::p256("k");
    let server = Server::start(ok(&[&issuer])).await;
    let verifier = server.verifier(None);
    let token = issuer.token(&claims());
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("the first fetch", || is_good(&verifier, &token)).await;
    let generation = verifier.generation();
    let set = jwks(&[&Issuer::p256("other")]).to_string();
    let endless = format!("{{\"keys\":[],\"x\":\"{}\"}}", "a".repeat(key_set::LARGEST));
    for response in [
        answer("500 Internal Server Error", &set),
        answer("302 Found\r\nlocation: /elsewhere", &set),
        answer("204 No Content", ""),
        answer("206 Partial Content", &set),
        answer("200 OK", "<html>"),
        answer("200 OK", r#"{"keys":[]}"#),
        answer("200 OK", &endless),
        b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{".to_vec(),
        b"SSH-2.0-x\r\n".to_vec(),
        Vec::new(),
    ] {
        server.serves(response.clone());
        let asked = server.asked();
        verifier.reload();
        until("two more fetches", || server.asked() >= asked + 2).await;
        let response = &response[..response.len().min(40)];
        assert!(is_good(&verifier, &token), "{}", response.escape_ascii());
        assert_eq!(verifier.generation(), generation, "{}", response.escape_ascii());
        assert!(*verifier.failing.lock());
    }
    server.serves(ok(&[&issuer]));
    until("recovery", || !*verifier.failing.lock()).await;
    assert_eq!(verifier.generation(), generation, "the keys are the same");
    keeping.abort();
}

#[tokio::test]
async fn keys_are_kept_while_the_url_is_gone_and_fetched_when_it_is_back() {
    let [one, two] = [Issuer::p256("one"), Issuer::p256("two")];
    let server = Server::start(ok(&[&one])).await;
    let verifier = server.verifier(None);
    let [first, second] = [one.token(&claims()), two.token(&claims())];
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("the first fetch", || is_good(&verifier, &first)).await;
    let port = server.port;
    drop(server);
    verifier.reload();
    until("the outage is noticed", || *verifier.failing.lock()).await;
    assert!(is_good(&verifier, &first));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the same port");
    let _back = Server::on(listener, ok(&[&two]), None);
    until("recovery", || is_good(&verifier, &second)).await;
    keeping.abort();
}

#[tokio::test]
async fn a_flood_of_unknown_keys_is_not_passed_on_to_the_issuer() {
    let server = Server::start(ok(&[&Issuer::p256("k")])).await;
    let mut verifier = server.verifier(None);
    Arc::get_mut(&mut verifier).expect("its only owner").timing.gap = Duration::from_secs(3600);
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("the first fetch", || verifier.key_count() == 1).await;
    let forger = Issuer::p256("forged");
    for number in 0..1000 {
        let header = json!({ "alg": "ES256", "kid": number.to_string() });
        let token = forger.sign(&header, &claims());
        assert!(!is_good(&verifier, &token));
        tokio::task::yield_now().await;
    }
    assert_eq!(server.asked(), 1);
    assert_eq!(verifier.signatures_checked(), 0);
    keeping.abort();
}

#[tokio::test]
async fn the_set_is_fetched_again_after_a_while_though_nobody_asks() {
    let [one, two] = [Issuer::p256("one"), Issuer::p256("two")];
    let server = Server::start(ok(&[&one])).await;
    let mut verifier = server.verifier(None);
    let only = Arc::get_mut(&mut verifier).expect("its only owner");
    let JwtKeys::JwksUrl(url) = &mut only.source else { panic!("it has a URL") };
    url.refresh = Duration::from_millis(20);
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("the first fetch", || verifier.key_count() == 1).await;
    let generation = verifier.generation();
    server.serves(ok(&[&two]));
    until("a refresh", || verifier.generation() != generation).await;
    assert!(is_good(&verifier, &two.token(&claims())));
    keeping.abort();
}

#[tokio::test]
async fn keys_are_fetched_over_tls_from_whom_the_authority_vouches_for() {
    let issuer = Issuer::ed25519("k");
    let token = issuer.token(&claims());
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = Server::on(listener, ok(&[&issuer]), Some(Arc::new(config).into()));

    let verifier = server.verifier(Some(certified.cert.pem().into_bytes()));
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("the first fetch", || is_good(&verifier, &token)).await;
    keeping.abort();

    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let verifier = server.verifier(Some(stranger.cert.pem().into_bytes()));
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    until("a failure", || *verifier.failing.lock()).await;
    assert_eq!(verifier.key_count(), 0);
    keeping.abort();
}

#[tokio::test]
async fn a_file_is_read_again_when_it_changes_and_kept_when_it_breaks() {
    let [one, two] = [Issuer::p256("one"), Issuer::p256("two")];
    let file = Scratch::new(&jwks(&[&one]).to_string());
    let mut verifier = Verifier::new(&settings(JwtKeys::JwksFile(file.0.clone()))).unwrap();
    verifier.timing.file_interval = Duration::from_millis(5);
    let verifier = Arc::new(verifier);
    let keeping = tokio::spawn(verifier.clone().refresh_keys());
    let [first, second] = [one.token(&claims()), two.token(&claims())];
    assert!(is_good(&verifier, &first));
    file.write("{");
    until("the fault is noticed", || *verifier.failing.lock()).await;
    assert!(is_good(&verifier, &first));
    file.write(&jwks(&[&two]).to_string());
    until("the other key", || is_good(&verifier, &second)).await;
    assert!(!is_good(&verifier, &first) && !*verifier.failing.lock());
    std::fs::remove_file(&file.0).expect("it was there");
    until("the loss is noticed", || *verifier.failing.lock()).await;
    assert!(is_good(&verifier, &second));
    keeping.abort();
}

#[test]
fn a_url_is_named_without_its_query_and_asked_for_by_its_host() {
    let url = |tls, host: &str, port| JwksUrl {
        tls,
        origin: Origin { host: host.to_owned(), port },
        path: "/keys?token=secret".parse().expect("a path"),
        ca: None,
        refresh: Duration::from_secs(300),
    };
    for (url, name, authority) in [
        (url(true, "a.example", 443), "https://a.example/keys", "a.example"),
        (url(false, "a.example", 443), "http://a.example:443/keys", "a.example:443"),
        (url(false, "::1", 80), "http://[::1]/keys", "[::1]"),
        (url(true, "::1", 8443), "https://[::1]:8443/keys", "[::1]:8443"),
    ] {
        assert_eq!((url.to_string().as_str(), url.authority().as_str()), (name, authority));
    }
}
