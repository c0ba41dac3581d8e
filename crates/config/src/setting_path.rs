//! Path of a setting, and the one place that spells the keys of the configuration.

use std::fmt;

/// Path of keys and indices from the top of the file, such as `quotas.places_api.tiers.search[1].shed`.
///
/// Each key that the gateway refers to has a method, so a misspelled key does not compile. A path is its text: a
/// top-level key `origin.url` is at the path of the setting that it means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SettingPath(String);

impl SettingPath {
    /// Path of the whole configuration. It is empty.
    pub const ROOT: Self = Self(String::new());

    /// Returns the path of the class at `index`.
    pub fn of_class(index: usize) -> Self {
        Self::ROOT.classes().index(index)
    }

    /// Returns the path of an operator of crawlers.
    pub fn of_operator(name: &str) -> Self {
        Self::ROOT.operators().entry(name)
    }

    /// Returns the path of a quota under `quotas`. That of a scope is at [`Self::quota`] of the scope.
    pub fn of_quota(name: &str) -> Self {
        Self::ROOT.quotas().entry(name)
    }

    /// Returns the path of the route at `index`.
    pub fn of_route(index: usize) -> Self {
        Self::ROOT.routes().index(index)
    }

    /// Returns the path of a scope.
    pub fn of_scope(name: &str) -> Self {
        Self::ROOT.scopes().entry(name)
    }

    /// Returns the path of the tiers of `class` in the quota at this path, in the short or the long form.
    pub fn tiers_of(&self, class: &str, is_long_form: bool) -> Self {
        let tiers = self.tiers().entry(class);
        if is_long_form { tiers.steps() } else { tiers }
    }

    /// Returns the path of the key `match` below this path.
    pub fn match_pattern(&self) -> Self {
        self.entry("match")
    }

    /// Returns the path of the entry `name` of the map at this path. The names of entries are those of the file, such
    /// as the name of a quota; a key of the schema has a method of its own.
    pub fn entry(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{self}.{name}")) }
    }

    /// Returns the path of the item at `index` of the list at this path.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{self}[{index}]"))
    }

    /// Returns the path without its last key or index; `None` for a top-level key.
    pub(super) fn parent(&self) -> Option<Self> {
        self.0.rfind(['.', '[']).map(|end| Self(self.0[..end].to_owned()))
    }

    /// Returns the keys from the top of the file.
    pub(super) fn keys(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Returns the last key.
    pub(super) fn last_key(&self) -> &str {
        self.keys().next_back().unwrap_or_default()
    }

    /// Returns true for [`Self::ROOT`].
    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if this path is `other` or below it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// Declares a method for each key that validation and the commands refer to.
macro_rules! keys {
    ($($key:ident)*) => {
        impl SettingPath {
            #[cfg(test)]
            pub(super) const KEYS: &[&str] = &["match", $(stringify!($key)),*];

            $(
                #[doc = concat!("Returns the path of the key `", stringify!($key), "` below this path.")]
                pub fn $key(&self) -> Self {
                    self.entry(stringify!($key))
                }
            )*
        }
    };
}

keys! {
    above access acme adaptive_concurrency add address address_from address_list address_lists admin api_key api_keys
    asn asn_database at autothrottle backoff block bucket burst ca cache capacity case certificate certificate_secret
    certificates check class classes client_ca client_certificates clients concurrency contains cookie cost cost_json
    country country_database counts crawl_delay delay delay_per_slot directory disk dns domains endpoint enforce
    error_pages exhausted expires file fill first_use fixed forward_auth header headers health honeypot hook host hosts html
    interval jitter json keep key kind ledger left_over limit limits listen log max max_clients max_concurrency
    max_connections_per_address max_delay max_keys max_object max_partitions max_size memory merge_crawl_delay
    metrics_by_key min min_delay mode name notify ocsp on operator operators origin origins pacing partition_by path
    people_refused per per_client prefix product_tokens promise proxy_protocol query quota quotas rampup ranges rate
    read_token redirect redis refresh refuse_with remove request_headers response_headers response_timeout
    revalidation_cost rewrite robots routes scopes search_served server_name session set sha256 shed signature_agents
    sliding start_delay status statuses steps stream success_statuses sync_from terms tiers tls to token traces
    trailing_slash trusted_proxies unkeyed_headers url urls usage user_agent user_agent_rules value verify webhook
    weights when window zone
}

impl fmt::Display for SettingPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
