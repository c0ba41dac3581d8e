//! Evidence about the client of a live request: user agent, signature, published data of the operators, behavior.

use super::client_connection::ClientConnection;
use crate::gateway::message::target::{self, ClientRequest};
use crate::gateway::session::{Bearer, SessionToken};
use crate::gateway::worker::WorkerConfig;
use http::Version;
use tidegate_config::settings::Signatures;
use tidegate_crawlers::verify::api_key::listed_key;
use tidegate_crawlers::verify::signature::{SignaturePolicy, SignedMessage, VerifyTime};
use tidegate_engine::{Observation, ObservedRequest};
use tidegate_http1::{Fields, Name, RequestHead, list};
use tidegate_policy::address_lists::ListSet;
use tidegate_policy::api_keys::ListedKey;
use tidegate_policy::bot_detection::{BotScore, BrowserTraits, FetchMode, FetchSite, HeadersSeen, HintsBrand, Referer};
use tidegate_policy::identity::{ClientAddress, CredentialSource, cookie};
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::request_fields::FieldCondition;
use tidegate_policy::session::Session;
use tidegate_policy::{Claim, ClassId, ClientEvidence, OperatorId, Proof, RequestFacts, Rules, Signature, Timestamp};

/// Evidence about the client of a live request.
pub(in crate::gateway) struct LiveEvidence<'a> {
    pub(in crate::gateway) connection: &'a ClientConnection,
    pub(in crate::gateway) request: &'a ClientRequest,
    pub(in crate::gateway) facts: RequestFacts<'a>,
    pub(in crate::gateway) config: &'a WorkerConfig,
    pub(in crate::gateway) client_address: &'a ClientAddress,
    pub(in crate::gateway) now: Timestamp,
    /// Traits of the browser that the user agent names. Found with the claim.
    pub(in crate::gateway) browser: BrowserTraits,
    /// Observation for bot detection; `None` for declared bots. Found with the bot score.
    pub(in crate::gateway) observation: Option<Observation>,
    /// Content of a valid session cookie.
    pub(in crate::gateway) session: Option<SessionToken>,
}

impl LiveEvidence<'_> {
    fn verify_signature(&self, signatures: &Signatures) -> Signature {
        let Self { connection, request: ClientRequest { head, has_body, .. }, config, now, .. } = *self;
        let (worker, trust) = (&connection.worker, &config.settings.rules.trust);
        let secure = connection.is_https(trust, &head.fields);
        let message = SignedMessage { head, authority: target::host(head), secure, has_body: *has_body };
        let policy = SignaturePolicy {
            fetch_unlisted_keys: signatures.fetch_unlisted_keys,
            max_lifetime: signatures.max_lifetime,
        };
        let time = VerifyTime { now, uptime: worker.monotonic_now() };
        worker.shared().signatures.verify(&message, trust.key(self.client_address.client), policy, time)
    }
}

impl ClientEvidence for LiveEvidence<'_> {
    fn claim(&mut self) -> Claim {
        let (claim, browser) = self.connection.worker.user_agent_claim(self.facts.user_agent);
        self.browser = browser;
        claim
    }

    /// Verifies once, because a nonce may be valid once only.
    fn signature(&mut self) -> Signature {
        let Some(signatures) = &self.config.settings.verify.signatures else { return Signature::Absent };
        match self.request.head.fields.contains(Name::SignatureAgent) {
            true => *self.request.signature.get_or_init(|| self.verify_signature(signatures)),
            false => Signature::Absent,
        }
    }

    fn proof(&mut self, claimed: Option<OperatorId>) -> Proof {
        let worker = &self.connection.worker;
        claimed.map_or(Proof::Unknown, |operator| {
            worker.shared().operators.verify(operator, self.client_address.client, worker.monotonic_now())
        })
    }

    fn address_lists(&mut self) -> ListSet {
        self.config.lists_containing(self.client_address.client)
    }

    fn api_key(&mut self) -> Option<ListedKey> {
        let fields = &self.request.head.fields;
        listed_key(&self.config.settings.rules.api_keys, |name| fields.get_all_by_text(name), self.now)
    }

    fn api_key_classes(&mut self) -> Vec<ClassId> {
        self.config.settings.rules.api_key_classes(|source| credential(source, &self.request.head.fields))
    }

    fn certificate_classes(&mut self) -> Vec<ClassId> {
        match self.connection.certificate_names.as_slice() {
            [] => Vec::new(),
            names => self.config.settings.rules.certificate_classes(names),
        }
    }

    fn purpose(&mut self, operator: OperatorId) -> Option<Purpose> {
        self.connection.worker.shared().operators.purpose(operator)
    }

    fn field_classes(&mut self) -> Vec<ClassId> {
        if !self.config.has_field_conditions {
            return Vec::new();
        }
        let fields = &self.request.head.fields;
        self.config.settings.rules.field_classes(|condition| has_field(condition, fields))
    }

    fn session(&mut self) -> Session {
        let Self { connection, request, config, client_address, now, .. } = *self;
        let sessions = config.settings.sessions.as_ref().filter(|_| !request.session_cookies.is_empty());
        let Some(sessions) = sessions else { return Session::None };
        let client = config.settings.rules.trust.key(client_address.client);
        let bearer = Bearer::new(client, self.facts.user_agent);
        let keys = &connection.worker.shared().session_keys;
        let mut cookies = request.session_cookies.iter();
        self.session = cookies.find_map(|value| keys.verify(value, bearer, sessions.lifetime, now));
        self.session.map_or(Session::None, SessionToken::session)
    }

    fn network_origin(&mut self) -> NetworkOrigin {
        self.config.network_databases.lookup(self.client_address.client)
    }

    fn bot_score(&mut self) -> Option<BotScore> {
        let Self {
            connection,
            request: ClientRequest { head, .. },
            facts,
            config,
            client_address,
            browser,
            now,
            session: token,
            ..
        } = *self;
        let rules = &config.settings.rules;
        rules.bot_detection.as_ref()?;
        let observed = ObservedRequest {
            request: facts,
            client: client_address.client,
            browser,
            referer: Referer::from_header(head.fields.get(Name::Referer), facts.host),
            headers: headers_seen(head, rules, client_address, connection),
            session: config.settings.sessions.as_ref().map(|_| token.map_or(Session::None, SessionToken::session)),
            session_id: token.map_or(0, SessionToken::short_id),
        };
        self.observation = Observation::observe(&observed, &config.admission, now);
        self.observation.and_then(|observation| observation.score_if_suspected(&config.admission))
    }
}

/// Returns which headers are present and how the request arrived.
fn headers_seen(
    head: &RequestHead,
    rules: &Rules,
    address: &ClientAddress,
    connection: &ClientConnection,
) -> HeadersSeen {
    let has = |name| head.fields.contains(name);
    let through_proxy = connection.is_behind_proxy(&rules.trust);
    let secure = connection.is_https(&rules.trust, &head.fields);
    // The HTTP version of a proxy does not show that of the client.
    let old_http = head.version == Version::HTTP_10 && !through_proxy && address.client == connection.peer;
    let fields = &head.fields;
    let mode = fields.get(Name::SecFetchMode).and_then(FetchMode::from_value);
    let site = fields.get(Name::SecFetchSite).and_then(FetchSite::from_value);
    let brands = fields.get(Name::SecChUa);
    let lists_zstd = |value: &[u8]| memchr::memmem::find(value, b"zstd").is_some() || value.contains(&b'*');
    let lacks_zstd = secure && fields.get(Name::AcceptEncoding).is_some_and(|encodings| !lists_zstd(encodings));
    HeadersSeen::INSPECTED
        .with(HeadersSeen::ACCEPT, has(Name::Accept))
        .with(HeadersSeen::ENCODING, has(Name::AcceptEncoding))
        .with(HeadersSeen::LANGUAGE, has(Name::AcceptLanguage))
        .with(HeadersSeen::REFERER, has(Name::Referer))
        .with(HeadersSeen::HINTS, has(Name::SecChUa))
        .with(HeadersSeen::FETCH, has(Name::SecFetchMode))
        .with(HeadersSeen::UPGRADE, has(Name::UpgradeInsecureRequests))
        .with(HeadersSeen::USER_AGENT, has(Name::UserAgent))
        .with(HeadersSeen::TLS, secure)
        .with(HeadersSeen::HTTP_10, old_http)
        .with(HeadersSeen::NO_ZSTD, lacks_zstd)
        .with_fetch(mode, site)
        .with_hints_major(brands.and_then(chromium_version).unwrap_or(0))
        .with_hints_brand(brands.and_then(HintsBrand::from_value))
}

/// Returns the version of Chromium in `Sec-CH-UA`: `"Chromium";v="142", "Not A(Brand";v="8"`.
fn chromium_version(brands: &[u8]) -> Option<u16> {
    let brand = b"\"Chromium\";v=\"";
    let version = &brands[memchr::memmem::find(brands, brand)? + brand.len()..];
    let digits = version.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&version[..digits]).ok()?.parse().ok()
}

/// Returns true if the request has the header field or cookie of the condition, with a value that it accepts.
fn has_field(condition: &FieldCondition, fields: &Fields) -> bool {
    match &condition.source {
        CredentialSource::Header(name) => {
            // The origin does not see a field that the client declares one of its connection.
            let is_of_connection = |listed: &[u8]| listed.eq_ignore_ascii_case(name.as_str().as_bytes());
            !fields.all(Name::Connection).flat_map(list).any(is_of_connection)
                && condition.matches(fields.get_all_by_text(name.as_str()))
        }
        CredentialSource::Cookie(name) => condition.matches(cookie(fields.all(Name::Cookie), name).into_iter()),
    }
}

/// Returns the credential that the client sends, if any.
pub(in crate::gateway) fn credential<'a>(source: &'a CredentialSource, fields: &'a Fields) -> Option<&'a [u8]> {
    match source {
        CredentialSource::Header(name) => {
            fields.get_all_by_text(name.as_str()).next().filter(|value| !value.is_empty())
        }
        CredentialSource::Cookie(name) => cookie(fields.all(Name::Cookie), name),
    }
}
