//! Legacy rate-limit fields: those of Atlassian, of GitHub, and of the draft up to its sixth edition.
//!
//! Each has room for one policy: the most restrictive one, with the fewest remaining requests and, among equals, the
//! longest time until reset. Families that share a field name therefore write the same value.

use super::RateLimitSnapshot;
use crate::config::settings::LegacyFamily;
use crate::engine::QuotaUsage;
use crate::http1::{Fields, Name};
use crate::policy::time::ceil_seconds;
use crate::policy::{Rules, Timestamp};
use http::StatusCode;
use std::time::Duration;

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
    told: RateLimitSnapshot<'_>,
    now: Timestamp,
    status: StatusCode,
    fields: &mut Fields,
) {
    if families.is_empty() {
        return;
    }
    let Some(binding) = most_binding(rules, told, now) else { return };
    for family in families {
        match family {
            LegacyFamily::Atlassian => write_atlassian(&binding, status, fields),
            LegacyFamily::Github => write_github(&binding, now, fields),
            LegacyFamily::Draft03 => write_draft_03(&binding, fields),
        }
    }
}

/// Returns the most restrictive policy. A refused client has zero remaining whatever the reason, because clients of
/// these families read nothing else.
fn most_binding<'a>(rules: &'a Rules, told: RateLimitSnapshot<'_>, now: Timestamp) -> Option<MostRestrictive<'a>> {
    let mut binding = bucket(rules, told);
    for (place, standing) in told.enforced(rules) {
        let quota = quota(rules, told, (place, standing), now);
        let tighter = |than: &MostRestrictive<'_>| match quota.requests == than.requests {
            true => quota.wait > than.wait,
            false => quota.requests < than.requests,
        };
        if binding.as_ref().is_none_or(tighter) {
            binding = Some(quota);
        }
    }
    if let (Some(binding), Some(refusal)) = (&mut binding, told.refusal) {
        // The refusal may have another reason, such as a block: its end counts.
        binding.wait = match binding.requests {
            0 => binding.wait.max(refusal.wait),
            _ => refusal.wait,
        };
        binding.remaining = 0;
    }
    binding
}

fn bucket<'a>(rules: &'a Rules, told: RateLimitSnapshot<'_>) -> Option<MostRestrictive<'a>> {
    let class = &rules.classes[usize::from(told.class.0)];
    let (bucket, standing) = (class.bucket?, told.bucket?);
    let remaining = u64::from(standing.remaining);
    Some(MostRestrictive {
        name: &class.name,
        limit: bucket.capacity.into(),
        remaining,
        requests: remaining,
        wait: if remaining == 0 { standing.next_after } else { standing.full_after },
        fill: bucket.fill.into(),
        interval: bucket.interval,
    })
}

/// Returns the policy of a quota, which is refilled completely once per window.
fn quota<'a>(
    rules: &'a Rules,
    told: RateLimitSnapshot<'_>,
    (place, standing): (usize, &QuotaUsage),
    now: Timestamp,
) -> MostRestrictive<'a> {
    let quota = &rules.quotas[usize::from(standing.quota.0)];
    let limit = quota.limit.floor();
    let said_no = told.refusal.filter(|refusal| refusal.quotas >> place.min(7) & 1 == 1);
    MostRestrictive {
        name: &quota.name,
        limit,
        remaining: standing.remaining.floor(),
        requests: match said_no {
            Some(_) => 0,
            None => standing.remaining.milli() / standing.cost.milli().max(1),
        },
        wait: said_no.map_or_else(|| standing.resets_at.saturating_duration_since(now), |refusal| refusal.wait),
        fill: limit,
        interval: quota.window.nominal_length(),
    }
}

/// Writes the Atlassian family, with `Retry-After` on every response: 0 while something remains, else the time until
/// the refill.
fn write_atlassian(binding: &MostRestrictive<'_>, status: StatusCode, fields: &mut Fields) {
    number(fields, Name::XRateLimitLimit, binding.limit);
    number(fields, Name::XRateLimitRemaining, binding.remaining);
    number(fields, Name::XRateLimitIntervalSeconds, ceil_seconds(binding.interval));
    number(fields, Name::XRateLimitFillRate, binding.fill);
    // Keep the `Retry-After` of an overloaded origin: the refill time would be too short.
    let asks_for_patience = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if !asks_for_patience && !fields.contains(Name::RetryAfter) {
        let wait = if binding.remaining > 0 { 0 } else { ceil_seconds(binding.wait).max(1) };
        number(fields, Name::RetryAfter, wait);
    }
}

/// Writes the GitHub family. The reset is an absolute time, in seconds since 1970.
fn write_github(binding: &MostRestrictive<'_>, now: Timestamp, fields: &mut Fields) {
    number(fields, Name::XRateLimitLimit, binding.limit);
    number(fields, Name::XRateLimitRemaining, binding.remaining);
    number(fields, Name::XRateLimitUsed, binding.limit.saturating_sub(binding.remaining));
    number(fields, Name::XRateLimitReset, ceil_seconds((now + binding.wait).saturating_duration_since(Timestamp(0))));
    fields.insert(Name::XRateLimitResource, binding.name.as_bytes());
}

/// Writes the family of the early drafts. The reset is in seconds from now. The limit has no policies after it,
/// although the draft permits them: clients of this family parse a single number.
fn write_draft_03(binding: &MostRestrictive<'_>, fields: &mut Fields) {
    number(fields, Name::RateLimitLimit, binding.limit);
    number(fields, Name::RateLimitRemaining, binding.remaining);
    number(fields, Name::RateLimitReset, ceil_seconds(binding.wait));
}

fn number(fields: &mut Fields, name: Name, number: u64) {
    fields.insert(name, itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests;
