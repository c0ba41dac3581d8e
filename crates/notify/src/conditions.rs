//! The conditions under which an event is sent.

use crate::observation::{Certificate, Observation, QuotaUsage, Refusals, Trouble};
use crate::promise::{PromiseWatch, missed_text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_access_log::rfc3339;
use tidegate_config::settings::NotificationEvent;
use tidegate_policy::{Timestamp, Units};

/// A condition that holds.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) event: NotificationEvent,
    pub(super) subject: String,
    /// Start of the window in which the event is sent once; `None` if it is sent once while it lasts.
    pub(super) window: Option<Timestamp>,
    pub(super) text: String,
    pub(super) figures: BTreeMap<&'static str, Value>,
}

/// Levels of a quota: share of the limit in percent.
const LEVELS: [(NotificationEvent, u64); 3] =
    [(NotificationEvent::Quota80, 80), (NotificationEvent::Quota95, 95), (NotificationEvent::QuotaSpent, 100)];

/// Share of people's requests above which they count as refused: one in this number.
const PEOPLE_REFUSED_DIVISOR: u64 = 100;

/// Number of refusals of people that are no event.
const FEW_REFUSALS: u64 = 5;

/// Share of a limit that may be reported for paths without a route cost: one in this number.
const UNROUTED_DIVISOR: u64 = 100;

/// Time for which a page may be refused to a verified crawler: an hour beyond what `crawler_guard` keeps.
const MAX_PAGE_REFUSAL: Duration = Duration::from_secs(25 * 3600);

/// Time before the end of a certificate.
const CERTIFICATE_MARGIN: Duration = Duration::from_secs(10 * 24 * 3600);

/// Returns the levels of a quota that its usage has reached.
pub(super) fn levels(quota: &QuotaUsage) -> impl Iterator<Item = Condition> + '_ {
    let QuotaUsage { name, limit, used, window_end, .. } = quota;
    let reached = LEVELS.into_iter().filter(|(_, percent)| {
        !limit.is_zero() && u128::from(used.milli()) * 100 >= u128::from(limit.milli()) * u128::from(*percent)
    });
    reached.map(move |(event, percent)| {
        let usage = format!("{used} of {limit} {} of the quota {name} are used", limit.noun());
        let end = rfc3339(*window_end);
        let text = match percent {
            100 => format!("{usage}: what costs units is refused until {end}."),
            _ => format!("{usage}, {percent} % or more. The window ends at {end}."),
        };
        of_quota(event, quota, text, &[("used", json!(used.as_f64())), ("limit", json!(limit.as_f64()))])
    })
}

/// Returns the condition that the origin reported units that were not expected. `since` has the counts at the start of the
/// window.
pub(super) fn unknown_costs(quota: &QuotaUsage, since: (Units, Units)) -> Option<Condition> {
    let overrun = quota.overrun.saturating_sub(since.0);
    let unrouted = quota.unrouted.saturating_sub(since.1);
    let text = if !overrun.is_zero() {
        format!(
            "The origin reported {overrun} {} beyond the limit of the quota {}. `tidegate status` lists paths without a route \
             cost; give them one.",
            overrun.noun(),
            quota.name
        )
    } else if unrouted.milli() > quota.limit.milli() / UNROUTED_DIVISOR {
        format!(
            "The origin reported {unrouted} {} of the quota {} for paths without a route cost. `tidegate status` lists them; \
             give them one.",
            unrouted.noun(),
            quota.name
        )
    } else {
        return None;
    };
    let figures = [("overrun", json!(overrun.as_f64())), ("unrouted", json!(unrouted.as_f64()))];
    Some(of_quota(NotificationEvent::UnknownCosts, quota, text, &figures))
}

/// Returns the condition that people are refused. `people` are the requests of the last minutes.
pub(super) fn people_refused(people: Refusals) -> Option<Condition> {
    let Refusals { requests, refused } = people;
    let is_event = refused > FEW_REFUSALS && refused.saturating_mul(PEOPLE_REFUSED_DIVISOR) > requests;
    is_event.then(|| {
        let text = format!(
            "{} of the requests of people were refused in the last minutes ({refused} of {requests}). `tidegate status` says by \
             which rule, `tidegate explain` why.",
            people.refused_percent()
        );
        let figures = [("requests", json!(requests)), ("refused", json!(refused))];
        lasting(NotificationEvent::PeopleRefused, "", text, &figures)
    })
}

/// Returns the condition of a trouble that has lasted long enough.
pub(super) fn origin_down(trouble: &Trouble) -> Condition {
    let text = format!("{} {}.", trouble.subject, trouble.text);
    lasting(NotificationEvent::OriginDown, &trouble.subject, text, &[])
}

/// Returns the conditions of an observation that do not depend on earlier ones.
pub(super) fn at_present(observation: &Observation) -> impl Iterator<Item = Condition> + '_ {
    let refused = observation.longest_refusals.iter().filter(|(_, span)| *span > MAX_PAGE_REFUSAL);
    let refused = refused.map(|(operator, span)| {
        let hours = span.as_secs() / 3600;
        let text = format!(
            "A page has been refused to {operator} for {hours} hours. Search engines drop a page after about two days: \
             `crawler_guard` of the class admits it earlier."
        );
        lasting(NotificationEvent::PageRefusedTooLong, operator, text, &[("hours", json!(hours))])
    });
    let expiring = observation.certificates.iter().filter(|it| it.expires_at < observation.at + CERTIFICATE_MARGIN);
    let expiring = expiring.map(|Certificate { domain, expires_at }| {
        let expires = rfc3339(*expires_at);
        let verb = if *expires_at <= observation.at { "ended" } else { "ends" };
        let text = format!(
            "The certificate of {domain} {verb} at {expires}. Renew it, and write the files that `listen` names."
        );
        lasting(NotificationEvent::CertificateExpiring, domain, text, &[("expires", json!(expires))])
    });
    let reload = observation.reload_error.iter().map(|errors| {
        let text = format!("The configuration was not reloaded, the previous one stays in use: {errors}");
        lasting(NotificationEvent::ReloadFailed, "", text, &[])
    });
    refused.chain(expiring).chain(reload)
}

/// Returns the condition that the last window missed the promise, once it is known what would have kept it.
pub(super) fn promise_missed(watch: &PromiseWatch, observation: &Observation) -> Option<Condition> {
    let window = watch.last()?;
    let missed = missed_text(&observation.promise, window)?;
    let (_, remedy) = observation.remedy.as_ref().filter(|(start, _)| *start == window.start())?;
    Some(Condition {
        event: NotificationEvent::PromiseMissed,
        subject: String::new(),
        window: Some(window.start()),
        text: format!("{missed} {remedy}"),
        figures: BTreeMap::from([("window_start", json!(rfc3339(window.start())))]),
    })
}

fn of_quota(
    event: NotificationEvent,
    quota: &QuotaUsage,
    text: String,
    figures: &[(&'static str, Value)],
) -> Condition {
    let window_end = ("window_end", json!(rfc3339(quota.window_end)));
    Condition {
        event,
        subject: quota.name.clone(),
        window: quota.window_start,
        text,
        figures: figures.iter().cloned().chain([window_end]).collect(),
    }
}

fn lasting(event: NotificationEvent, subject: &str, text: String, figures: &[(&'static str, Value)]) -> Condition {
    Condition { event, subject: subject.to_owned(), window: None, text, figures: figures.iter().cloned().collect() }
}
