//! Raw section `listen`.

use crate::authority::socket_address;
use crate::scalars::{FilePath, HttpsRedirect, Socket, Span};
use crate::serde_forms::string_or_map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// Listener for clients: an address and port, or keys.
#[derive(Clone)]
pub(crate) struct Listen(pub ListenerKeys);

/// Listener for clients.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListenerKeys {
    /// Address and port. Required.
    pub address: Option<Socket>,
    /// TLS 1.2 and 1.3, with HTTP/2 or HTTP/1.1 as the client prefers. Default none: HTTP without TLS.
    pub tls: Option<TlsKeys>,
    /// true: each connection must begin with a header of the PROXY protocol, version 1 or 2, from a peer in
    /// clients.trusted_proxies; others are closed. The address in the header then counts as the peer of the connection.
    /// A header without an address (LOCAL, UNKNOWN), as health checks send it, leaves the proxy as the peer. Default
    /// false.
    pub proxy_protocol: bool,
    /// https: redirects every request for one of `hosts` to the same URL with https, at the port of the first listener
    /// with tls, or at another one, such as `https:443`. GET and HEAD get 301, other methods 308. Nothing is charged.
    /// Requires hosts; excludes tls. Default none.
    pub redirect: Option<HttpsRedirect>,
}

/// TLS of a listener.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsKeys {
    /// PEM file with the certificate, followed by the intermediate certificates. This path, and those below, start at the
    /// directory of this file. The files are read again when they change; a pair that does not fit keeps the previous one
    /// in use. Required, or certificates.
    pub certificate: Option<FilePath>,
    /// PEM file with the private key of the certificate. Required with certificate.
    pub key: Option<FilePath>,
    /// File with an OCSP response for the certificate, in DER, which is sent along. Default none.
    pub ocsp: Option<FilePath>,
    /// Several certificates, at most 1000. The client is sent the first one that has the name that it asks for: exactly,
    /// else as a wildcard. A client that asks for no name or for another one is sent the first of all. Default none.
    pub certificates: Vec<CertificateKeys>,
    /// Certificate that the gateway orders from an ACME server and renews. Excludes certificate and certificates. Default
    /// none.
    pub acme: Option<AcmeKeys>,
    /// PEM file with the authorities of client certificates. Default none: clients are not asked for a certificate.
    pub client_ca: Option<FilePath>,
    /// required: clients without a valid certificate are disconnected. optional: only those with an invalid one are.
    /// Requires client_ca. Default required.
    pub client_certificates: Option<ClientCertificates>,
    /// Time for which browsers use https only, as the max-age of `Strict-Transport-Security`. The field is added to
    /// responses over TLS, unless the origin sends one. Default none: it is not added.
    pub hsts: Option<Span>,
}

/// A certificate and its key.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CertificateKeys {
    /// PEM file with the certificate, followed by the intermediate certificates. Required.
    pub certificate: Option<FilePath>,
    /// PEM file with the private key of the certificate. Required.
    pub key: Option<FilePath>,
    /// File with an OCSP response for the certificate, in DER. Default none.
    pub ocsp: Option<FilePath>,
}

/// Certificate from an ACME server. To use it is to agree to the terms of service of that server.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AcmeKeys {
    /// Names of the certificate, 1 to 100, without wildcards. Each must lead to this gateway: the server asks it for a token at
    /// port 80, or for a handshake at port 443. Required.
    pub domains: Vec<String>,
    /// URL at which the server may tell its operator of problems, such as `mailto:ops@example.com`. Default none.
    pub contact: Option<String>,
    /// URL of the directory of the server. Default https://acme-v02.api.letsencrypt.org/directory, that of Let's Encrypt.
    pub directory: Option<String>,
    /// PEM file with the authorities that sign the certificate of the server itself, or with exactly that certificate, for a
    /// private server. The path starts at the directory of this file. Default: the public authorities.
    pub ca: Option<FilePath>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientCertificates {
    Optional,
    Required,
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
