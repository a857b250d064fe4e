//! How requests come in and how the process leaves: a row for whatever is not as usual.

use super::table;
use crate::config::compile::certificate_dates::date;
use crate::config::settings::{
    HttpsPort, Listener, Server, ServerCertificate, ServerTls, TlsVersion,
};
use crate::config::units::show_duration;

/// Certificates may be for many hosts.
const HOSTS: usize = 4;

pub(super) fn server(server: &Server) -> String {
    let mut rows: Vec<Vec<String>> = server.listen.iter().filter_map(listener).collect();
    let mut add = |name: &str, what: String| rows.push(vec![name.to_owned(), what]);
    match server.redirect_https {
        Some(HttpsPort::OfListener) => add("redirect_https", "to the listener with TLS".to_owned()),
        Some(HttpsPort::Port(port)) => add("redirect_https", format!("to port {port}")),
        None => {}
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
