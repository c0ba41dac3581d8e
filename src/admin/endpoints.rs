//! Endpoints of the admin listener, as listed in docs/reference/ADMIN_API.md.
//!
//! A test compares the table with the routes of [`router`](super::router()).

/// An endpoint of the admin listener.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Request method. `GET` includes `HEAD`.
    pub method: &'static str,
    /// Path pattern, as the router has it.
    pub path: &'static str,
    /// Effect, request body and response, as sentences.
    pub response: &'static str,
    /// Statuses of problem documents that only this endpoint sends, each with its cause.
    pub errors: &'static [(u16, &'static str)],
}

/// All endpoints.
pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        method: "GET",
        path: "/",
        response: "The live page. It holds no data: its script reads the endpoints below, with a session where a token is \
                   set. The same holds for its files.",
        errors: &[],
    },
    Endpoint {
        method: "GET",
        path: "/page/{file}",
        response: "Styles, scripts and icon of the page.",
        errors: &[(404, "The page has no such file.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/session",
        response: "What a browser with this cookie may do: `{\"token_required\": true, \"may_read\": true, \"may_write\": \
                   false}`. Without `admin.token`, the page changes nothing.",
        errors: &[],
    },
    Endpoint {
        method: "POST",
        path: "/api/v1/session",
        response: "Opens a session for the page. The body is `{\"token\": \"...\"}`, the token `admin.token` or \
                   `admin.read_token`. The response sets a cookie (HttpOnly, SameSite=Strict) that stands for the token for \
                   12 h. The last 32 sessions of each token are kept.",
        errors: &[(401, "The token is wrong."), (422, "The body is invalid.")],
    },
    Endpoint { method: "DELETE", path: "/api/v1/session", response: "Ends the session.", errors: &[] },
    Endpoint {
        method: "GET",
        path: "/healthz",
        response: "The process is alive: `{\"status\": \"alive\"}`. Needs no token.",
        errors: &[],
    },
    Endpoint {
        method: "GET",
        path: "/readyz",
        response: "The gateway is ready: `{\"status\": \"ready\"}`. The origin is resolved and the ledger is open. Needs \
                   no token.",
        errors: &[(503, "The gateway is not ready; `detail` has the reasons.")],
    },
    Endpoint {
        method: "GET",
        path: "/metrics",
        response: "The [metrics](METRICS.md) in the Prometheus text format. Dashboard and alert rules are in `grafana/`.",
        errors: &[],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/state",
        response: "The [state](#state) of the gateway; the data of `tidegate status`.",
        errors: &[],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/events",
        response: "Server-sent events: the event `state` once a second, with the document of `/api/v1/state`. A stream ends \
                   after 50 events; clients connect again.",
        errors: &[(503, "Sixteen streams are open.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/history",
        response: "`{\"hour\": [...], \"day\": [...], \"month\": [...]}`: samples of the last hour, the last day and the last 31 \
                   days, at most 361 each, oldest first. A sample has its `time` and the `quotas` with `name`, `used`, `limit` \
                   and `planned` (null without pacing). One of the hour and the day has, since the start, the `classes` with \
                   `name`, `admitted`, `refused` and `shadow_refused`, the `responses` with `statuses`, `bytes` and the number \
                   of requests by `latency`, as in the [state](#state), and the `cache` with `requests`, `answered` and the \
                   units `saved` by quota (null without one).",
        errors: &[],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/quotas",
        response: "A list of all [quotas](#quotas); the data of `tidegate quota show`.",
        errors: &[],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/quotas/{name}",
        response: "One [quota](#quotas).",
        errors: &[(404, "No quota has this name; `detail` lists the known ones.")],
    },
    Endpoint {
        method: "PUT",
        path: "/api/v1/quotas/{name}/used",
        response: "Sets the usage of the current window. The body is `{\"used\": N}`, N a number or a string such as \
                   `\"12.25\"`, with an optional name `by` of 1 to 64 characters. An enforced quota accepts 0 to its \
                   limit, less the units reserved for requests in flight; a quota in shadow mode may exceed its limit. \
                   It ends a Redis recovery of the quota and a closure by `sync_from`. The response is a \
                   [correction](#corrections). The correction is active at once, and stored before the response, or a \
                   warning is logged after 2 s.",
        errors: &[(404, "No quota has this name."), (422, "The body is invalid; `detail` has one line per error.")],
    },
    Endpoint {
        method: "POST",
        path: "/api/v1/quotas/{name}/reset",
        response: "Sets the usage to 0: the full limit of the window is available again, less reserved units. The body \
                   is empty or `{\"by\": \"NAME\"}`. The response is a [correction](#corrections).",
        errors: &[(404, "No quota has this name."), (422, "The body is invalid; `detail` has one line per error.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/usage",
        response: "The [usage](#usage) of each budget by each customer of a listed key, a list by name and quota; with `?key=NAME` of \
                   one customer. The data of `tidegate usage`.",
        errors: &[(404, "No such customer has a budget.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/usage/history",
        response: "What customers of listed keys have used in windows that have ended, by customer, quota and window; the data of \
                   `tidegate usage --month`. The query has the `month` (`2026-11`, by default the current one) and `key`, each \
                   optional. A record has `key`, `class`, `quota`, `limit`, `used`, `window_start` and `window_end`.",
        errors: &[(422, "The month is none, or its table cannot be read.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/cache",
        response: "The [cache](#cache); the data of `tidegate cache stats`.",
        errors: &[(404, "The configuration has no section `cache`.")],
    },
    Endpoint {
        method: "DELETE",
        path: "/api/v1/cache",
        response: "Removes stored responses: those of a URL (`?url=`), of all URLs that begin so (`?prefix=`), or those that \
                   have a tag in `Cache-Tag` or `Surrogate-Key` (`?tag=`). URLs have scheme and host and are \
                   percent-encoded. The response is `{\"removed\": N}`.",
        errors: &[
            (404, "The configuration has no section `cache`."),
            (422, "The query does not have one of `url`, `prefix` and `tag`, or it is invalid."),
        ],
    },
    Endpoint {
        method: "POST",
        path: "/api/v1/cache/warm",
        response: "Fetches a URL that has no fresh response, as a request of a class: `{\"url\": \"https://example.com/item/42\", \
                   \"class\": \"bot\"}`. It is decided, charged and logged like one of a client of that class, at the address \
                   0.0.0.0. With `\"site\": \"example.com\"`, a URL of another host gets 421 and is not fetched, unless \
                   `hosts` has its host. The response is `{\"status\": 200, \"refused\": false, \"stored\": true, \"cache_status\": \"...\", \
                   \"retry_after_s\": null}`, with the status, `Cache-Status` and `Retry-After` that a client would get; `refused` is \
                   true if the gateway refused the request, `stored` if the page was fetched whole and is stored. A response that \
                   ends before its end has status 502. A page that takes more than 10 s is stored later.",
        errors: &[
            (404, "The configuration has no section `cache`."),
            (422, "The body is invalid, the class is unknown, or too many such requests wait."),
        ],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/switches",
        response: "`{\"switches\": [...]}`: the switches in effect, as in the [state](#state); the data of `tidegate status`.",
        errors: &[],
    },
    Endpoint {
        method: "POST",
        path: "/api/v1/switches",
        response: "Sets a switch, which replaces one of the same `target`: `{\"target\": \"192.0.2.0/24\", \"effect\": \
                   \"block\", \"for_s\": 3600, \"why\": \"TEXT\"}`, with an optional name `by`. `target` is an address, a network, \
                   an operator, a class (`operator:NAME` or `class:NAME` if a name is both) or `maintenance`; `effect` is \
                   `block`, `allow` or `maintenance`. Only maintenance may lack `for_s` and `why`, and may have `except`, a \
                   list of up to 64 networks that are served. The response is the switch as in the [state](#state); a \
                   single IPv6 address becomes the network of its client.",
        errors: &[(
            422,
            "The body is invalid, the target is unknown, or there are 1,000 switches; `detail` has one line per error.",
        )],
    },
    Endpoint {
        method: "DELETE",
        path: "/api/v1/switches/{target}",
        response: "Ends the switch of a target, percent-encoded. The body is empty or `{\"by\": \"NAME\"}`. The response is the \
                   switch with `effect: \"off\"`.",
        errors: &[(422, "No switch of this target is in effect.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/decisions",
        response: "`{\"decisions\": [...]}`: [access log lines](ACCESS_LOG.md) of recent decisions, latest first, each with \
                   its evidence as sentences (`evidence_text`). Each worker stores its last 1,024. Parameters of the query: `class`, `reason` (also of shadow mode), `client` (the \
                   beginning of an address), `limit` (50, at most 500).",
        errors: &[(422, "A parameter is unknown or invalid.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/decisions/{id}",
        response: "The [access log line](ACCESS_LOG.md) of a decision. The id is the value of `X-Tidegate-Decision`. \
                   Each worker stores its last 1,024 decisions.",
        errors: &[(400, "The id is not 16 hexadecimal digits."), (404, "The decision is no longer stored.")],
    },
    Endpoint {
        method: "GET",
        path: "/api/v1/decisions/{id}/explanation",
        response: "The [explanation](#explanation) of a decision by the current configuration; the document of \
                   `tidegate explain ID --json`.",
        errors: &[(400, "The id is not 16 hexadecimal digits."), (404, "The decision is no longer stored.")],
    },
    Endpoint {
        method: "POST",
        path: "/api/v1/reload",
        response: "Reads the configuration again: `{\"reloaded\": true, \"summary\": \"...\"}`.",
        errors: &[
            (422, "The configuration is invalid; the current one stays. `detail` has one line per error."),
            (500, "The reload failed unexpectedly; the current configuration stays."),
        ],
    },
];

/// Statuses of problem documents that all endpoints send, each with its cause.
pub const COMMON_ERRORS: &[(u16, &str)] = &[
    (
        401,
        "`admin.token` is set, and `Authorization: Bearer TOKEN` or a session is missing or wrong; not `/healthz`, `/readyz`, \
         `/api/v1/session` and the page.",
    ),
    (
        403,
        "A browser sends the request from another site's page, or `admin.read_token` is sent with a request that changes \
         something; not `/healthz` and `/readyz`.",
    ),
    (404, "The path is unknown."),
    (405, "The path does not support the method; `Allow` lists the methods."),
    (413, "The request body exceeds 64 KiB."),
    (
        421,
        "`admin.token` is not set and `Host` is not localhost, a loopback address or the listen address; not `/healthz` \
         and `/readyz`.",
    ),
    (503, "There was no response within 10 s."),
];
