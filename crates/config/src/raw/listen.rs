//! Raw section `listen`.

use crate::authority::{self, socket_address};
use crate::scalars::{FilePath, HttpsRedirect, Socket, Span};
use crate::section::{any, positive, section, stored_as_written, text};
use crate::serde_forms::{OneOrMany, string_or_map};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// Directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Listener for clients: an address and port, or keys.
#[derive(Clone, Debug)]
pub(crate) struct Listen(pub ListenerKeys);

section! {
    /// Listener for clients.
    pub(crate) struct ListenerKeys {
        /// Address and port. Required.
        address: Option<Socket>;
        /// TLS 1.2 and 1.3, with HTTP/2 or HTTP/1.1 as the client prefers. Default none: HTTP without TLS.
        tls: Option<TlsKeys>;
        /// true: each connection must begin with a header of the PROXY protocol, version 1 or 2, from a peer in
        /// clients.trusted_proxies; others are closed. The address in the header then counts as the peer of the
        /// connection. A header without an address (LOCAL, UNKNOWN), as health checks send it, leaves the proxy as the
        /// peer.
        proxy_protocol: bool = false => bool, any;
        /// https: redirects every request for one of `hosts` to the same URL with https, at the port of the first
        /// listener with tls, or at another one, such as `https:443`. GET and HEAD get 301, other methods 308. Nothing
        /// is charged. Requires hosts; excludes tls. Default none.
        redirect: Option<HttpsRedirect>;
    }
}

section! {
    /// TLS of a listener.
    pub(crate) struct TlsKeys {
        /// PEM file with the certificate, followed by the intermediate certificates. This path, and those below, start
        /// at the directory of this file. The files are read again when they change; a pair that does not fit keeps the
        /// previous one in use. Required, or certificates.
        certificate: Option<FilePath>;
        /// PEM file with the private key of the certificate. Required with certificate.
        key: Option<FilePath>;
        /// File with an OCSP response for the certificate, in DER, which is sent along. Default none.
        ocsp: Option<FilePath>;
        /// Several certificates, at most 1000. The client is sent the first one that has the name that it asks for:
        /// exactly, else as a wildcard. A client that asks for no name or for another one is sent the first of all.
        /// Default none.
        certificates: Vec<CertificateKeys>;
        /// Certificate that the gateway orders from an ACME server and renews. Excludes certificate and certificates.
        /// Default none.
        acme: Option<AcmeKeys>;
        /// PEM file with the authorities of client certificates. Default none: clients are not asked for a certificate.
        client_ca: Option<FilePath>;
        /// required: clients without a valid certificate are disconnected. optional: only those with an invalid one
        /// are. Requires client_ca.
        client_certificates: ClientCertificates = ClientCertificates::Required => ClientCertificates, any;
        /// Time for which browsers use https only, as the max-age of `Strict-Transport-Security`. The field is added to
        /// responses over TLS, unless the origin sends one. Default none: it is not added.
        hsts: Option<Duration> = None => Span, positive;
    }
}

section! {
    /// A certificate and its key.
    pub(crate) struct CertificateKeys {
        /// PEM file with the certificate, followed by the intermediate certificates. Required.
        certificate: Option<FilePath>;
        /// PEM file with the private key of the certificate. Required.
        key: Option<FilePath>;
        /// File with an OCSP response for the certificate, in DER. Default none.
        ocsp: Option<FilePath>;
    }
}

section! {
    /// Certificate from an ACME server. To use it is to agree to the terms of service of that server.
    pub(crate) struct AcmeKeys {
        /// Names of the certificate, 1 to 100. Each must lead to this gateway: the server asks it for a token at port 80,
        /// or for a handshake at port 443. With hook, none is asked, and wildcards such as `*.example.com` are possible,
        /// which stand for one label. Required.
        domains: Vec<String>;
        /// URL at which the server may tell its operator of problems, such as `mailto:ops@example.com`. Default none.
        contact: Option<String> = None => String, text(mailto_url);
        /// Command that sets and removes DNS records (DNS-01): the program, and its arguments. It is called with `set NAME
        /// VALUE` or `remove NAME VALUE` appended, without a shell, as the user of the gateway. Its path starts at the
        /// directory of this file; a name without a slash is searched in PATH. Default none: the server asks the
        /// gateway.
        hook: Vec<String> = Vec::new() => OneOrMany<String>, any;
        /// URL of the directory of the server. The default is that of Let's Encrypt.
        directory: String = LETS_ENCRYPT.to_owned() => String, text(https_url);
        /// PEM file with the authorities that sign the certificate of the server itself, or with exactly that
        /// certificate, for a private server. The path starts at the directory of this file. Default: the public
        /// authorities.
        ca: Option<FilePath>;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientCertificates {
    Optional,
    Required,
}

stored_as_written!(ClientCertificates);

fn mailto_url(text: &str) -> Option<String> {
    let problem = format!("found {text:?}, needs a mailto: URL; write it like mailto:ops@example.com, or leave it out");
    (!is_url_of(text, "mailto:")).then_some(problem)
}

fn https_url(text: &str) -> Option<String> {
    let authority = text.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#']).next());
    let is_valid = is_url_of(text, "https://") && authority.is_some_and(|text| authority::parse(text).is_ok());
    (!is_valid).then(|| format!("found {text:?}, needs an https:// URL; write it like {LETS_ENCRYPT}"))
}

fn is_url_of(text: &str, scheme: &str) -> bool {
    let rest = text.strip_prefix(scheme).unwrap_or_default();
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic())
}

impl From<ListenerKeys> for Listen {
    fn from(keys: ListenerKeys) -> Self {
        Self(keys)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let needs = "an address and port; write it like 127.0.0.1:8080 or \"[::1]:8080\"";
        string_or_map::<D, Self, ListenerKeys>(deserializer, needs, |word| {
            let address = Some(Socket(socket_address(word)?));
            Some(Self(ListenerKeys { address, ..ListenerKeys::default() }))
        })
    }
}

impl JsonSchema for Listen {
    fn schema_name() -> Cow<'static, str> {
        "Listen".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (address, keys) = (generator.subschema_for::<Socket>(), generator.subschema_for::<ListenerKeys>());
        json_schema!({ "anyOf": [address, keys] })
    }
}
