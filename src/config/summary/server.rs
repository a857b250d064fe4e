//! How requests come in and how the process leaves: a row for whatever is not as usual.

use super::table;
use crate::config::compile::certificate_dates::date;
use crate::config::settings::{
    HttpsPort, ListenAddress, Listener, MinBodyRate, Server, ServerCertificate, ServerTls,
    TlsVersion,
};
use crate::config::units::{show_duration, show_size};

/// Certificates may be for many hosts.
const HOSTS: usize = 4;

pub(super) fn server(server: &Server) -> String {
    let mut rows: Vec<Vec<String>> = server.listen.iter().filter_map(listener).collect();
    let mut add = |name: &str, what: String| rows.push(vec![name.to_owned(), what]);
    match server.redirect_https {
        Some(HttpsPort::OfListener) => {
            let mut secure = server.listen.iter().filter(|it| it.tls.is_some());
            let port = match secure.next().map(|it| &it.address) {
                Some(ListenAddress::Tcp(address)) => address.port(),
                _ => 443,
            };
            add("redirect_https", format!("to port {port} of the listener with TLS"));
        }
        Some(HttpsPort::Port(port)) => add("redirect_https", format!("to port {port}")),
        None => {}
    }
    for (name, most) in [
        ("max_connections", server.max_connections),
        ("max_connections_per_ip", server.max_connections_per_ip),
        ("max_requests", server.max_requests.unwrap_or(0)),
    ] {
        if most > 0 {
            add(name, most.to_string());
        }
    }
    if let Some(bytes) = server.max_body {
        add("max_body", show_size(bytes));
    }
    if let Some(MinBodyRate { bytes_per_second, grace }) = server.min_body_rate {
        let (bytes, grace) = (show_size(bytes_per_second), show_duration(grace));
        add("min_body_rate", format!("{bytes} a second, after {grace}"));
    }
    if server.http2.is_none() {
        add("http2", "off".to_owned());
    }
    if !server.drain_delay.is_zero() {
        let [delay, drain] = [server.drain_delay, server.drain].map(show_duration);
        add("drain", format!("after {delay}, for up to {drain}"));
    }
    if let Some(path) = &server.takeover {
        add("takeover", path.display().to_string());
    }
    table(rows)
}

fn listener(listener: &Listener) -> Option<Vec<String>> {
    let mut remarks: Vec<String> = listener.tls.iter().flat_map(|it| tls(it)).collect();
    if listener.proxy_protocol {
        remarks.push("PROXY headers".to_owned());
    }
    (!remarks.is_empty()).then(|| vec![listener.to_string(), remarks.join("; ")])
}

fn tls(tls: &ServerTls) -> Vec<String> {
    let mut remarks: Vec<String> = tls.certificates.iter().map(certificate).collect();
    if tls.min_version == TlsVersion::Tls13 {
        remarks.push("TLS 1.3 only".to_owned());
    }
    if let Some(clients) = &tls.client_auth {
        let optional = if clients.required { "" } else { ", or none" };
        remarks
            .push(format!("clients have certificates of {}{optional}", clients.ca_file.display()));
    }
    remarks
}

fn certificate(certificate: &ServerCertificate) -> String {
    let hosts = certificate.hosts.iter().cloned();
    let names: Vec<String> = hosts.chain(certificate.ips.iter().map(ToString::to_string)).collect();
    let names = match names.len() {
        0 => "no host".to_owned(),
        many if many > HOSTS => format!("{} and {} more", names[..HOSTS].join(", "), many - HOSTS),
        _ => names.join(", "),
    };
    format!("{} for {names} until {}", certificate.name, date(certificate.not_after))
}
