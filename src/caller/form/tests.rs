use super::*;
use http::{HeaderName, HeaderValue};

fn kind(lines: &[(&str, &str)]) -> BodyKind {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    BodyKind::of(&headers)
}

fn of_one(value: &str) -> BodyKind {
    kind(&[("content-type", value)])
}

const FORM: &str = "application/x-www-form-urlencoded";
const TYPE: BodyKind = BodyKind::Unread(UnreadForm::Type);

#[test]
fn one_type_in_utf_8_is_a_form() {
    assert_eq!(of_one(FORM), BodyKind::Form);
    assert_eq!(of_one(&FORM.to_uppercase()), BodyKind::Form);
    for rest in [";", "; ", " ; x=y", ";charset=utf-8", "; Charset=\"UTF-8\"", ";a=\"b;\\\"\";c=d"]
    {
        assert_eq!(of_one(&format!("{FORM}{rest}")), BodyKind::Form, "{rest}");
    }
    let rests = [
        ",x",
        " x",
        "+x",
        "x",
        "/",
        ";charset=utf-7",
        ";charset=ibm037",
        ";charset=utf-16le",
        ";charset=iso-8859-1",
        ";charset=utf-8;charset=utf-7",
        ";charset",
        ";charset=",
        ";=x",
        ";charset=\"utf-8",
        "; a b",
        ";charset=utf-8,x",
        "; charset =utf-8",
    ];
    for rest in rests {
        assert_eq!(of_one(&format!("{FORM}{rest}")), TYPE, "{rest}");
    }
}

#[test]
fn what_some_upstream_reads_is_told_from_what_none_does() {
    for other in ["application/json", "text/plain; charset=utf-16", "image/png", "application/grpc"]
    {
        assert_eq!(of_one(other), BodyKind::Other, "{other}");
    }
    for unread in [
        "",
        "form",
        "multipart/form-data; boundary=x",
        "Multipart/Mixed;boundary=x",
        "application/x-url-encoded",
        "text/x-www-form-urlencoded",
        "text/plain, application/x-www-form-urlencoded",
        "application/json;",
    ] {
        let expected = if unread.ends_with("json;") { BodyKind::Other } else { TYPE };
        assert_eq!(of_one(unread), expected, "{unread}");
    }
    assert_eq!(kind(&[]), TYPE);
    assert_eq!(kind(&[("content-type", "text/plain"), ("content-type", FORM)]), TYPE);
    assert_eq!(kind(&[("content-type", FORM), ("content-type", FORM)]), TYPE);
}

#[test]
fn a_form_in_a_coding_is_not_read() {
    let coded = |coding| kind(&[("content-type", FORM), ("content-encoding", coding)]);
    for plain in ["identity", "Identity", ""] {
        assert_eq!(coded(plain), BodyKind::Form, "{plain}");
    }
    for coding in ["gzip", "identity, gzip", "identity,identity", "br", "x"] {
        assert_eq!(coded(coding), BodyKind::Unread(UnreadForm::Encoded), "{coding}");
    }
    let lines =
        [("content-type", FORM), ("content-encoding", "identity"), ("content-encoding", "gzip")];
    assert_eq!(kind(&lines), BodyKind::Unread(UnreadForm::Encoded));
    let json = [("content-type", "application/json"), ("content-encoding", "gzip")];
    assert_eq!(kind(&json), BodyKind::Other);
}
