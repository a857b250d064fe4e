//! curl, as a client that was not written for these tests.

use std::process::Command;

use crate::support::{Config, Upstream, Weir, tool};

/// What curl prints, or `None` where there is no curl.
pub(super) fn curl(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("curl").args(["-sS", "-m", "20"]).args(arguments).output();
    let output = tool("curl", ran)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn curl_sees_five_pass_and_the_sixth_refused() {
    let weir = Weir::start(&Config::echo().limit("key = \"ip\"\nrate = \"1/hour\"\nburst = 5"));
    let url = format!("http://{}/hello", weir.address());
    for n in 0..6 {
        let Some(said) = curl(&["-i", &url]) else { return };
        let expected = if n < 5 { "HTTP/1.1 200 OK" } else { "HTTP/1.1 429 Too Many Requests" };
        assert!(said.starts_with(expected), "{said}");
        assert!(said.to_ascii_lowercase().contains("\nratelimit: \"per-ip\";r="), "{said}");
    }
}

#[test]
fn curl_can_upload_with_an_expectation_and_in_chunks() {
    let upstream =
        Upstream::replying(|request| crate::support::upstream::ok(&request.body.len().to_string()));
    let weir = Weir::start(&Config::to(&upstream).open());
    let url = format!("http://{}/upload", weir.address());
    let file = weir.directory().join("upload");
    std::fs::write(&file, vec![b'x'; 3_000_000]).unwrap();
    let data = format!("@{}", file.display());
    let forms = [
        &["-H", "Expect: 100-continue"][..],
        &["-H", "Transfer-Encoding: chunked"],
        &["--http1.0"],
        &["-H", "Expect:"],
    ];
    for form in forms {
        let arguments = [form, &["--data-binary", &data, &url]].concat();
        match curl(&arguments) {
            Some(said) => assert_eq!(said, "3000000", "{form:?}"),
            None => return,
        }
    }
}
