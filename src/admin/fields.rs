//! Fields of the JSON documents of the admin API, as listed in docs/reference/ADMIN_API.md.
//!
//! A test compares the tables with the responses of a running gateway. In a path, `[]` stands for the items of a list.

/// A field of a JSON document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentField {
    /// Path from the top of the document.
    pub path: &'static str,
    /// JSON type of the value.
    pub json_type: &'static str,
    /// Meaning of the value, as sentences.
    pub meaning: &'static str,
}

/// Fields of `GET /api/v1/state`. Those of `quotas[]` are [`QUOTA_FIELDS`].
pub const STATE_FIELDS: &[DocumentField] = &[
    field("time", "time", "Current time of the gateway."),
    field("started", "time", "Start time of the process."),
    field("uptime_s", "integer", "Time since the start, in seconds."),
    field("version", "string", "Version of the program."),
    field("revision", "string", "Source revision of the program."),
    field("listen", "list of string", "Addresses on which clients are served."),
    field("admin", "string or null", "Address of the admin listener."),
    field("origin", "object", "Origin."),
    field("origin.authority", "string", "Host and port of the origin."),
    field("origin.resolved", "boolean", "True if the name of the origin is resolved."),
    field(
        "origin.addresses",
        "list of string",
        "Addresses of the origin. The list is empty until the name is resolved.",
    ),
    field(
        "origin.outage",
        "object or null",
        "Requests without a response of the origin. It is null if the origin responded to the last request.",
    ),
    field("origin.outage.since", "time", "Time of the first of them."),
    field("origin.outage.failed_requests", "integer", "Number of them."),
    field("origin.outage.last_error", "string", "Error of the last one."),
    field("settings", "object", "State of the configuration."),
    field("settings.loaded_at", "time", "Load time of the current configuration."),
    field("settings.last_reload_failed", "object or null", "The last reload, if it failed."),
    field("settings.last_reload_failed.time", "time", "Time of the failed reload."),
    field("settings.last_reload_failed.errors", "string", "Errors of the failed reload, one per line."),
    field(
        "not_ready_reasons",
        "list of string",
        "Reasons why the gateway is not ready, as sentences; empty if it is ready.",
    ),
    field("ledger_error", "string or null", "Error of the ledger. It is null if there is none."),
    field(
        "untrusted_proxy",
        "string or null",
        "Warning about a proxy that `trusted_proxies` does not name, with the YAML to write. It is null if none was seen.",
    ),
    field(
        "notes",
        "list of string",
        "Warnings: keys that wait for a restart, stale address lists and range lists, robots.txt served without \
         directives.",
    ),
    field("quotas", "list of object", "[Quotas](#quotas) of the current rules."),
    field("classes", "list of string", "Names of the classes, in order."),
    field("traffic", "list of object", "Requests of each class since the start."),
    field("traffic[].class", "string", "Name of the class."),
    field("traffic[].admitted", "integer", "Number of admitted requests."),
    field("traffic[].refused", "integer", "Number of refused requests."),
    field("traffic[].refused_by", "object of integer", "Refused requests by [reason](ACCESS_LOG.md#reason)."),
    field(
        "traffic[].shadow_refused",
        "integer",
        "Number of admitted requests that a rule in shadow mode (`enforce: false`) would have refused.",
    ),
    field("traffic[].shadow_refused_by", "object of integer", "These requests by [reason](ACCESS_LOG.md#reason)."),
    field(
        "spenders",
        "object",
        "Who asked for the most units. Requests that cost nothing do not count. Each worker keeps 512 entries of a kind and \
         drops the smaller half when they are full, so that amounts may be too low, never too high.",
    ),
    field("spenders.since", "time", "Start of the counts: the start of the last whole hour."),
    field("spenders.clients", "list of object", "The ten addresses that asked for the most units, by kind of client."),
    field("spenders.clients[].name", "string", "Address of the client."),
    field("spenders.clients[].kind", "string", "[Kind](ACCESS_LOG.md#kind) of the client."),
    field("spenders.clients[].requests", "integer", "Number of requests."),
    field("spenders.clients[].refused", "integer", "Number of refused requests."),
    field("spenders.clients[].units", "number", "Charged units, over all quotas."),
    field("spenders.clients[].units_asked", "number", "Expected cost of all requests, over all quotas, in units."),
    field("spenders.clients[].latest_decision", "string", "Id of the last decision, for `tidegate explain`."),
    field(
        "spenders.clients[].evidence",
        "list of string",
        "[Evidence](ACCESS_LOG.md#evidence) of that decision. Missing if the decision is no longer stored.",
    ),
    field(
        "spenders.networks",
        "list of object",
        "The ten networks (IPv4 /24, IPv6 /48) that asked for the most units.",
    ),
    field("spenders.networks[].name", "string", "As for clients."),
    field("spenders.networks[].requests", "integer", "As for clients."),
    field("spenders.networks[].refused", "integer", "As for clients."),
    field("spenders.networks[].units", "number", "As for clients."),
    field("spenders.networks[].units_asked", "number", "As for clients."),
    field("spenders.networks[].latest_decision", "string", "As for clients."),
    field(
        "spenders.paths",
        "list of object",
        "The ten paths that asked for the most units, as sent, without queries, cut at 200 bytes.",
    ),
    field("spenders.paths[].name", "string", "As for clients."),
    field("spenders.paths[].requests", "integer", "As for clients."),
    field("spenders.paths[].refused", "integer", "As for clients."),
    field("spenders.paths[].units", "number", "As for clients."),
    field("spenders.paths[].units_asked", "number", "As for clients."),
    field("spenders.paths[].latest_decision", "string", "As for clients."),
    field(
        "spenders.user_agents",
        "list of object",
        "The ten user agents that asked for the most units, as sent, cut at 200 bytes.",
    ),
    field("spenders.user_agents[].name", "string", "As for clients."),
    field("spenders.user_agents[].requests", "integer", "As for clients."),
    field("spenders.user_agents[].refused", "integer", "As for clients."),
    field("spenders.user_agents[].units", "number", "As for clients."),
    field("spenders.user_agents[].units_asked", "number", "As for clients."),
    field("spenders.user_agents[].latest_decision", "string", "As for clients."),
    field(
        "scopes",
        "list of object",
        "Scopes of the origin. A scope that is not throttled has only `name` and `inflight`.",
    ),
    field("scopes[].name", "string", "Name of the scope."),
    field("scopes[].inflight", "integer", "Number of requests in flight to the origin."),
    field("scopes[].queue_length", "integer", "Number of requests waiting for a slot."),
    field("scopes[].limit", "integer or null", "Current concurrency limit. It is null if there is none."),
    field("scopes[].delay_s", "number", "Current time between two requests, in seconds."),
    field("scopes[].backoff_s", "number", "Remaining backoff, in seconds; 0 if the scope is not backing off."),
    field(
        "scopes[].backoff_level",
        "integer",
        "Number of consecutive overloads, less one for each `backoff.window` without an overload.",
    ),
    field(
        "scopes[].backoff_parts",
        "integer",
        "Number of clients, networks and routes of the scope that back off on their own.",
    ),
    field("scopes[].controller", "string", "Controller: `autothrottle`, `gradient`, `rampup` or `fixed`."),
    field("scopes[].partitions", "integer", "Number of partitions. Only a partitioned scope has it."),
    field(
        "scopes[].busiest_partitions",
        "list of object",
        "The busiest partitions, at most 20. Only a partitioned scope has it. Do not partition by a header with a \
         secret.",
    ),
    field("scopes[].busiest_partitions[].partition", "string", "Partition key, or `(others)`."),
    field("scopes[].busiest_partitions[].inflight", "integer", "As for the scope."),
    field("scopes[].busiest_partitions[].queue_length", "integer", "As for the scope."),
    field("scopes[].busiest_partitions[].limit", "integer or null", "As for the scope."),
    field("scopes[].busiest_partitions[].delay_s", "number", "As for the scope."),
    field("scopes[].busiest_partitions[].backoff_s", "number", "As for the scope."),
    field("scopes[].busiest_partitions[].backoff_level", "integer", "As for the scope."),
    field("scopes[].busiest_partitions[].backoff_parts", "integer", "As for the scope."),
    field("scopes[].busiest_partitions[].controller", "string", "As for the scope."),
    field("crawlers", "list of object", "Crawl compliance of each operator's crawlers that sent requests."),
    field("crawlers[].operator", "string", "Name of the operator."),
    field(
        "crawlers[].crawl_delay_s",
        "integer or null",
        "Crawl delay in robots.txt, in seconds. It is null if there is none.",
    ),
    field("crawlers[].requests", "integer", "Number of requests."),
    field("crawlers[].robots_share", "number or null", "Share of the requests for robots.txt, 0 to 1."),
    field(
        "crawlers[].mean_interval_s",
        "number or null",
        "Mean interval between two page requests, in seconds. It is null before the second one.",
    ),
    field("crawlers[].violations", "integer", "Number of page requests before the crawl delay was over."),
    field(
        "crawlers[].violation_ratio",
        "number or null",
        "Violations per interval, 0 to 1. It is null without an interval.",
    ),
    field("connections", "integer", "Number of open client connections."),
    field("top_clients", "list of object", "The twenty clients refused most often."),
    field("top_clients[].key", "string", "Key of the client, as in the [access log](ACCESS_LOG.md)."),
    field("top_clients[].class", "string", "Class of the client."),
    field("top_clients[].refused", "integer", "Number of refusals by all rules, including tiers, quotas and scopes."),
    field(
        "top_clients[].bucket_remaining",
        "integer or null",
        "Tokens in the client's bucket. It is null without a bucket.",
    ),
    field(
        "top_clients[].limited_by",
        "string or null",
        "The client's own rule that refuses it now: `bucket` or `blocked`. It is null if there is none.",
    ),
    field(
        "top_clients[].limited_for_s",
        "integer or null",
        "Time until that limit ends, in whole seconds. It is null for a block.",
    ),
    field("log_lines_dropped", "integer", "Number of access log lines dropped because the writer could not keep up."),
    field("corrections", "list of object", "The last twenty manual corrections since the start, latest first."),
    field("corrections[].time", "time", "Time of the correction."),
    field("corrections[].quota", "string", "Name of the quota."),
    field("corrections[].from", "number", "Usage before the correction, in units."),
    field("corrections[].to", "number", "Usage after the correction, in units."),
    field("corrections[].peer", "string or null", "Address of the request's peer; for a Unix socket, its user."),
    field("corrections[].token", "boolean", "True if the admin token was sent."),
    field("corrections[].by", "string or null", "Name that the request gave; it is not verified."),
    field("switches", "list of object", "The [switches](#switches) in effect, by target."),
    field("switches[].target", "string", "Network, `operator:NAME`, `class:NAME` or `maintenance`."),
    field("switches[].effect", "string", "`block`, `allow` or `maintenance`."),
    field("switches[].since", "time", "Time of the change."),
    field(
        "switches[].until",
        "time or null",
        "End of the switch. It is null for maintenance without an announced end.",
    ),
    field("switches[].except", "list of string", "Networks that are served during maintenance."),
    field("switches[].why", "string or null", "Reason that the request gave."),
    field("switches[].by", "string or null", "Name that the request gave; it is not verified."),
    field("switches[].peer", "string or null", "Address of the request's peer; for a Unix socket, its user."),
];

/// Fields of a quota.
pub const QUOTA_FIELDS: &[DocumentField] = &[
    field("name", "string", "Name of the quota."),
    field("limit", "number", "Limit per window, in units."),
    field("enforce", "boolean", "False in shadow mode."),
    field("used", "number", "Units settled in the current window."),
    field("reserved", "number", "Units reserved for requests in flight."),
    field("remaining", "number", "Limit minus used and reserved units, at least 0."),
    field("overrun", "number", "Units that the origin reported as spent beyond the limit."),
    field("drift", "number", "Units reported by the origin minus units counted here."),
    field(
        "closed_until",
        "time or null",
        "Time until which the quota is closed, because the origin reported that nothing remains \
         (`sync_from.exhausted`). It is null if the quota is open.",
    ),
    field("lost", "number", "Units counted as used after a crash, though they may not have been."),
    field("window_start", "time", "Start of the current window."),
    field("window_end", "time", "End of the current window."),
    field("window_ends_in_s", "integer", "Time until the end of the window, in seconds."),
    field("pacing", "object or null", "Pacing plan. It is null without pacing."),
    field("pacing.mode", "string", "Mode: `even` or `learned`."),
    field("pacing.planned", "number", "Units that the plan would have used by now."),
    field(
        "pacing.earmarked",
        "number",
        "Units for unpaced classes until the end of the window, at most those that remain.",
    ),
    field(
        "pacing.unpaced_demand_ratio",
        "number or null",
        "Forecast demand of unpaced classes until the end of the window, as a multiple of the units that remain. It is null \
         if none remain.",
    ),
    field("classes", "list of object", "Usage by class."),
    field("classes[].class", "string", "Name of the class."),
    field("classes[].charged", "number", "Units charged to the class since the start."),
    field("classes[].shed", "number", "Share of the class's requests that its tier refuses now, 0 to 1."),
    field("classes[].tier", "integer", "Number of tiers that the class has entered."),
    field("classes[].guard_units", "number", "Units admitted by the crawler guard since the start."),
    field(
        "classes[].plan",
        "object or null",
        "Plan of the class. It is null without pacing, and for a class that is refused from the first unit.",
    ),
    field(
        "classes[].plan.admit_share",
        "number or null",
        "Share of the class's demand that the plan admitted in the last 5 to 10 minutes, 0 to 1; planned if there was none. It \
         is null for an unpaced class.",
    ),
    field(
        "classes[].plan.tokens",
        "number or null",
        "Units that the class may use at once. It is null for an unpaced class.",
    ),
    field(
        "classes[].plan.refill_per_hour",
        "number or null",
        "Units that the class gains per hour. It is null for an unpaced class.",
    ),
    field("classes[].plan.forecast_24h", "list of number", "Forecast demand in each of the next 24 hours, in units."),
];

/// Fields of the response to a correction of a quota.
pub const CORRECTION_FIELDS: &[DocumentField] = &[
    field("name", "string", "Name of the quota."),
    field("from", "number", "Usage before the correction, in units."),
    field("to", "number", "Usage after the correction, in units."),
];

/// Fields of an explanation.
pub const EXPLANATION_FIELDS: &[DocumentField] = &[
    field("request", "object", "The explained request."),
    field("request.time", "time", "Time of arrival."),
    field("request.decision", "string or null", "Id of the decision. It is null for a hypothetical request."),
    field("request.method", "string", "Request method."),
    field("request.host", "string", "Requested host; empty if unknown."),
    field("request.path", "string", "Normalized path, as rules match it."),
    field("request.query", "string or null", "Query without the question mark."),
    field("request.client", "string", "Address of the client."),
    field("request.user_agent", "string", "User agent; empty if none was sent."),
    field("steps", "list of object", "All steps, in processing order."),
    field(
        "steps[].step",
        "string",
        "Stage: `identity`, `class`, `route`, `exempt`, `block`, `bucket`, `tier`, `pacing`, `quota` or `throttle`.",
    ),
    field("steps[].quota", "string or null", "Quota of a tier, pacing or quota step."),
    field(
        "steps[].finding",
        "string",
        "Result: `info`, `passed`, `refused`, `shadow` (would refuse if enforced), `depends` (on earlier requests), \
         `skipped` (the request was already refused) or `unknown` (known only to a running gateway).",
    ),
    field("steps[].message", "string", "Human-readable form of the result."),
    field("steps[].evidence", "list of string", "Evidence, one sentence each."),
    field("steps[].numbers", "object", "Inputs of the step. The following fields depend on the stage."),
    field("steps[].numbers.client", "string", "Identity: address of the client."),
    field("steps[].numbers.peer", "string", "Identity: address of the peer."),
    field("steps[].numbers.class", "string", "Class: name of the class."),
    field("steps[].numbers.kind", "string", "Class: kind of the client."),
    field("steps[].numbers.operator", "string or null", "Class: verified operator."),
    field("steps[].numbers.route", "string", "Route: `match` of the route."),
    field("steps[].numbers.cost", "number or object of number", "Route: units by quota. Quota: units of the request."),
    field("steps[].numbers.capacity", "integer", "Bucket: maximum number of tokens."),
    field("steps[].numbers.tokens", "number", "Bucket: tokens left. Pacing: units that the class may use at once."),
    field("steps[].numbers.used", "number", "Tier: units used and reserved before the request."),
    field("steps[].numbers.limit", "number", "Tier and quota: limit of the quota, in units."),
    field("steps[].numbers.tier", "integer", "Tier: number of tiers that the class has entered."),
    field("steps[].numbers.shed", "number", "Tier: share of the class's requests that the tier refuses, 0 to 1."),
    field("steps[].numbers.remaining", "number", "Quota: units remaining before the request."),
    field("steps[].numbers.resets_at", "time", "Quota: end of the window."),
    field("steps[].numbers.mode", "string", "Pacing: `even` or `learned`."),
    field("steps[].numbers.burst", "number", "Pacing: units that the class may use ahead of its plan."),
    field("steps[].numbers.planned", "number", "Pacing: units that the plan would have used."),
    field("steps[].numbers.earmarked", "number", "Pacing: units earmarked for unpaced classes."),
    field(
        "steps[].numbers.admit_share",
        "number",
        "Pacing: share of the class's requests that the plan admits, 0 to 1.",
    ),
    field("steps[].numbers.refill_per_hour", "number", "Pacing: units that the class gains per hour."),
    field("steps[].numbers.waited_ms", "number", "Throttle: time in the queue, in milliseconds."),
    field("steps[].numbers.scope", "string", "Throttle: scope that refused the request."),
    field("steps[].rule", "object or null", "Setting that decided."),
    field("steps[].rule.path", "string", "Path of keys from the top of the file."),
    field(
        "steps[].rule.at",
        "string or null",
        "`FILE:LINE:COL`, or the variable or option that sets it. It is null for a default.",
    ),
    field(
        "responses",
        "list of object",
        "The response. If it depends on earlier requests, there are two: one if the request is admitted, one if it is \
         refused.",
    ),
    field("responses[].verdict", "string", "`admitted` or `refused`."),
    field("responses[].reason", "string or null", "[Reason](ACCESS_LOG.md#reason) of the refusal."),
    field(
        "responses[].shadow",
        "string or null",
        "[Reason](ACCESS_LOG.md#reason) for which a rule in shadow mode would have refused the request.",
    ),
    field("responses[].status", "integer or null", "Response status. It is null if the origin determines it."),
    field(
        "responses[].retry_after_s",
        "integer or null",
        "`Retry-After` in seconds, without `headers.retry_after_spread`.",
    ),
    field("responses[].headers", "object of string", "Response headers that announce limits, by name."),
    field(
        "responses[].depends_on",
        "list of string",
        "Conditions on earlier requests that determine the verdict; empty if it does not depend on them.",
    ),
    field(
        "remedies",
        "list of object",
        "Changes, each of which alone would admit the request; empty if it is admitted.",
    ),
    field(
        "remedies[].change",
        "string",
        "Kind: `proof` (verification), `used` (lower usage), `position` (another position among the requests of the class), \
         `time`, `cost`, `class`, `limit` or `weight`.",
    ),
    field("remedies[].message", "string", "Human-readable form of the change."),
    field("remedies[].numbers", "object", "Machine-readable form. The following fields depend on the kind."),
    field("remedies[].numbers.at", "time", "Time: earliest time of the retry."),
    field("remedies[].numbers.zone", "string", "Time: time zone of the quota's window."),
    field("remedies[].numbers.operator", "string", "Proof: operator to verify."),
    field("remedies[].numbers.class", "string", "Proof: class of the verified client."),
    field(
        "remedies[].numbers.used_at_most",
        "object of number",
        "Used: highest usage that admits the request, by quota.",
    ),
    field(
        "remedies[].numbers.admit_share",
        "number",
        "Position: share of the class's requests that is admitted, 0 to 1.",
    ),
    field("remedies[].numbers.cost_at_most", "number", "Cost: highest cost that admits the request, in units."),
    field("remedies[].numbers.classes", "list of string", "Class: classes of which the request would be admitted."),
    field(
        "remedies[].numbers.limit",
        "number",
        "Limit (`tidegate explain --log` only): limit that admits the request, in units.",
    ),
    field(
        "remedies[].numbers.weight",
        "integer",
        "Weight (`tidegate explain --log` only): weight that admits the request.",
    ),
    field("notes", "list of string", "Differences from the log, and fields missing in it."),
];

/// Fields of a problem document (RFC 9457).
pub const PROBLEM_FIELDS: &[DocumentField] = &[
    field("title", "string", "Name of the status."),
    field("status", "integer", "Response status."),
    field("detail", "string", "Cause, one line per error."),
];

const fn field(path: &'static str, json_type: &'static str, meaning: &'static str) -> DocumentField {
    DocumentField { path, json_type, meaning }
}
