//! Parsed replies of the lease script.

use redis::Value;
use tidegate_policy::window::Span;
use tidegate_policy::{Timestamp, Units};

/// Result of one call of the script.
#[derive(Clone, Debug)]
pub(super) enum ScriptReply {
    /// The call was executed; contains the status of the window.
    Granted(GrantReply),
    /// The call was executed and returns no values.
    Done,
    /// The server has lost state: repeat the call with the last reported state.
    StateRequested,
    /// The window ended long ago; contains the current ordinal.
    Superseded(u64),
}

/// Status of a window by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowStatus {
    /// Units of the window can be leased.
    Open,
    /// The window has ended.
    Closed,
    /// The window starts too far in the future.
    TooEarly,
    /// State was lost: no new leases until all instances have reported.
    Recovering,
}

/// Units of this instance and of others in a window.
#[derive(Clone, Debug)]
pub(super) struct GrantReply {
    pub status: WindowStatus,
    pub held: Units,
    pub fallback: Units,
    pub held_by_others: Units,
    pub taken_by_others: Units,
    pub lost: Units,
    pub held_by_dead: Units,
    pub expected_by_others: Units,
    pub span: Option<Span>,
    /// Time of the server.
    pub now: Timestamp,
    /// Instances that must report before more units are leased.
    pub missing_holders: String,
    /// Complete state of the quota in the server.
    pub quota_state: String,
}

impl ScriptReply {
    /// Parses a reply. Returns `None` if it is not a reply of the lease script.
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let words: Vec<String> = redis::from_redis_value_ref(reply).ok()?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let status = match *words.first()? {
            "report" => return Some(Self::StateRequested),
            "behind" => return Some(Self::Superseded(words.get(1)?.parse().ok()?)),
            // A later call has overtaken this one: impossible, because this instance sends calls one after the other.
            "stale" => return None,
            "ok" if words.len() == 1 => return Some(Self::Done),
            "ok" => WindowStatus::Open,
            "over" => WindowStatus::Closed,
            "early" => WindowStatus::TooEarly,
            "unsure" => WindowStatus::Recovering,
            _ => return None,
        };
        let (amounts, rest) = words.get(1..)?.split_first_chunk()?;
        let [held, fallback, held_by_others, taken_by_others, lost, held_by_dead, expected_by_others] = *amounts;
        let [starts, ends, now, missing_holders, quota_state] = *rest else { return None };
        let units = |word: &str| word.parse().ok().map(Units::from_milli);
        let time = |word: &str| word.parse::<u64>().ok().map(|micros| Timestamp(micros.saturating_mul(1000)));
        let span = time(starts).zip(time(ends)).map(|(start, end)| Span { start, end });
        Some(Self::Granted(GrantReply {
            status,
            held: units(held)?,
            fallback: units(fallback)?,
            held_by_others: units(held_by_others)?,
            taken_by_others: units(taken_by_others)?,
            lost: units(lost)?,
            held_by_dead: units(held_by_dead)?,
            expected_by_others: units(expected_by_others)?,
            span,
            now: time(now)?,
            missing_holders: missing_holders.to_owned(),
            quota_state: quota_state.to_owned(),
        }))
    }
}
