//! HTTP/2 as clients that were not written for these tests speak it, by prior knowledge.

use std::process::Command;

use crate::http::curl::curl;
use crate::support::{Config, Upstream, Weir, tool, upstream};

const HTTP2: &str = "--http2-prior-knowledge";

#[test]
fn curl_gets_the_same_answer_over_http2() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    let url = format!("http://{}/hello?a=b", weir.address());
    let Some(said) = curl(&[HTTP2, "-i", &url]) else { return };
    assert!(said.starts_with("HTTP/2 200"), "{said}");
    let seen = upstream.requests();
    assert_eq!(seen[0].target, "/hello?a=b");
    assert_eq!(seen[0].one("host"), weir.address().to_string());
    assert!(seen[0].one("via").starts_with("2 weir-"), "{:?}", seen[0].one("via"));
    assert_eq!(seen[0].one("x-forwarded-proto"), "http");
    for name in ["connection", "transfer-encoding", "http2-settings"] {
        assert!(!said.to_ascii_lowercase().contains(&format!("\n{name}:")), "{said}");
    }
}

#[test]
fn uploads_and_downloads_are_byte_exact_over_http2() {
    let upstream = Upstream::replying(|request| {
        let text: String = String::from_utf8_lossy(&request.body).into_owned();
        upstream::ok(&text)
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    let (sent, got) = (weir.directory().join("sent"), weir.directory().join("got"));
    let text: Vec<u8> = (0..3_000_000u32).map(|it| b'a' + (it % 23) as u8).collect();
    std::fs::write(&sent, &text).unwrap();
    let url = format!("http://{}/upload", weir.address());
    let data = format!("@{}", sent.display());
    let output = got.display().to_string();
    if curl(&[HTTP2, "--data-binary", &data, "-o", &output, &url]).is_some() {
        assert!(std::fs::read(&got).unwrap() == text, "the body has changed on the way");
    }
}

#[test]
fn refused_upload_can_be_read_over_http2() {
    let weir = Weir::start(&Config::echo().limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 1"));
    assert_eq!(weir.get("/").status, 200);
    let file = weir.directory().join("upload");
    std::fs::write(&file, vec![b'x'; 20_000_000]).unwrap();
    let (data, url) = (format!("@{}", file.display()), format!("http://{}/", weir.address()));
    for _ in 0..5 {
        let Some(said) = curl(&[HTTP2, "-i", "--data-binary", &data, &url]) else { return };
        assert!(said.starts_with("HTTP/2 429"), "{said}");
        assert!(said.contains("rate_limit_exceeded"), "{said}");
    }
}

#[test]
fn answer_without_a_body_has_its_length_and_no_more() {
    let weir = Weir::start(&Config::echo().open());
    let url = format!("http://{}/", weir.address());
    let Some(got) = curl(&[HTTP2, "-s", &url]) else { return };
    let Some(said) = curl(&[HTTP2, "-I", &url]) else { return };
    let expected = format!("content-length: {}\r\n", got.len());
    // curl names its method in what is echoed.
    let expected = expected.replace(&got.len().to_string(), &(got.len() + 1).to_string());
    assert!(said.contains(&expected), "{said}");
    let Some(said) = curl(&[HTTP2, "-i", "-X", "TRACE", &url]) else { return };
    assert!(said.starts_with("HTTP/2 405"), "{said}");
}

#[test]
fn http2_that_is_turned_off_is_a_version_that_is_not_supported() {
    let weir = Weir::start(&Config::echo().open().server("http2 = false"));
    let answer = weir.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(answer.status, 505);
}

#[test]
fn h2load_sees_exactly_the_burst_pass_over_a_hundred_streams() {
    let weir = Weir::start(&Config::echo().limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 250"));
    let url = format!("http://{}/", weir.address());
    let arguments = ["-n", "1000", "-c", "2", "-m", "100", "-T", "20", &url];
    let ran = Command::new("h2load").args(arguments).output();
    let Some(output) = tool("h2load", ran) else { return };
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("1000 done"), "{output}");
    assert!(output.contains("status codes: 250 2xx, 0 3xx, 750 4xx, 0 5xx"), "{output}");
}
