//! Rules of a route for its fetches, and what becomes of each request field.

use crate::gateway::message::headers::FORWARDING;
use smallvec::SmallVec;
use tidegate_config::Settings;
use tidegate_http_cache::request_fields::{FetchField, fetch_field};
use tidegate_http1::{Field, Fields, Name, NameSet};
use tidegate_policy::RouteId;
use tidegate_policy::cache::{CacheRules, RouteCacheRules};

/// Fields of most requests, none of which is keyed by its value.
const COMMON_NAMES: &[Name] = &[
    Name::Host,
    Name::UserAgent,
    Name::AcceptEncoding,
    Name::AcceptLanguage,
    Name::Connection,
    Name::Cookie,
    Name::Authorization,
    Name::CacheControl,
    Name::Referer,
    Name::Priority,
    Name::SecChUa,
    Name::SecChUaMobile,
    Name::SecChUaPlatform,
    Name::SecFetchDest,
    Name::SecFetchMode,
    Name::SecFetchSite,
    Name::SecFetchUser,
    Name::UpgradeInsecureRequests,
    Name::ForwardedFor,
    Name::ForwardedProto,
    Name::ForwardedHost,
    Name::Via,
];
const UNCOMMON: NameSet = NameSet::of(COMMON_NAMES).complement();

/// Rules for the fetches of a route.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct FetchRules<'a> {
    pub(in crate::gateway) rules: &'a CacheRules,
    pub(in crate::gateway) route: &'a RouteCacheRules,
    /// Field in which a proxy names the client.
    pub(in crate::gateway) address_header: Option<&'a str>,
    /// The connection to the origin names the client of its requests.
    pub(in crate::gateway) names_clients: bool,
    /// The gateway compresses responses, and asks the origin for none that are.
    pub(in crate::gateway) is_compressed: bool,
}

impl<'a> FetchRules<'a> {
    /// Returns the rules of `route`; `None` if it is not cached.
    pub(in crate::gateway) fn of_route(settings: &'a Settings, route: RouteId) -> Option<Self> {
        let rules = &settings.rules;
        let names_clients = settings.origin(route).proxy_protocol.is_some();
        let route = &rules[route];
        Some(Self {
            rules: rules.cache.as_ref()?,
            route: route.cache.as_ref()?,
            is_compressed: rules.compression.is_some() && route.is_compressed,
            address_header: rules.trust.source.header(),
            names_clients,
        })
    }

    /// Returns what becomes of a field of the request. `is_selecting` returns true if responses of the URL named it in `Vary`.
    pub(super) fn fetch_field(&self, field: Field<'_>, is_selecting: impl Fn(&str) -> bool) -> FetchField {
        let name: SmallVec<[u8; 48]> = field.text.iter().map(u8::to_ascii_lowercase).collect();
        // A name that is no text is no name that the rules know.
        let name = std::str::from_utf8(&name).unwrap_or("?");
        self.field_named(name, field.value, self.is_named(name) || is_selecting(name))
    }

    fn field_named(&self, name: &str, value: &[u8], is_keyed: bool) -> FetchField {
        match is_keyed {
            false if self.address_header == Some(name) => FetchField::Dropped,
            is_keyed => fetch_field(name, value, is_keyed),
        }
    }

    /// Returns true if the rules make the field `name`, in lower case, a part of the key, or say that no response depends
    /// on it.
    pub(super) fn is_named(&self, name: &str) -> bool {
        let is_in = |names: &[String]| names.iter().any(|known| known == name);
        is_in(&self.rules.unkeyed_headers) || is_in(&self.route.key_headers)
    }

    /// Returns true if the address of the client is part of the key. Of the fields with an address, the gateway writes
    /// X-Forwarded-For for every request.
    pub(in crate::gateway) fn is_keyed_by_address(&self) -> bool {
        self.route.key_headers.iter().any(|name| name == "x-forwarded-for")
    }

    /// Returns true if a field with the address of the client, or with what else the gateway says of its way, is part of the key.
    pub(in crate::gateway) fn is_keyed_by_forwarding(&self) -> bool {
        let is_forwarding = |name: &String| {
            FORWARDING.contains(Name::from_bytes(name.as_bytes())) || self.address_header == Some(name.as_str())
        };
        self.route.key_headers.iter().any(is_forwarding)
    }

    /// Iterates over the fields that are sent and whose values are part of the key of the URL, because the rules do not name
    /// them.
    pub(super) fn keyed_by_value<'f>(&self, fields: &'f Fields) -> impl Iterator<Item = Field<'f>> {
        fields.with_names(UNCOMMON).filter(|field| self.is_keyed_by_value(*field))
    }

    fn is_keyed_by_value(&self, field: Field<'_>) -> bool {
        let becomes = match field.name {
            // Most requests have it, and its name need not be read.
            Name::Accept => self.field_named("accept", field.value, self.is_named("accept")),
            _ => self.fetch_field(field, |_| false),
        };
        becomes == FetchField::KeyedByValue
    }

    /// Returns true if each value of the field `name`, in lower case, is part of the key of the URL, so that it need not
    /// select among its responses.
    pub(super) fn is_always_keyed_by_value(&self, name: &str) -> bool {
        let is_keyed = self.is_named(name);
        name != "accept" && self.field_named(name, b"", is_keyed) == FetchField::KeyedByValue
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_policy::cache::ReloadPolicy;

    /// Returns rules of a cache under which no response depends on the fields `unkeyed_headers`.
    pub(in crate::gateway::cache) fn cache_rules(unkeyed_headers: Vec<String>) -> CacheRules {
        CacheRules {
            max_object: 0,
            ignored_parameters: Vec::new(),
            stale_when_refused: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            crowd_max_age: Duration::ZERO,
            reload: ReloadPolicy::None,
            unkeyed_headers,
        }
    }

    #[test]
    fn no_common_field_is_keyed_by_its_value() {
        for name in COMMON_NAMES {
            assert_ne!(fetch_field(name.text(), b"any", false), FetchField::KeyedByValue, "{name:?}");
        }
    }

    #[test]
    fn fields_known_by_number_are_keyed_as_by_their_names() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let spellings =
            ["Accept", "ACCEPT", "accept", "X-Custom", "Origin", "True-Client-IP", "Range", "Forwarded", "X_Accept"];
        let spellings: Vec<&str> = COMMON_NAMES.iter().map(|name| name.text()).chain(spellings).collect();
        for (keyed, unkeyed, address_header) in [
            (named(&[]), named(&[]), None),
            (named(&["accept", "x-custom"]), named(&[]), None),
            (named(&["origin"]), named(&["accept"]), Some("true-client-ip")),
            (named(&[]), named(&[]), Some("accept")),
        ] {
            let rules = cache_rules(unkeyed);
            let route = RouteCacheRules { key_headers: keyed, ..RouteCacheRules::default() };
            let rules =
                FetchRules { rules: &rules, route: &route, address_header, names_clients: false, is_compressed: false };
            for (text, value) in spellings.iter().flat_map(|text| {
                ["*/*", "text/html;q=0.8", "application/json", "text/htm", ""].map(|value| (text, value.as_bytes()))
            }) {
                let field = Field { name: Name::from_bytes(text.as_bytes()), text: text.as_bytes(), value };
                let by_name = rules.fetch_field(field, |_| false) == FetchField::KeyedByValue;
                let mut fields = Fields::new();
                fields.append_text(text, value);
                let is_keyed = rules.keyed_by_value(&fields).count() == 1;
                assert_eq!(is_keyed, by_name, "{field:?} {address_header:?}");
            }
        }
    }
}
