//! What the script says, as values.

use super::resp::Reply;
use crate::policy::window::Span;
use crate::policy::{Timestamp, Units};

/// What came of one call.
#[derive(Clone, Debug)]
pub(super) enum ScriptReply {
    /// It was carried out; this is how things stand.
    Granted(GrantReply),
    /// It was carried out; there is nothing to tell.
    Done,
    /// The server has lost something: it wants to be told all that we know.
    StateRequested,
    /// The window is long over; this ordinal is the present one.
    Superseded(u64),
}

/// How a window stands, by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowStatus {
    /// It is leased.
    Open,
    /// It has ended.
    Closed,
    /// It begins too far in the future.
    TooEarly,
    /// Something was lost; nothing more is leased until all gates have spoken.
    Recovering,
}

/// What this gate has, and what others have.
#[derive(Clone, Debug)]
pub(super) struct GrantReply {
    pub standing: WindowStatus,
    pub held: Units,
    pub share: Units,
    pub elsewhere: Units,
    pub taken_elsewhere: Units,
    pub lost: Units,
    pub withheld: Units,
    pub expected_elsewhere: Units,
    pub span: Option<Span>,
    /// The server's time.
    pub now: Timestamp,
    /// Gates that have to speak before more is leased.
    pub missing_holders: String,
    /// All that the server knows of the quota.
    pub quota_state: String,
}

impl ScriptReply {
    /// Reads a reply; `None` where it is not one of our script.
    pub(super) fn read(reply: &Reply) -> Option<Self> {
        let Reply::List(list) = reply else { return None };
        let words: Vec<&str> = list.iter().map(Reply::text).collect::<Option<_>>()?;
        let standing = match *words.first()? {
            "tell" => return Some(Self::StateRequested),
            "behind" => return Some(Self::Superseded(words.get(1)?.parse().ok()?)),
            // Overtaken by a later call of our own: cannot be, for they are made one after the other.
            "stale" => return None,
            "ok" if words.len() == 1 => return Some(Self::Done),
            "ok" => WindowStatus::Open,
            "over" => WindowStatus::Closed,
            "early" => WindowStatus::TooEarly,
            "unsure" => WindowStatus::Recovering,
            _ => return None,
        };
        let (amounts, rest) = words.get(1..)?.split_first_chunk()?;
        let [held, share, elsewhere, taken_elsewhere, lost, withheld, expected_elsewhere] = *amounts;
        let [starts, ends, now, missing_holders, quota_state] = *rest else { return None };
        let units = |word: &str| word.parse().ok().map(Units::from_milli);
        let moment = |word: &str| word.parse::<u64>().ok().map(|moment| Timestamp(moment.saturating_mul(1000)));
        let span = moment(starts).zip(moment(ends)).map(|(start, end)| Span { start, end });
        Some(Self::Granted(GrantReply {
            standing,
            held: units(held)?,
            share: units(share)?,
            elsewhere: units(elsewhere)?,
            taken_elsewhere: units(taken_elsewhere)?,
            lost: units(lost)?,
            withheld: units(withheld)?,
            expected_elsewhere: units(expected_elsewhere)?,
            span,
            now: moment(now)?,
            missing_holders: missing_holders.to_owned(),
            quota_state: quota_state.to_owned(),
        }))
    }
}
