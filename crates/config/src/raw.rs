//! The YAML as written: one serde type per section, in [`File`]. Unknown keys are errors. `validate` checks the values.
//!
//! The doc comments are the descriptions of the JSON Schema, which editors show and docs/reference/CONFIGURATION.md is
//! generated from. Each one states the type, effect, unit, bounds and default of its key. In the sections that
//! [`crate::section`] declares, the schema adds the default.

pub(super) mod address_lists;
pub(super) mod bot_detection;
pub(super) mod cache;
pub(super) mod classes;
pub(super) mod clients;
pub(super) mod compression;
pub(super) mod error_pages;
pub(super) mod forward_auth;
pub(super) mod header_changes;
pub(super) mod ledger;
pub(super) mod listen;
pub(super) mod log;
pub(super) mod notify;
pub(super) mod origin;
pub(super) mod partition;
pub(super) mod promise;
pub(super) mod redirect;
pub(super) mod route_cost;
pub(super) mod route_json;
pub(super) mod routes;
pub(super) mod scopes;
pub(super) mod server;
pub(super) mod traces;
pub(super) mod verify;

use super::scalars::{FilePath, Host, Threads};
use super::sections::api_keys::ApiKeys;
use super::sections::crawl_policy::CrawlPolicyDocument;
use super::sections::headers::Headers;
use super::sections::limits::Limits;
use super::sections::quotas::Quota;
use super::sections::sessions::SessionsForm;
use super::serde_forms::{NamedMap, OneOrMany, present_or_default};
use super::short_forms::ShortForm;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of Tidegate. `${NAME}` and `${NAME:-default}` in a value are replaced by environment variables.
/// Relative paths start at the working directory of the process, those of certificates and error pages at the directory of
/// the file.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    /// Listeners for clients: an address and port, for HTTP/1.1 and HTTP/2 without TLS, or { address, tls,
    /// proxy_protocol, redirect }; one, or a list. A change takes effect at the next start. Default 127.0.0.1:8080.
    pub listen: Option<OneOrMany<listen::Listen>>,
    /// Number of threads that process requests, 1 to 1024, or auto: one per CPU core. A change takes effect at the next
    /// start. Default auto.
    pub workers: Option<Threads>,
    /// Listener for the administrator, with metrics, health, state and corrections: off, or { listen, token }. `off`
    /// disables it; the commands and the metrics are then not available. A change takes effect at the next start.
    /// Default { listen: 127.0.0.1:9090 }.
    pub admin: Option<server::AdminListener>,
    /// Listener for other proxies, such as nginx, Caddy, Traefik, Envoy and HAProxy, which ask whether they may forward a
    /// request. Default none. docs/FORWARD_AUTH.md has a file for each proxy.
    ///
    /// The request asked about is decided like one that the gateway forwards: kind of the client, class, bucket, quotas and
    /// pacing. The cache, the slots of scopes and the documents of the gateway (robots.txt, crawl policy) have no part in
    /// it. An admitted request gets 200 and no body, a refused one the refusal. Its expected cost is charged, unless the
    /// proxy reports another one.
    pub forward_auth: Option<forward_auth::ForwardAuthListener>,
    /// Directory of the ledger and other state. Each instance needs its own directory; a second instance on the same
    /// directory does not start. Never copy it to an instance that runs beside the original. Files: `ledger`, `journal`
    /// (usage), `gate` (identity with Redis), `demand.json` (learned demand), `baseline.json` (learned behavior of
    /// people, for bot detection), `notifications.json` (what was notified, and the counts of the promise), `ranges/`
    /// (last valid range lists), `cache/` (stored responses, if `cache` is configured; up to cache.disk.size), `lock`,
    /// and by default `access.log`. Relative paths, here and elsewhere but in listen, origin, ledger and error_pages,
    /// start at the working directory, not at the directory of this file. A change takes effect at the next start.
    /// Default ./state.
    pub state_dir: Option<FilePath>,
    /// Storage of quota usage: file (in state_dir), memory (a restart resets the usage), or { redis: ... }, through
    /// which several instances share their quotas. A change takes effect at the next start. Default file.
    pub ledger: ledger::Ledger,
    /// Server behind the gateway: its URL, such as http://127.0.0.1:3000, or keys. Required, here or as --origin, unless
    /// there are `origins`.
    pub origin: ShortForm<origin::Origin, String>,
    /// Several origins by name, each as `origin`: a URL, or keys. At most 64. They take the place of `origin`, and each route
    /// names its own (routes[].origin). Quotas, classes and scopes are those of the whole site. Health, connections, TLS and
    /// timeouts are those of each origin. Default none.
    pub origins: NamedMap<ShortForm<origin::Origin, String>>,
    /// The site's own hosts: one, or a list of names, such as example.com, wildcards, such as `"*.example.com"` (all names
    /// below it, not example.com itself), and addresses. At most 1000. Default none: every host is accepted.
    ///
    /// A request for another host, or of HTTP/1.0 without a host, gets 421 before anything is counted. Letters match in
    /// any case; a port and a last dot are ignored. The host is that of `Host`, of `:authority`, or of an absolute
    /// request target; `X-Forwarded-Host` has no effect. Name the addresses, too, to which health checks send requests.
    ///
    /// With the key, a signature counts only if it was made for an own host, and made-up hosts cause no request for
    /// robots.txt.
    pub hosts: Option<OneOrMany<Host>>,
    /// Handling of paths that origins read in different ways: strict, lenient or raw. Default strict.
    ///
    /// strict: a path with an encoded slash (%2F), a backslash (raw or %5C), or an encoded control character gets 400
    /// before anything is counted. lenient: they are accepted. A request then uses the route that matches any reading
    /// of its path: as a name or as a slash. If the readings match several routes, it uses the one with the highest
    /// cost. %00 always gets 400.
    ///
    /// With both, `;` parameters count as part of a segment and as absent, and the origin is sent the path with `.` and
    /// `..` resolved, without repeated slashes at its start, and with other characters than ASCII encoded. raw: like
    /// lenient, but the origin is sent the path as the client sent it; unresolved paths are one more reading.
    ///
    /// Replays read the paths of a log like lenient, or raw.
    pub paths: server::Paths,
    /// Identification of clients.
    pub clients: clients::Clients,
    /// Sessions of browsers: off, on, or { cookie, lifetime, enforce }. Default off.
    ///
    /// A browser gets a signed cookie with a refusal, and with a page that no cache stores; it holds for the client's network
    /// (a /24, a /48 of IPv6) and user agent. Nothing is stored but the key that signs, and the origin never sees the cookie.
    /// With the built-in classes, people without a session are the class `stranger`: they are paced behind search engines,
    /// and only people with a session have units kept for them. The first refusal of a stranger's page has `Refresh: 2` and
    /// `Retry-After: 2`: a browser repeats the request by itself with a session, and is decided as a person. Declared bots,
    /// assets, API requests and signed agents get no cookie. `when.session` is the condition for classes of your own.
    pub sessions: SessionsForm,
    /// Files of addresses, by name, for `when.address_list`: hosting companies, Tor exits, your own lists. At most 64
    /// lists; 100,000 networks in a list have no noticeable cost. `tidegate check` and the start report every invalid
    /// line by number. The gateway does not start with an invalid file: it has no previous version, and a block list
    /// would admit every client on it. Default none.
    pub address_lists: NamedMap<address_lists::AddressListFile>,
    /// Classification of user agents before the built-in list; first match wins. `{ match: TheirBrowser, kind: human }`
    /// exempts a client from bot detection. At most 1000 rules. Default none.
    pub user_agent_rules: Vec<classes::Agent>,
    /// Operators of crawlers, by name: additional ones, or changes to built-in ones. A key that is left out keeps its
    /// built-in value. A change takes effect at the next start. Default none.
    pub operators: NamedMap<verify::Operator>,
    /// Verification of crawlers.
    pub verify: verify::Verify,
    /// Detection of bots that send a browser's user agent, by their behavior.
    pub bot_detection: bot_detection::BotDetection,
    /// API keys of customers: a list of { name, class, sha256 }, or { file: keys.yaml } with such a list under `api_keys`. A
    /// change of the file takes effect within seconds. At most 10000. Default none.
    ///
    /// A request carries its key as `Authorization: Bearer KEY`, `X-Api-Key: KEY` or `Api-Key: KEY`; one with a valid key is in
    /// the class of the key, whose condition is `api_key: own`. The file has hashes only. The origin is sent the field, unless
    /// `request_headers` of the route change it.
    pub api_keys: ApiKeys,
    /// Quotas, by name: the units that requests may use per window. A name has up to 64 of a-z, 0-9, `_`, `.` and `-`.
    /// At most 1000 quotas, including those of scopes. Default none.
    pub quotas: NamedMap<Quota>,
    /// Classes of clients; first match wins. Clients without a match are in class `other`. A class without a bucket
    /// limits no client, so a class of exempt clients belongs above the others. Quotas still count and refuse exempt
    /// clients when no units remain; scopes limit all clients. "Block all" is one class with block: true. At most 1000
    /// classes. Default: search (verified search engines), feed (feed readers), monitor (services that watch sites), bot
    /// (all other bots, impostors, too) and person; `tidegate check` shows them. `classes: []` is none of them.
    pub classes: Vec<classes::Class>,
    /// Throttled parts of the origin, by name. A request needs a slot in every scope of its route. `default` applies to
    /// all routes that name no scope. At most 1000 scopes. Default none.
    pub scopes: NamedMap<scopes::Scope>,
    /// Routes with their costs and scopes; first match wins. A request without a match is free. At most 10000 routes.
    /// Default none.
    pub routes: Vec<routes::Route>,
    /// Cache of responses. Default none: nothing is stored.
    #[serde(deserialize_with = "present_or_default")]
    pub cache: Option<cache::Cache>,
    /// Compression of responses that the origin does not compress: on, or { codings, min_size, types }. A fetch whose
    /// response may be stored then asks the origin for none, so that one fetch serves all clients: the cache makes the
    /// compressed forms itself, and keeps one for each coding. Pages that show a secret beside text of the request can
    /// betray it by their length over TLS: set compress: false for their routes. Default none: responses pass as they are.
    #[serde(deserialize_with = "present_or_default")]
    pub compression: Option<compression::Compression>,
    /// What clients learn of their limits: header fields of responses, and the usage of a customer.
    pub headers: Headers,
    /// Bodies of the gateway's own refusals and failures, by status: `429`, or a class of statuses, `4xx` or `5xx`, for those
    /// without one: an HTML file, or { html, json }. Paths start at the directory of this file. Files are read at the start
    /// and at each reload; each has at most 64 KiB. Default none: a short page of the gateway, and problem+json.
    ///
    /// Clients that accept HTML get the HTML, all others the JSON. Status and fields stay. Error responses of the origin are
    /// its own: no body replaces them.
    ///
    /// Placeholders of files: `{{status}}` (429), `{{title}}` (Too Many Requests), `{{detail}}` (one sentence),
    /// `{{retry_after}}` (seconds) and `{{wait}}` (10 minutes) until a retry makes sense, both empty if no time is known, and
    /// `{{decision}}` (the id of the response in the log). Two opening braces always begin a placeholder. In a JSON file, they
    /// stand in strings; `{{status}}` and `{{retry_after}}` may also stand alone, as numbers, or null if no time is known.
    pub error_pages: NamedMap<error_pages::ErrorBodies>,
    /// Handling of robots.txt. The gateway fetches /robots.txt of each host from the origin, and caches it for an hour,
    /// or as the origin's Cache-Control specifies, at most a day; no-store and private are honored. If the origin is
    /// down, overloaded (429, 5xx), or slower than origin.response_timeout, crawlers get the cached copy, up to 30 days
    /// old.
    ///
    /// GET and HEAD, with any query and any spelling of the path, are never refused by a rule and never charged; the
    /// origin gets GET /robots.txt only. This request is the gateway's own: it has the client's host and scheme, the user
    /// agent tidegate/VERSION, and nothing else of the client. Requests with other methods are decided and charged as
    /// usual, and forwarded if admitted.
    ///
    /// At most two fetches are made at once. Hosts that `hosts` does not name and that no verified crawler has requested,
    /// such as made-up ones, names below a wildcard, and named hosts with an unusual port, are fetched one at a time and
    /// at a bounded rate: ten, then one more each 6 s. A request whose host cannot be fetched, or not within
    /// origin.response_timeout, gets the cached copy. Without a copy, it gets 503 with Retry-After; crawlers then read no
    /// page until they can read robots.txt.
    ///
    /// Texts that would exceed 500 KiB with the delays and the honeypot are served without them; the log reports it
    /// once, `notes` of /api/v1/state as long as it lasts. If the origin has no robots.txt, robots.txt contains the
    /// delays only.
    ///
    /// These responses are forwarded, without their Set-Cookie, and not cached: larger than 512 KiB, compressed, with
    /// Set-Cookie, with Vary on more than Accept-Encoding, with another type than text/plain (status 200), redirects, and
    /// statuses other than 200, 404 and 410.
    pub robots: server::Robots,
    /// Document at /.well-known/crawl-policy that describes the rules for crawlers: on, off, or { contact, show_units
    /// }. With off, the path is the origin's. Default off.
    ///
    /// The document is JSON, or HTML for clients that accept it. It is generated from memory at most every 10 s, costs
    /// nothing, takes no token and is never refused to GET and HEAD. Another method gets 405, which costs nothing either. Ratios are rounded to hundredths. It never contains keys,
    /// addresses, address lists, operators that only the file defines, classes that need one of these or have another
    /// condition than kind, operator, purpose and user agent, classes that no bot can match, and quotas and rules in
    /// shadow mode. Built-in operators are included whatever the file changes; a class that names both kinds is shown
    /// with the built-in ones. A blocked class has neither bucket nor quotas there. `crawl_delay_s` of a class is
    /// present if it is the same for all its crawlers.
    pub crawl_policy: CrawlPolicyDocument,
    /// Access log and log level. A change takes effect at the next start.
    pub log: log::Log,
    /// Webhooks to which events are sent, such as a quota that is nearly used: at most 16. `tidegate notify test` sends each of
    /// them a notification. Default none.
    pub notify: Vec<notify::WebhookKeys>,
    /// Export of traces to a collector of OpenTelemetry. With it, each request belongs to a trace (W3C Trace Context): that of its
    /// `traceparent`, or a new one. The origin is sent it, and log lines and problem documents have its id. Without it,
    /// `traceparent` of a client is forwarded as it is. Default none.
    pub traces: Option<traces::TracesKeys>,
    /// What the policy promises for each window of the first quota. The live page, `tidegate status`, metrics and notifications
    /// compare it with what was kept; it changes no decision. `tidegate plan` writes it. Default none.
    pub promise: promise::Promise,
    /// Connection, size and time limits.
    pub limits: Limits,
}

/// Names of the sections: the top-level keys.
pub(super) const SECTIONS: &[&str] = &[
    "listen",
    "workers",
    "admin",
    "forward_auth",
    "state_dir",
    "ledger",
    "origin",
    "origins",
    "hosts",
    "paths",
    "clients",
    "sessions",
    "address_lists",
    "user_agent_rules",
    "operators",
    "verify",
    "bot_detection",
    "api_keys",
    "quotas",
    "classes",
    "scopes",
    "routes",
    "cache",
    "compression",
    "headers",
    "error_pages",
    "robots",
    "crawl_policy",
    "log",
    "notify",
    "traces",
    "promise",
    "limits",
];
