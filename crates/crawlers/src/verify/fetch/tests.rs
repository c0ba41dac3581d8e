use super::*;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const FETCH_LIMITS: FetchLimits = FetchLimits {
    max_bytes: 100,
    timeout: Duration::from_secs(120),
    max_redirects: 1,
    allowed_addresses: AllowedAddresses::Any,
};

#[tokio::test]
async fn document_has_its_body_and_cache_headers() {
    let server = TestServer::with_responses(&[
        "200 OK\r\nContent-Type: application/json\r\nCache-Control: public\r\nETag: \"1\"\r\nLast-Modified: Sat\r\n\
         Cache-Control: max-age=60\r\nContent-Length: 2\r\n\r\n{}",
    ])
    .await;
    let document = server.fetch("/bots.json?x", &Validators::default()).await.expect("a document");
    let validators = Validators { etag: Some("\"1\"".into()), last_modified: Some("Sat".into()) };
    let expected = Document {
        body: Bytes::from_static(b"{}"),
        content_type: Some("application/json".into()),
        cache_control: Some("public,max-age=60".into()),
        validators,
    };
    assert_eq!(document, FetchOutcome::Document(expected));
    let requests = server.requests();
    assert!(requests[0].starts_with("GET /bots.json?x HTTP/1.1\r\n"), "{requests:?}");
    assert!(!requests[0].contains("if-"), "{requests:?}");
}

#[tokio::test]
async fn not_modified_is_accepted_only_with_validators() {
    let server = TestServer::with_responses(&["304 Not Modified\r\n\r\n", "304 Not Modified\r\n\r\n"]).await;
    let validators = Validators { etag: Some("\"1\"".into()), last_modified: Some("Sat".into()) };
    assert_eq!(server.fetch("/", &validators).await.expect("no change"), FetchOutcome::NotModified);
    let requests = server.requests();
    assert!(
        requests[0].contains("if-none-match: \"1\"\r\n") && requests[0].contains("if-modified-since: Sat\r\n"),
        "{requests:?}"
    );
    let result = server.fetch("/", &Validators::default()).await;
    assert!(matches!(result, Err(FetchError::Status(StatusCode::NOT_MODIFIED))), "{result:?}");
}

#[tokio::test]
async fn redirects_are_limited_in_server_and_number() {
    let document = "200 OK\r\nContent-Length: 5\r\n\r\nthere";
    let server = TestServer::with_responses(&["302 Found\r\nLocation: /there\r\n\r\n", document]).await;
    assert!(matches!(server.fetch("/", &Validators::default()).await, Ok(FetchOutcome::Document(_))));
    let server = TestServer::with_responses(&["302 Found\r\nLocation: https://example.com/\r\n\r\n", document]).await;
    assert!(matches!(server.fetch("/", &Validators::default()).await, Err(FetchError::RedirectNotAllowed(_))));
    let redirect = "302 Found\r\nLocation: /on\r\n\r\n";
    let server = TestServer::with_responses(&[redirect, redirect, document]).await;
    assert!(matches!(server.fetch("/", &Validators::default()).await, Err(FetchError::TooManyRedirects(1))));
}

#[tokio::test]
async fn oversized_encoded_and_error_responses_are_rejected() {
    let large = format!("200 OK\r\n\r\n{}", "x".repeat(101));
    let responses = [large.as_str(), "200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n", "404 No\r\n\r\n"];
    let server = TestServer::with_responses(&responses).await;
    assert!(matches!(server.fetch("/", &Validators::default()).await, Err(FetchError::TooLarge { max_bytes: 100 })));
    assert!(matches!(server.fetch("/", &Validators::default()).await, Err(FetchError::UnexpectedEncoding)));
    assert!(matches!(server.fetch("/", &Validators::default()).await, Err(FetchError::Status(_))));
}

#[tokio::test]
async fn truncated_and_stalled_responses_are_errors() {
    let server = TestServer::with_responses(&["200 OK\r\nContent-Length: 10\r\n\r\nhalf"]).await;
    assert!(matches!(server.fetch("/", &Validators::default()).await, Err(FetchError::InvalidResponse { .. })));
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", silent.local_addr().expect("a bound address"));
    let limits = FetchLimits { timeout: Duration::from_millis(20), ..FETCH_LIMITS };
    let fetched = Fetcher::with_public_roots().fetch(&url, &limits, &Validators::default()).await;
    assert!(matches!(fetched, Err(FetchError::TimedOut(_))), "{fetched:?}");
}

#[tokio::test]
async fn untrusted_certificate_is_rejected() {
    let server = TestServer::with_responses(&["200 OK\r\nContent-Length: 0\r\n\r\n"]).await;
    let fetched = Fetcher::with_public_roots().fetch(&server.url("/"), &FETCH_LIMITS, &Validators::default()).await;
    assert!(matches!(fetched, Err(FetchError::Unreachable { .. })), "{fetched:?}");
}

#[tokio::test]
async fn private_addresses_are_out_of_reach() {
    let server = TestServer::with_responses(&["200 OK\r\nContent-Length: 0\r\n\r\n"]).await;
    let limits = FetchLimits { allowed_addresses: AllowedAddresses::Public, ..FETCH_LIMITS };
    for url in [server.url("/"), server.url("/").replace("127.0.0.1", "localhost")] {
        let fetched = server.fetcher.fetch(&url, &limits, &Validators::default()).await;
        assert!(matches!(fetched, Err(FetchError::AddressNotAllowed { .. })), "{fetched:?}");
    }
    assert_eq!(server.requests(), Vec::<String>::new());
}

/// HTTPS server on loopback with the same responses for each client, one per connection.
struct TestServer {
    address: SocketAddr,
    fetcher: Fetcher,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    async fn with_responses(responses: &[&str]) -> Self {
        let (roots, acceptor) = test_ca();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let responses: Vec<String> = responses.iter().map(|response| format!("HTTP/1.1 {response}")).collect();
        let request_log = Arc::clone(&requests);
        tokio::spawn(async move {
            for response in responses {
                let (stream, _) = listener.accept().await.expect("a client");
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = [0; 4096];
                let length = stream.read(&mut head).await.expect("a request");
                request_log.lock().push(String::from_utf8_lossy(&head[..length]).into_owned());
                let _ = stream.write_all(response.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { address, fetcher: Fetcher::with_roots(roots), requests }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    async fn fetch(&self, path: &str, validators: &Validators) -> Result<FetchOutcome, FetchError> {
        self.fetcher.fetch(&self.url(path), &FETCH_LIMITS, validators).await
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

/// Returns a certificate authority of this test, and an acceptor whose certificate it signed.
fn test_ca() -> (RootCertStore, TlsAcceptor) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certificate = CertificateParams::new(names).expect("names").signed_by(&key, &issuer).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .expect("a matching key");
    (roots, TlsAcceptor::from(Arc::new(config)))
}
