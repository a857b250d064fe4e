use super::*;
use http::HeaderName;

struct Plain;

impl KeyNormalizer for Plain {
    fn ip(&self, ip: IpAddr) -> IpAddr {
        cut(ip, 64)
    }

    fn host(&self, host: &str) -> String {
        host.to_ascii_lowercase()
    }
}

fn text(sources: &[Source], text: &str) -> Option<String> {
    Key(sources.to_vec()).spelled(text, &Plain).map(|spelled| spelled.text)
}

#[test]
fn every_spelling_of_a_bucket_is_one_text() {
    let rows: [(Source, &[&str], &str); 6] = [
        (Source::User, &["a@b", "a%40b", "%61%40%62"], "a@b"),
        (Source::User, &["a%2cb", "a%2Cb"], "a%2Cb"),
        (Source::User, &["%c3%a9", "\u{e9}"], "\u{e9}"),
        (Source::Ip, &["2001:db8::1", "2001:DB8:0::1", "2001:db8::ffff"], "2001:db8::"),
        (Source::Ip, &["1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304"], "1.2.3.4"),
        (Source::IpPrefix(48), &["2001:db8::1", "2001:db8:0:1::"], "2001:db8::"),
    ];
    for (source, spellings, one) in rows {
        for spelling in spellings {
            let found = text(std::slice::from_ref(&source), spelling);
            assert_eq!(found.as_deref(), Some(one), "{spelling}");
        }
    }
    let host = Source::Header(HeaderName::from_static("host"));
    assert_eq!(text(&[host, Source::User], "A.b,C").as_deref(), Some("a.b,C"));
    for odd in ["%ff", "%2F%25%0A%3F", "a+b", "%00", "%zz"] {
        let once = text(&[Source::User], odd).expect("a key");
        assert_eq!(text(&[Source::User], &once).as_deref(), Some(&*once), "{odd}");
        assert_eq!(unpercent(&once), unpercent(odd), "{odd}");
    }
}

#[test]
fn what_no_request_can_have_is_no_key() {
    assert_eq!(text(&[Source::User], ""), None);
    for bad in ["", ",", "a,", ",b", "a,b,c"] {
        assert_eq!(text(&[Source::User, Source::Route], bad), None, "{bad}");
    }
    for bad in ["", "a", "1.2.3", "1.2.3.4/32", "::g"] {
        assert_eq!(text(&[Source::Ip], bad), None, "{bad}");
    }
    assert_eq!(text(&[Source::Global], "global").as_deref(), Some("global"));
    assert_eq!(text(&[Source::Global], ""), None);
}
