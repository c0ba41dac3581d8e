//! Reads the actual cost of a response from its headers.

use std::time::Duration;
use tidegate_http_cache::quoted;
use tidegate_http1::{Fields, Name};
use tidegate_policy::Units;
use tidegate_policy::quota::Quota;

/// Returns the actual cost: the value of `cost_header`; else zero if the origin served from its cache; else `expected`.
/// An unreadable cost header is ignored.
pub(in crate::gateway) fn actual_cost(quota: &Quota, expected: Units, fields: &Fields) -> Units {
    if let Some(cost) = reported_cost(quota, fields) {
        return cost;
    }
    if quota.free_when_cached && was_cache_hit(fields) {
        return Units::ZERO;
    }
    expected
}

/// Returns the value of `cost_header`, or the sum of its values; `None` without the header, or if one of them is not a
/// number.
pub(in crate::gateway) fn reported_cost(quota: &Quota, fields: &Fields) -> Option<Units> {
    sum_of(values(quota, fields))
}

/// Returns the sum of the values of a field; `None` if there are none, or if one of them is not a number.
pub(in crate::gateway) fn sum_of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Units> {
    let mut values = values.peekable();
    values.peek()?;
    values.map(|value| std::str::from_utf8(value).ok()?.parse::<Units>().ok()).sum()
}

/// Returns true if there is a cost header that [`reported_cost`] ignores.
pub(in crate::gateway) fn is_unreadable(quota: &Quota, fields: &Fields) -> bool {
    values(quota, fields).next().is_some() && reported_cost(quota, fields).is_none()
}

fn values<'a>(quota: &'a Quota, fields: &'a Fields) -> impl Iterator<Item = &'a [u8]> {
    quota.cost_header.iter().flat_map(|name| fields.get_all_by_text(name.as_str()))
}

/// Returns true for a cache hit: a `Cache-Status` member with the parameter `hit` (RFC 9211), or an `Age` (RFC 9111
/// section 5.1), which a fresh response does not have.
pub(in crate::gateway) fn was_cache_hit(fields: &Fields) -> bool {
    let hit = fields.all(Name::CacheStatus).any(|line| quoted::split(line, b',').any(is_hit_member));
    hit || age(fields).is_some_and(|age| !age.is_zero())
}

/// Returns the time that caches have kept a response; `None` if they do not say.
pub(in crate::gateway) fn age(fields: &Fields) -> Option<Duration> {
    let seconds = std::str::from_utf8(fields.get(Name::Age)?).ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn is_hit_member(member: &[u8]) -> bool {
    quoted::split(member, b';').skip(1).map(<[u8]>::trim_ascii).any(|parameter| matches!(parameter, b"hit" | b"hit=?1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;
    use tidegate_policy::fixtures;

    fn cost_text(fields: &[(&'static str, &'static str)]) -> String {
        let cost_header = Some(HeaderName::from_static("x-api-cost"));
        let quota = Quota { cost_header, ..fixtures::quota("api", 10) };
        actual_cost(&quota, Units::from_whole(3), &fields.iter().copied().collect()).to_string()
    }

    #[test]
    fn cost_header_overrides_the_expected_cost() {
        assert_eq!(cost_text(&[]), "3");
        assert_eq!(cost_text(&[("x-api-cost", "0.25")]), "0.25");
        assert_eq!(cost_text(&[("x-api-cost", "0")]), "0");
        assert_eq!(cost_text(&[("x-api-cost", "12"), ("age", "9")]), "12");
        assert_eq!(cost_text(&[("x-api-cost", "1"), ("x-api-cost", "30")]), "31", "two upstream calls");
        for invalid in ["-1", "", "1,000", "5 units", "1e3", "99999999999999999"] {
            assert_eq!(cost_text(&[("x-api-cost", invalid)]), "3", "{invalid}");
            assert_eq!(cost_text(&[("x-api-cost", "1"), ("x-api-cost", invalid)]), "3", "{invalid}");
            let quota =
                Quota { cost_header: Some(HeaderName::from_static("x-api-cost")), ..fixtures::quota("api", 10) };
            let is_unreadable = |name: &'static str| is_unreadable(&quota, &[(name, invalid)].into_iter().collect());
            assert!(is_unreadable("x-api-cost") && !is_unreadable("x-other-cost"), "{invalid}");
        }
    }

    #[test]
    fn cached_origin_response_costs_nothing() {
        for hit in ["Origin; hit", "Origin;hit;ttl=376", "A; fwd=miss, B; hit=?1"] {
            assert_eq!(cost_text(&[("cache-status", hit)]), "0", "{hit}");
        }
        for miss in ["Origin; fwd=miss; stored", "Origin; hit=?0", "\"; hit\"", "Origin; detail=hit", "hit"] {
            assert_eq!(cost_text(&[("cache-status", miss)]), "3", "{miss}");
        }
        assert_eq!(cost_text(&[("age", "17")]), "0");
        assert_eq!(cost_text(&[("age", "0")]), "3");
    }
}
