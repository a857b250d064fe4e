"""The certificate that peers show on the paths over TLS."""

from install import carry_out, find


def make(home):
    """`cert.pem` and `key.pem`: a P-256 key, which both peers sign with quickly."""
    carry_out([find("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
               "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
               "-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")])
