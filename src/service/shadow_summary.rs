//! Summary of what rules in shadow mode would have refused, for the log.

use crate::telemetry::ClassTraffic;
use tidegate_replay::terminal::group_digits;

/// Requests of each class at the last summary.
#[derive(Debug, Default)]
pub(super) struct ShadowSummary(Vec<ClassTraffic>);

impl ShadowSummary {
    /// Returns a line with the requests of each class since the last summary that rules in shadow mode would have
    /// refused; `None` if there are none. `traffic` is counted since the start.
    pub(super) fn advance(&mut self, traffic: Vec<ClassTraffic>) -> Option<String> {
        let before = std::mem::replace(&mut self.0, traffic);
        let classes: Vec<String> = self.0.iter().filter_map(|class| class_text(class, &before)).collect();
        (!classes.is_empty()).then(|| format!("Shadow mode, last 24 h: would have refused {}", classes.join("; ")))
    }
}

fn class_text(class: &ClassTraffic, before: &[ClassTraffic]) -> Option<String> {
    let before = before.iter().find(|before| before.class == class.class);
    let reasons_before = |reason| {
        let shadow = before.into_iter().flat_map(|before| &before.shadow);
        shadow.filter(|(other, _)| *other == reason).map(|(_, count)| count).sum::<u64>()
    };
    let counts = class.shadow.iter().map(|(reason, count)| (reason.name(), count - reasons_before(*reason)));
    let counts: Vec<(&str, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    let total = counts.iter().map(|(_, count)| count).sum::<u64>();
    let admitted = class.admitted - before.map_or(0, |before| before.admitted);
    let reasons: Vec<String> =
        counts.into_iter().map(|(reason, count)| format!("{reason} {}", group_digits(count))).collect();
    (total > 0).then(|| {
        let (total, admitted) = (group_digits(total), group_digits(admitted));
        format!("{total} of {admitted} requests of {} ({})", class.class, reasons.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::Reason;

    fn class(name: &str, admitted: u64, shadow: &[(Reason, u64)]) -> ClassTraffic {
        let shadow = shadow.to_vec();
        ClassTraffic {
            class: name.into(),
            admitted,
            refused: vec![(Reason::Tier, 9)],
            shadow,
            ..ClassTraffic::default()
        }
    }

    #[test]
    fn only_what_came_since_the_last_summary_is_reported() {
        let mut summary = ShadowSummary::default();
        assert_eq!(summary.advance(vec![class("person", 90, &[])]), None);
        let first = vec![class("person", 100, &[]), class("bot", 2000, &[(Reason::Tier, 1500), (Reason::Bucket, 5)])];
        assert_eq!(
            summary.advance(first.clone()).as_deref(),
            Some("Shadow mode, last 24 h: would have refused 1,505 of 2,000 requests of bot (tier 1,500, bucket 5)")
        );
        assert_eq!(summary.advance(first), None, "nothing new");
        let next = vec![
            class("person", 103, &[(Reason::Quota, 3)]),
            class("bot", 2010, &[(Reason::Tier, 1500), (Reason::Bucket, 6)]),
        ];
        assert_eq!(
            summary.advance(next).as_deref(),
            Some(
                "Shadow mode, last 24 h: would have refused 3 of 3 requests of person (quota 3); 1 of 10 requests of bot \
                 (bucket 1)"
            )
        );
    }
}
