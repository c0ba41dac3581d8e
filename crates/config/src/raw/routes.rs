//! Raw section `routes`.

use super::cache::RouteCache;
use super::classes::{CookieConditions, HeaderConditions};
use super::header_changes::HeaderChanges;
use super::redirect::RouteRedirect;
use super::route_cost::RouteCost;
use super::route_json::JsonConditions;
use crate::scalars::{Span, Verb};
use crate::serde_forms::{NamedMap, OneOrMany};
use schemars::JsonSchema;
use serde::Deserialize;

/// A set of requests with the same costs and scopes.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Route {
    /// Path pattern: `*` is any text within a segment; `**` at the end is any rest, before the last segment any
    /// directories, as in `/**/*.css`. Required.
    #[serde(rename = "match")]
    pub path: Option<String>,
    /// Comparison of letter case in the path. ignore: ASCII letters match in either case. exact: only as written.
    /// Default ignore for routes with a cost or scopes, so that /SEARCH costs what /search costs; else exact.
    pub case: Option<Comparison>,
    /// Comparison of a trailing slash. ignore: /a and /a/ are one path. exact: only as written. Default as for case.
    pub trailing_slash: Option<Comparison>,
    /// Host name in lower case, without port: one, or a list; `*.example.com` is every host below it. Default any.
    pub host: OneOrMany<String>,
    /// Method in capitals: one, or a list; GET includes HEAD. Requests match in any letter case. Default any.
    pub method: OneOrMany<Verb>,
    /// Required query parameters: one, or a list of `name` or `name=value`; all must be present. Parameters of a
    /// request are percent-decoded before the comparison. `page[]` and `page[1]` are `page`, a semicolon separates
    /// parameters like `&`, and letter case of names follows `case`. Default none.
    pub query: OneOrMany<String>,
    /// Values in the JSON body of the request, by path: { method: tools/call, "params.name": search } matches calls of one tool by
    /// JSON-RPC (MCP). Each value is a pattern, or a list of patterns of which one must match; `*` matches any text, in any case.
    /// At most 16 paths, written as for cost. All must match. Default none.
    ///
    /// The first 64 KiB of the body are received before the decision, also with stream, of requests that such a route may match
    /// by path, host, method and query; others are not affected. A request without a body does not match. A body that could be
    /// read in several ways counts as the most expensive of the routes that it may be meant for: one that is longer, is not one JSON
    /// object (also a batch or a list), is compressed, or repeats a key of a path or writes it in other letter case, whatever
    /// its Content-Type says. If those have costs in different quotas, lead to different origins, or are rewritten in different
    /// ways, it gets 400. The access log has the conditions that a body meets in `json`, never another value.
    pub json: JsonConditions,
    /// Header fields that the request has: a name, or { NAME: "value*" } with a pattern of the whole value, one or a list, as in
    /// `when` of a class: { x-api-version: "2" }. All fields must be there. Any client can send them: a field that is sent once, as
    /// its name is written here, leads to the route and its cost, one that may be read in another way to the most expensive route
    /// (below). Fields that the gateway writes, or that belong to the connection, are errors. Default none.
    ///
    /// A field that an origin may read in several ways counts as the most expensive of the routes that it may be meant for: one that is
    /// sent more than once, or as X_Api_Version. If those have costs in different quotas, lead to different origins, or are rewritten in
    /// different ways, the request gets 400. The cache keeps the responses of each condition apart, and Vary of responses has the fields
    /// that decided. The access log has the conditions that a request meets in `fields`, with their patterns, never another value.
    pub header: HeaderConditions,
    /// Cookies that the request has, like `header`; all of one name count. Default none.
    pub cookie: CookieConditions,
    /// Expected cost of a request in units, by quota: an amount to a thousandth, learned, or { json, per_byte, default }; at most
    /// 32 quotas per route. Default none, except 1 unit of the quota of each of its scopes; the route is refused for another quota only
    /// if the origin reports costs of its paths in the cost_header.
    ///
    /// `learned` reserves recent actual costs of the route, erring high: it rises at once, at most to double, and falls
    /// slowly. It starts with one unit and is kept over a reload, not over a restart. It requires cost_header or
    /// free_when_cached on the quota.
    ///
    /// { json: [max_tokens, max_completion_tokens], per_byte: 0.25, default: 1000 } reserves what the JSON body of the request
    /// states: the largest number at one of the paths, plus per_byte units for each byte of the body (its Content-Length, or what
    /// was received). Without a number, it reserves the larger of default and those of the bytes. Once 32 requests have reported
    /// their costs, a request reserves at most what costs are learned to be, as `learned` does; a request that reserves less than
    /// that does not lower it. At most the limit is reserved, or per_client of it. The first 64 KiB of a body are received before
    /// the decision, also with stream, within limits.request_body_timeout and limits.min_rate. What the response reports is
    /// charged in the end; without a report, what was reserved is.
    pub cost: NamedMap<RouteCost>,
    /// Origin of the responses, by its name in `origins`. Required if these are several, unless the route redirects. The
    /// cache keeps the responses of each origin apart. A path that can be read as pages of different origins, such as
    /// /v1/..;/internal, gets 400. Default the only origin.
    pub origin: Option<String>,
    /// Path that the origin is sent in place of the client's, such as /new/{rest}: `{rest}` is what `**` at the end of
    /// `match` stands for. Its spelling stays, but for dot segments, which are resolved, and slashes at its start. The query
    /// stays. A path that some origin could read as one outside of /new/ gets 400. The decision, the cache and the log see
    /// the path as the client sent it. Redirects and links of the origin are not rewritten. Default none.
    pub rewrite: Option<String>,
    /// Scopes that the request uses: one, or a list. A route that names others than `default` is not in `default`.
    /// Default `default`.
    pub scopes: OneOrMany<String>,
    /// false: response times of the route do not count for autothrottle and adaptive_concurrency. Set it for health
    /// checks, and for pages that are slow for reasons other than load. Default true.
    pub sample_latency: Option<bool>,
    /// true: the origin receives the request body while the client sends it, so that a slow client occupies its slots.
    /// Set it for large uploads whose beginning the origin needs at once. Default false: the body is received first
    /// (limits.buffer_body).
    pub stream: bool,
    /// As origin.response_timeout, for this route: set it for responses that the origin prepares for long, and for streams
    /// with long pauses. Default that of the origin.
    pub response_timeout: Option<Span>,
    /// Caching of responses: off, or { ttl, revalidation_cost, key }. It requires the section cache. Default on with that
    /// section, as the origin's fields allow.
    pub cache: Option<RouteCache>,
    /// false: responses are not compressed. Default true, with the section compression.
    pub compress: Option<bool>,
    /// Redirect in place of a response of the origin: a target, or { to, status }. It costs nothing, takes no slot and is
    /// logged; blocks and buckets apply. GET and HEAD of robots.txt, and the crawl policy, are served as usual. Excludes
    /// cost, scopes, origin, rewrite, cache, stream, response_timeout, sample_latency and request_headers. Default none.
    pub redirect: Option<RouteRedirect>,
    /// Changes of the header fields of requests to the origin: { set, add, remove }, of at most 32 fields and 8 KiB. The
    /// decision, the cache and the log see the fields as the client sent them. Fields that the gateway needs or writes
    /// itself are errors. Default none.
    pub request_headers: HeaderChanges,
    /// Changes of the header fields of responses to clients: { set, add, remove }, of at most 32 fields and 8 KiB. They
    /// apply to each response as it is sent, also to a stored one, and not to what is stored. To the gateway's own
    /// responses, such as refusals, set and add append the fields that these do not have. Default none.
    pub response_headers: HeaderChanges,
}

/// Comparison of a spelling.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Comparison {
    /// The spelling must be equal.
    Exact,
    /// A different spelling matches.
    Ignore,
}
