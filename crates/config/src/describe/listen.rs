//! Listeners in words.

use super::format;
use crate::settings::{Acme, CertificateSource, ClientAuthority, HttpsRedirect, Listener, Tls};
use tidegate_policy::identity::ProxyTrust;

/// Returns what a listener does besides HTTP without TLS; `None` if that is all.
pub(super) fn listener(listener: &Listener) -> Option<String> {
    let Listener { address, tls, proxy_protocol, redirect } = listener;
    let mut parts = Vec::new();
    if *proxy_protocol {
        parts.push("PROXY protocol of trusted proxies".to_owned());
    }
    parts.extend(tls.as_ref().map(self::tls));
    parts.extend(redirect.map(|HttpsRedirect { port }| match port {
        None => "redirects to https".to_owned(),
        Some(port) => format!("redirects to https, port {port}"),
    }));
    (!parts.is_empty()).then(|| format!("{address}: {}", parts.join(", ")))
}

/// Returns where the address of a client is from.
pub(super) fn client_address(trust: &ProxyTrust, listeners: &[Listener]) -> String {
    let ProxyTrust { source, proxies, ipv6_prefix } = trust;
    let peer = match listeners.iter().any(|listener| listener.proxy_protocol) {
        true => "the connection, or the PROXY protocol of a trusted proxy",
        false => "the connection",
    };
    let proxies: Vec<String> = proxies.iter().map(ToString::to_string).collect();
    let source = match source.header().filter(|_| !proxies.is_empty()) {
        Some(header) => format!("{header} of trusted proxies ({}), else {peer}", proxies.join(", ")),
        None => peer.to_owned(),
    };
    format!("{source}; IPv6 by /{ipv6_prefix}")
}

fn tls(tls: &Tls) -> String {
    let Tls { certificates, client_authority, hsts } = tls;
    let mut text = match certificates {
        CertificateSource::Files(files) => {
            let names: Vec<String> = files.iter().map(|files| files.certificate.display().to_string()).collect();
            format!("TLS with {}", names.join(" and "))
        }
        CertificateSource::Acme(Acme { domains, directory, hook, .. }) => {
            let hook = hook.as_ref().map(|hook| format!(" by DNS records of {}", hook.program.display()));
            format!("TLS with a certificate for {} from {directory}{}", domains.join(" and "), hook.unwrap_or_default())
        }
    };
    match client_authority {
        None => {}
        Some(ClientAuthority { is_required: true, .. }) => text.push_str(", client certificates required"),
        Some(ClientAuthority { is_required: false, .. }) => text.push_str(", client certificates optional"),
    }
    if let Some(span) = hsts {
        text.push_str(&format!(", HSTS for {}", format::duration(*span)));
    }
    text
}
