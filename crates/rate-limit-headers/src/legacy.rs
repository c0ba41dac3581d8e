//! Legacy rate-limit fields: those of Atlassian, of GitHub, and of the draft up to its sixth edition.
//!
//! Each has room for one policy: the most restrictive one, with the fewest remaining requests and, among equals, the
//! longest time until reset. Families that share a field name therefore write the same value.

use super::snapshot::{Announced, RateLimitSnapshot};
use http::StatusCode;
use std::time::Duration;
use tidegate_config::settings::LegacyFamily;
use tidegate_http1::{Fields, Name};
use tidegate_policy::time::ceil_seconds;
use tidegate_policy::{Rules, Timestamp};

/// The policy that is reported.
struct MostRestrictive<'a> {
    name: &'a str,
    limit: u64,
    remaining: u64,
    /// Remaining requests, of the same cost as this one.
    requests: u64,
    /// Time until the next refill if nothing remains, until a full refill otherwise.
    wait: Duration,
    /// Units added per interval.
    fill: u64,
    /// Refill interval.
    interval: Duration,
}

/// Writes the `families` into the `fields` of a response with `status`.
pub(super) fn write(
    families: &[LegacyFamily],
    rules: &Rules,
    snapshot: RateLimitSnapshot<'_>,
    now: Timestamp,
    status: StatusCode,
    fields: &mut Fields,
) {
    if families.is_empty() {
        return;
    }
    let Some(policy) = most_restrictive(rules, snapshot, now) else { return };
    for family in families {
        match family {
            LegacyFamily::Atlassian => {
                let has_retry_time =
                    snapshot.refusal.is_none_or(|it| it.retry_after(&rules[snapshot.class], 0.0).is_some());
                write_atlassian(&policy, status, has_retry_time, fields);
            }
            LegacyFamily::Github => write_github(&policy, now, fields),
            LegacyFamily::Draft03 => write_draft_03(&policy, fields),
        }
    }
}

/// Returns the most restrictive policy. A refused client has zero remaining whatever the reason, because clients of
/// these families read nothing else.
fn most_restrictive<'a>(
    rules: &'a Rules,
    snapshot: RateLimitSnapshot<'_>,
    now: Timestamp,
) -> Option<MostRestrictive<'a>> {
    let announced = || snapshot.announced(rules).filter(|announced| announced.has_total);
    let refused = snapshot.refusal.map(|refusal| refusal.quotas).filter(|quotas| !quotas.is_empty());
    // What has refused the request is not for this client to know, and the other policies have not.
    if refused.is_some_and(|quotas| !announced().any(|announced| quotas.contains(announced.index))) {
        return None;
    }
    let mut policy = bucket(rules, snapshot);
    for announced in announced() {
        let quota = quota(rules, snapshot, &announced, now);
        let is_tighter = |other: &MostRestrictive<'_>| match quota.requests == other.requests {
            true => quota.wait > other.wait,
            false => quota.requests < other.requests,
        };
        if policy.as_ref().is_none_or(is_tighter) {
            policy = Some(quota);
        }
    }
    if let (Some(policy), Some(refusal)) = (&mut policy, snapshot.refusal) {
        // The refusal may have another reason, such as a block: its end counts.
        policy.wait = match policy.requests {
            0 => policy.wait.max(refusal.wait),
            _ => refusal.wait,
        };
        policy.remaining = 0;
    }
    policy
}

fn bucket<'a>(rules: &'a Rules, snapshot: RateLimitSnapshot<'_>) -> Option<MostRestrictive<'a>> {
    let class = &rules[snapshot.class];
    let (bucket, usage) = (class.bucket?, snapshot.bucket?);
    let remaining = u64::from(usage.remaining);
    Some(MostRestrictive {
        name: &class.name,
        limit: bucket.capacity.into(),
        remaining,
        requests: remaining,
        wait: if remaining == 0 { usage.next_token_after } else { usage.full_after },
        fill: bucket.fill.into(),
        interval: bucket.interval,
    })
}

/// Returns the policy of a quota, which is refilled completely once per window.
fn quota<'a>(
    rules: &'a Rules,
    snapshot: RateLimitSnapshot<'_>,
    &Announced { index, usage, .. }: &Announced<'_>,
    now: Timestamp,
) -> MostRestrictive<'a> {
    let quota = &rules[usage.quota];
    let limit = usage.limit.floor();
    let refusal = snapshot.refusal.filter(|refusal| refusal.quotas.contains(index));
    MostRestrictive {
        name: &quota.name,
        limit,
        remaining: usage.remaining.floor(),
        requests: match refusal {
            Some(_) => 0,
            None => usage.remaining.milli() / usage.cost.milli().max(1),
        },
        wait: refusal.map_or_else(|| usage.resets_at.saturating_duration_since(now), |refusal| refusal.wait),
        fill: limit,
        interval: quota.window.nominal_length(),
    }
}

/// Writes the Atlassian family, with `Retry-After` on every response: 0 while something remains, else the time until
/// the refill. A refusal without a time to retry has none.
fn write_atlassian(policy: &MostRestrictive<'_>, status: StatusCode, has_retry_time: bool, fields: &mut Fields) {
    insert_number(fields, Name::XRateLimitLimit, policy.limit);
    insert_number(fields, Name::XRateLimitRemaining, policy.remaining);
    insert_number(fields, Name::XRateLimitIntervalSeconds, ceil_seconds(policy.interval));
    insert_number(fields, Name::XRateLimitFillRate, policy.fill);
    // Keep the `Retry-After` of an overloaded origin: the refill time would be too short.
    let is_overloaded = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if !is_overloaded && has_retry_time && !fields.contains(Name::RetryAfter) {
        let wait = if policy.remaining > 0 { 0 } else { ceil_seconds(policy.wait).max(1) };
        insert_number(fields, Name::RetryAfter, wait);
    }
}

/// Writes the GitHub family. The reset is an absolute time, in seconds since 1970.
fn write_github(policy: &MostRestrictive<'_>, now: Timestamp, fields: &mut Fields) {
    insert_number(fields, Name::XRateLimitLimit, policy.limit);
    insert_number(fields, Name::XRateLimitRemaining, policy.remaining);
    insert_number(fields, Name::XRateLimitUsed, policy.limit.saturating_sub(policy.remaining));
    insert_number(
        fields,
        Name::XRateLimitReset,
        ceil_seconds((now + policy.wait).saturating_duration_since(Timestamp(0))),
    );
    fields.insert(Name::XRateLimitResource, policy.name.as_bytes());
}

/// Writes the family of the early drafts. The reset is in seconds from now. The limit has no policies after it,
/// although the draft permits them: clients of this family parse a single number.
fn write_draft_03(policy: &MostRestrictive<'_>, fields: &mut Fields) {
    insert_number(fields, Name::RateLimitLimit, policy.limit);
    insert_number(fields, Name::RateLimitRemaining, policy.remaining);
    insert_number(fields, Name::RateLimitReset, ceil_seconds(policy.wait));
}

fn insert_number(fields: &mut Fields, name: Name, number: u64) {
    fields.insert(name, itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests;
