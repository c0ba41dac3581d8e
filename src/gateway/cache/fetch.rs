//! A fetch from the origin whose response may be stored: what it is sent, and where its response belongs.

use super::fetch_lock::FetchGuard;
use super::fetch_rules::FetchRules;
use super::field_lines::MessageFields;
use super::key::{COOKIE_PREFIX, CacheKey, SelectedValues, UrlKey, cookie};
use super::placement::StorageTarget;
use super::saving::Saving;
use super::stored_response::StoredResponse;
use super::variants::{Selection, Variants};
use http::StatusCode;
use std::sync::Arc;
use tidegate_http_cache::accepted_codings::AcceptedCodings;
use tidegate_http_cache::request_fields::{FetchField, is_client_address, is_constant};
use tidegate_http_cache::storage::{self, StorageRequest, Unstorable};
use tidegate_http_cache::vary::SelectingFields;
use tidegate_http_cache::{FieldLines, ForwardReason, RequestDirectives, ReuseTerms};
use tidegate_http1::{Field, Fields, Name, RequestHead};
use tidegate_policy::Timestamp;

/// User agent of fetches, which are for all clients.
const USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// Fields of one request or connection, which a fetch without a body does not need.
const PER_REQUEST: [&str; 5] = ["te", "trailer", "max-forwards", "http2-settings", "content-length"];

/// Largest request fields that are kept with a response, in bytes.
const MAX_SELECTING_LINES: usize = 1024;

/// A fetch whose response may be stored.
pub(in crate::gateway) struct CacheFetch {
    pub(in crate::gateway) url: UrlKey,
    /// Request fields that select among the stored responses of the URL, if there are any.
    pub(in crate::gateway) variants: Option<Arc<Variants>>,
    /// The stored response to validate.
    pub(in crate::gateway) copy: Option<(CacheKey, Arc<StoredResponse>)>,
    /// Lock of the fetch; `None` if others do not wait for it.
    pub(in crate::gateway) guard: Option<FetchGuard>,
    pub(in crate::gateway) reason: ForwardReason,
    /// The request has cookies or credentials outside the key, and its response is probably for its client alone: the
    /// origin is sent all fields. A response that is `public` nevertheless is stored.
    pub(in crate::gateway) is_personal: bool,
    /// The origin has refused a fetch that names no client: this one names the client, and its response is for it alone.
    pub(in crate::gateway) is_refused_without_client: bool,
    /// What the client sent to name itself.
    pub(in crate::gateway) credentials: RequestCredentials,
    /// Another request has the lock, because this one waited for slots.
    pub(in crate::gateway) is_handed_over: bool,
    /// The request forbids the storage of its response.
    is_no_store: bool,
    sent: SentFetch,
}

/// What the origin was sent.
#[derive(Clone, Copy)]
struct SentFetch {
    /// Fields outside the key, besides cookies and credentials: the response may depend on them.
    has_unkeyed: bool,
    /// The connection to the origin may name the client: its response is for this client alone, or has the address in its
    /// key.
    may_name_client: bool,
    /// Codings that the client accepts.
    accepted: AcceptedCodings,
    requested_at: Timestamp,
}

/// Whom a stored response must be for.
#[derive(Clone, Copy, Default)]
pub(in crate::gateway) struct RequestCredentials {
    /// The request has cookies that are no part of the key.
    pub(in crate::gateway) has_cookies: bool,
    pub(in crate::gateway) has_authorization: bool,
}

impl RequestCredentials {
    pub(in crate::gateway) fn is_any(self) -> bool {
        self.has_cookies || self.has_authorization
    }
}

impl CacheFetch {
    pub(in crate::gateway) fn new(
        url: UrlKey,
        variants: Option<Arc<Variants>>,
        copy: Option<(CacheKey, Arc<StoredResponse>)>,
        reason: ForwardReason,
        wanted: &RequestDirectives,
    ) -> Self {
        let is_no_store = wanted.no_store;
        let requested_at = Timestamp::default();
        let accepted = AcceptedCodings::Identity;
        let sent = SentFetch { has_unkeyed: false, may_name_client: false, accepted, requested_at };
        Self {
            url,
            variants,
            copy,
            guard: None,
            reason,
            is_personal: false,
            is_refused_without_client: false,
            credentials: RequestCredentials::default(),
            is_handed_over: false,
            is_no_store,
            sent,
        }
    }

    /// Returns the key that others wait for: that of the response if it is known which fields select it, else that of
    /// the URL.
    pub(in crate::gateway) fn lock_key(&self, fields: &Fields) -> CacheKey {
        let among = self.variants.as_ref().and_then(|variants| variants.keys(self.url.key, fields).next());
        among.unwrap_or(self.url.key)
    }

    /// Leaves the fetch to a request that waits for it, of another client if there is one. This request goes on, too.
    pub(in crate::gateway) fn hand_over(&mut self) {
        self.is_handed_over |= self.guard.take().is_some();
    }

    /// Prepares the head for the origin at `now`: removes what is no part of the key, and asks for a validation if there
    /// is a copy.
    pub(in crate::gateway) fn prepare(&mut self, head: &mut RequestHead, rules: FetchRules<'_>, now: Timestamp) {
        self.sent.requested_at = now;
        let fields = &mut head.fields;
        self.sent.accepted = AcceptedCodings::read(&MessageFields(fields));
        let had_accept = fields.contains(Name::Accept);
        let variants = self.variants.clone();
        let is_selecting = |name: &str| variants.iter().any(|known| known.names().any(|known| known == name));
        let is_dropped = |field: Field<'_>| rules.fetch_field(field, is_selecting) == FetchField::Dropped;
        // The gateway's own: a response may not depend on who asked for it first.
        fields.remove(Name::Class);
        fields.remove(Name::Operator);
        // Trusted proxies pass on what clients send in them.
        self.write_site(fields, rules);
        match self.is_personal {
            // The gateway itself sends the address of the client.
            true => {
                let is_unkeyed = |field: Field<'_>| field.name != Name::ForwardedFor && is_dropped(field);
                self.sent.has_unkeyed = fields.iter().any(is_unkeyed);
            }
            false => {
                fields.retain(|field| !is_dropped(field));
                write_common_fields(fields);
            }
        }
        let is_for_client = self.is_personal || self.is_refused_without_client;
        self.sent.may_name_client = is_for_client || rules.is_keyed_by_address();
        self.sent.has_unkeyed |= is_for_client && rules.names_clients && !rules.is_keyed_by_address();
        match &rules.route.key_cookies {
            Some(names) => keep_cookies(fields, names),
            // A field without a cookie.
            None if !self.credentials.has_cookies => fields.remove(Name::Cookie),
            None => {}
        }
        let asked = if rules.is_compressed { AcceptedCodings::Identity } else { self.sent.accepted };
        fields.insert(Name::AcceptEncoding, asked.text().as_bytes());
        if !fields.contains(Name::UserAgent) && !self.is_personal {
            fields.append(Name::UserAgent, USER_AGENT.as_bytes());
        }
        if had_accept && !fields.contains(Name::Accept) {
            fields.append(Name::Accept, b"*/*");
        }
        if let Some((_, copy)) = &self.copy {
            let stored = copy.head.fields();
            let stored = MessageFields(&stored);
            if let Some(etag) = stored.first("etag") {
                fields.insert(Name::IfNoneMatch, etag);
            }
            if let Some(modified) = stored.first("last-modified") {
                fields.insert(Name::IfModifiedSince, modified);
            }
        }
    }

    /// Returns true if the connection to the origin may name the client.
    pub(in crate::gateway) fn may_name_client(&self) -> bool {
        self.sent.may_name_client
    }

    /// Writes scheme and host as they are in the key, whatever the client sent.
    fn write_site(&self, fields: &mut Fields, rules: FetchRules<'_>) {
        let host = self.url.host().as_bytes();
        fields.insert(Name::Host, host);
        if !rules.is_named("x-forwarded-host") {
            fields.insert(Name::ForwardedHost, host);
        }
        if !rules.is_named("x-forwarded-proto") {
            fields.insert(Name::ForwardedProto, self.url.scheme().as_bytes());
        }
    }

    /// Returns where the response to the request `sent` is stored, and on which terms.
    pub(in crate::gateway) fn storage(
        &self,
        sent: &Fields,
        status: StatusCode,
        response: &Fields,
        rules: FetchRules<'_>,
        now: Timestamp,
    ) -> Result<(StorageTarget, ReuseTerms), Unstorable> {
        let request = StorageRequest {
            is_no_store: self.is_no_store,
            has_authorization: self.credentials.has_authorization || sent.contains(Name::Authorization),
            has_cookies: self.credentials.has_cookies
                || (sent.contains(Name::Cookie) && rules.route.key_cookies.is_none()),
            requested_at: self.sent.requested_at,
            received_at: now,
            status: status.as_u16(),
            default_lifetime: rules.route.ttl,
            useful_stale: rules.rules.useful_stale(),
        };
        let terms = storage::terms(&request, &MessageFields(response))?;
        if self.sent.has_unkeyed {
            return Err(if request.has_cookies { Unstorable::Cookies } else { Unstorable::Authorization });
        }
        // A response without a coding is for all if the gateway, or the origin by choice, has made it so.
        let is_for_all = rules.is_compressed || self.sent.accepted.is_widest();
        let selected_by = SelectingFields::read(&MessageFields(response), is_for_all).ok_or(Unstorable::Vary)?;
        // One with a coding that the origin was not asked for is for clients like this one.
        let as_accepted = rules.is_compressed && selected_by.contains("accept-encoding");
        let of_client = as_accepted.then(|| {
            let mut fields = sent.clone();
            fields.insert(Name::AcceptEncoding, self.sent.accepted.text().as_bytes());
            fields
        });
        let sent = of_client.as_ref().unwrap_or(sent);
        if self.is_personal && selected_by.names().any(is_client_address) {
            return Err(Unstorable::Vary);
        }
        let selected_by = selected_by.filter(|name| !is_constant(name) || rules.is_named(name));
        // As sent: a field that `Connection` named is not part of what the origin saw.
        let url = self.url.clone().with_fields(sent, rules);
        Ok((self.target(&url, selected_by, sent, rules), terms))
    }

    fn target(&self, url_key: &UrlKey, vary: SelectingFields, sent: &Fields, rules: FetchRules<'_>) -> StorageTarget {
        let route = rules.route;
        let selecting = self.selecting_lines(&vary, sent, rules);
        let named = vary.filter(|name| !rules.is_always_keyed_by_value(name));
        // What other responses of the URL named was sent, so that this one may depend on it, too.
        let of_others = self.variants.iter().flat_map(|variants| variants.names()).filter(|name| {
            *name != "accept-encoding" && !rules.rules.unkeyed_headers.iter().any(|unkeyed| unkeyed == name)
        });
        let of_rules = route.key_headers.iter().map(String::as_str);
        let of_cookies = route.key_cookies.iter().flatten().map(|name| format!("{COOKIE_PREFIX}{name}"));
        let names = named.names().chain(of_others).chain(of_rules).map(str::to_owned);
        let fields = SelectingFields::from_names(names.chain(of_cookies));
        let values = SelectedValues::read(&fields, sent);
        StorageTarget {
            url_key: url_key.key,
            variants: self.variants.clone().filter(|_| url_key.key == self.url.key),
            selection: Selection { named, fields, values },
            url: self.url.url.as_str().into(),
            requested_at: self.sent.requested_at,
            plain_url: url_key.plain(),
            selecting,
            saving: self.copy.as_ref().map_or(Saving::NOTHING, |(_, copy)| copy.saving),
            usage: self.copy.as_ref().map(|(_, copy)| copy.usage.so_far()).unwrap_or_default(),
        }
    }

    /// Returns the lines of the request fields that select the response, which are named by the origin or the rules.
    /// Returns `None` if it is selected by what is perhaps of one client: its address, cookies, or fields that nothing names.
    fn selecting_lines(&self, vary: &SelectingFields, sent: &Fields, rules: FetchRules<'_>) -> Option<Box<[u8]>> {
        let is_of_client = |name: &str| matches!(name, "cookie" | "authorization") || is_client_address(name);
        let has_cookies = rules.route.key_cookies.as_ref().is_some_and(|names| !names.is_empty());
        let known = self.variants.iter().flat_map(|variants| variants.names());
        let of_rules = rules.route.key_headers.iter().map(String::as_str);
        let names = SelectingFields::from_names(vary.names().chain(known).chain(of_rules).map(str::to_owned));
        // A refresh names no other field, so that its request would be on another route.
        let is_by_condition = !rules.route.key_conditions.is_empty();
        if self.credentials.is_any() || has_cookies || is_by_condition || names.names().any(is_of_client) {
            return None;
        }
        let is_selecting = |text: &[u8]| names.names().any(|name| name.as_bytes().eq_ignore_ascii_case(text));
        if rules.keyed_by_value(sent).any(|field| !is_selecting(field.text)) {
            return None;
        }
        let lines = sent.to_lines(|field| is_selecting(field.text));
        (lines.len() <= MAX_SELECTING_LINES).then(|| lines.into())
    }
}

/// Writes the fields that are the same for all requests, whatever the client sent.
fn write_common_fields(fields: &mut Fields) {
    // The last line is the gateway's own.
    if let Some(via) = fields.all(Name::Via).last().map(<[u8]>::to_vec) {
        fields.insert(Name::Via, &via);
    }
    fields.retain(|field| !PER_REQUEST.iter().any(|name| field.text.eq_ignore_ascii_case(name.as_bytes())));
}

/// Keeps the first cookie of each of `names`: those that the key has.
fn keep_cookies(fields: &mut Fields, names: &[String]) {
    let pair = |name: &String| Some([name.as_bytes(), b"=", cookie(fields, name)?].concat());
    let kept: Vec<Vec<u8>> = names.iter().filter_map(pair).collect();
    let kept = kept.join(&b"; "[..]);
    fields.remove(Name::Cookie);
    if !kept.is_empty() {
        fields.append(Name::Cookie, &kept);
    }
}
