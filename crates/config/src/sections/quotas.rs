//! Section `quotas`: limits, windows, tiers and synchronization, also of the quotas of scopes.

mod budget;
mod cost_json;
mod pacing;
mod sync_from;
mod tiers;
mod window;

use crate::calendar::CalendarUnit;
use crate::scalars::{Amount, Field, Mark};
use crate::section::{any, section};
use crate::serde_forms::NamedMap;
use crate::setting_path::SettingPath;
use crate::short_forms::ShortForm;
use crate::validate::diagnostics::Diagnostics;
pub(crate) use budget::Per;
use budget::budget;
use cost_json::{CostJson, cost_json};
use pacing::{Pacing, pacing};
use sync_from::{SyncFrom, sync_from};
use tidegate_policy::Units;
use tidegate_policy::budget::CustomerSource;
use tidegate_policy::class::Class;
use tidegate_policy::quota as policy;
use tiers::{Tiers, class_tiers};
pub(crate) use window::window_form;
use window::{Window, window};

section! {
    /// Units that requests may use per window.
    pub(crate) struct Quota {
        /// Units per window, more than 0, to a thousandth. Required.
        limit: Option<Units> = None => Amount, more_than_zero;
        /// What the limit is for: api_key, client, class, { header: NAME } or { cookie: NAME }: each of them has a budget of its
        /// own. Default: the limit is for all requests together.
        ///
        /// api_key is the customer of a key of `api_keys`; client is that of the bucket of its class, an address unless the class
        /// has a `key`; header and cookie name the customer by their value, which the gateway does not check. A request without
        /// one is charged to the budget of its address. All quotas of a file that count by customer use the same of them.
        /// A spent budget refuses with 429, reason quota, and RateLimit fields show the budget that is charged. Budgets have no
        /// tiers, no pacing and no sync_from. Calendar and fixed windows end at the same time for all keys; a first_use window opens for
        /// each key with its first charge, and a sliding one never exceeds the limit of a key in any span of its length.
        ///
        /// Usage is recorded in state_dir before a request is sent, so that it survives a kill; what was in flight then counts as
        /// expected. Gateways with one ledger.redis share the budgets.
        per: Option<Per>;
        /// Limits that differ from `limit`, by class. Default none.
        limits: NamedMap<Amount>;
        /// Number of keys that are counted in a window, 1 to 10000000; each takes about 60 bytes. A sliding window counts as many, at
        /// most 1000000, in each of its 12 parts, and a key takes 60 bytes in each in which it is charged. A further key takes the
        /// place of one with little usage and begins with the most that such a key had used, so that none is counted too low.
        /// Default 100000.
        max_keys: Option<u32>;
        /// true: metrics have the usage and the limit of each key of `api_keys` (`tidegate_budget_used`, `tidegate_budget_limit`).
        metrics_by_key: bool = false => bool, any;
        /// Window of the quota: exactly one of { calendar, zone, at }, { fixed }, { first_use } and { sliding }. A calendar
        /// unit alone, such as day, is short for { calendar: day }. Default: a calendar day of the system's time zone.
        window: Option<ShortForm<Window, CalendarUnit>>;
        /// Units of a window that one client may use: a share of the limit such as 2%, or an amount. Further requests
        /// with a cost get 429, reason client_share, until the window ends, or a part of a sliding one has expired. Default: with
        /// the built-in classes and neither tiers nor pacing, 5%, or 20 times the highest cost of a route if that is more; with a
        /// sliding window and else no limit.
        ///
        /// The client is that of the bucket of its class: an address or IPv6 prefix, or the `key` of the class. All
        /// addresses of one network (IPv4 /24, IPv6 /48) together may use eight times as much. A refused request
        /// changes no tier and no plan. Usage by client is recorded like that of budgets (`per`) and survives a restart, except
        /// in first_use windows; each instance counts its own. Up to limits.max_tracked_clients clients are counted per quota; a
        /// further one takes the place of one with little usage and begins with the most that such a client had used. The
        /// RateLimit policy is named QUOTA/client.
        per_client: Option<Mark>;
        /// Response header with the actual cost in units; several fields add up, and a list in one is no number. A cost
        /// reported on a route without one is charged, too. Default none: a request costs the expected cost of its route.
        cost_header: Option<Field>;
        /// Where the body of a response has the actual cost: the path of a number in JSON, such as usage.total_tokens, or a
        /// list of { path, weight } whose numbers count weight units each and add up; at most 16. It is read from JSON, from the
        /// last event of a `text/event-stream` and the last line of NDJSON that has the path, compressed with gzip, deflate,
        /// br or zstd or not, as the body passes: nothing is held up or stored. Such a request is charged when its response
        /// ends; until then, its expected cost is reserved.
        ///
        /// Dots separate the keys of nested objects, `\.` is a dot in a key, and a number is the index of an array. Of a key
        /// that repeats, the last value counts; of several paths, those that are absent count 0. A body that lacks all of
        /// them, or has a negative number or none at a path, costs what was expected (`tidegate_cost_missing_total`).
        /// If the response ends before its end, the larger of the expected and the reported cost is charged. cost_header
        /// precedes it. Only bodies of successful responses are read, compressed ones up to 64 MiB of their text and 64 times their
        /// length. A response with a 4xx status costs nothing here. Default none.
        cost_json: CostJson;
        /// Trailer with the actual cost in units, after the body; several values add up. It precedes cost_json, and the
        /// origin is sent `TE: trailers`. Default none.
        cost_trailer: Option<Field>;
        /// true: a response from the origin's cache (`Cache-Status: ...; hit`, or `Age` above 0) costs nothing.
        free_when_cached: bool = false => bool, any;
        /// Synchronization with the origin's own counter: { remaining_header, reset_header, exhausted }, or the name of
        /// remaining_header alone. The origin's counter can only tighten the quota, and only for the same window: if
        /// reset_header names a time that is not the end of the window, remaining_header is ignored. A sliding window
        /// matches a bucket that refills, as model APIs have it: one that is full again after about the part of the window
        /// that is used, and within an hour after its length. Differences that requests in flight explain do not
        /// count, and neither does a response that a cache of the origin has kept since before the window (`Age`, `Date`), or
        /// for an unknown time (`Cache-Status: ...; hit` without `Age`). A count that is ignored, because of its window or because a header is unreadable or negative, is counted
        /// (`tidegate_quota_ignored_reports_total`) and logged, at most once an hour. Default none.
        sync_from: Option<ShortForm<SyncFrom, Field>>;
        /// Pacing: distributes the remaining units over the remaining time: off, even, learned, or { mode, burst,
        /// weights, enforce }. Sliding windows cannot be paced. Default: off with tiers. Without, learned for the classes
        /// that name operators or kinds of bots only, with a weight that doubles with each priority.
        ///
        /// Classes without tiers are unpaced: their forecast demand is earmarked first. Classes with tiers or with a
        /// weight are paced. A class that is refused wholly from the first unit gets nothing. The other tiers apply
        /// only while more is used than planned, beyond burst and random variation, so a day that keeps to its plan
        /// uses the whole quota. Refused requests get 429, reason pacing, and a Retry-After of at most an hour plus
        /// headers.retry_after_spread. Learned demand is written to state_dir/demand.json once a minute if it changed;
        /// delete it while the gateway is stopped to restart learning. A damaged file is reported, and learning starts
        /// again.
        pacing: Pacing;
        /// Tiers by class: a list of { above, shed }, or { enforce, steps }. In one list `above` and `shed` must
        /// increase; at most 100 tiers. A class without tiers is refused only when no units remain. Default: without
        /// pacing, the built-in class bot is refused 50 % from 50 % of the limit, 75 % from 75 %, all from 90 %; else none.
        tiers: NamedMap<Tiers>;
        /// false: shadow mode. Refusals are counted and logged only, and usage may exceed the limit. The quota is
        /// announced to no client, `tidegate_quota_enforced` is 0, and `tidegate quota set` accepts more than the
        /// limit.
        enforce: bool = true => bool, any;
    }
}

fn more_than_zero(Amount(limit): &Amount, _: Option<&Amount>) -> Option<String> {
    let problem = "found 0; write the purchased units, or block a class with block: true";
    limit.is_zero().then(|| problem.to_owned())
}

/// Returns the quota `name` at `path`.
pub(crate) fn quota(
    name: &str,
    keys: &Quota,
    path: &SettingPath,
    classes: &[Class],
    report: &mut Diagnostics,
) -> (policy::Quota, Option<CustomerSource>) {
    if classes.iter().any(|class| class.name == name && class.bucket.is_some()) {
        let message = format!("the bucket of class {name:?} has the same name in RateLimit fields");
        report.error(path, message, "rename one of them");
    }
    if keys.limit.is_none() {
        report.error(&path.limit(), "missing", "write the units per window, such as 10000");
    }
    let limit = keys.limit.unwrap_or(Units::from_whole(1));
    let window = window(keys.window.as_ref().map(|window| &window.0), &path.window(), report);
    let class_tiers = class_tiers(&keys.tiers, limit, path, classes, report);
    let (budget, customer) = budget(keys, path, classes, report).unzip();
    let quota = policy::Quota {
        budget,
        client_limit: keys.per_client.as_ref().map(|Mark(share)| share.units(limit)),
        enforce: keys.enforce,
        cost_header: keys.cost_header.as_ref().map(|Field(name)| name.clone()),
        cost_json: cost_json(&keys.cost_json, &path.cost_json(), report),
        cost_trailer: keys.cost_trailer.as_ref().map(|Field(name)| name.clone()),
        free_when_cached: keys.free_when_cached,
        sync_from: keys.sync_from.as_ref().map(|keys| sync_from(&keys.0, &path.sync_from(), report)),
        pacing: pacing(&keys.pacing, &window, &class_tiers, &path.pacing(), classes, report),
        class_tiers,
        ..policy::Quota::new(name, limit, window)
    };
    check_client_limit(&quota, path, report);
    budget::check(&quota, keys, path, report);
    (quota, customer.flatten())
}

fn check_client_limit(quota: &policy::Quota, path: &SettingPath, report: &mut Diagnostics) {
    let policy::Quota { client_limit: Some(client_limit), limit, .. } = quota else { return };
    if client_limit.is_zero() || client_limit > limit {
        let message = format!("found {client_limit} of {limit} {}", limit.noun());
        let hint = "write a share such as 2%, or an amount up to the limit";
        report.contradiction(&path.per_client(), &[path.limit()], message, hint);
    }
}
