//! Results of each class by hour.

use super::classes::by_quota;
use crate::decision::ReplayedDecision;
use crate::report::{AdmitHourReport, AdmitReport, ClassHourReport, HourReport, MIN_REQUESTS_PER_HOUR};
use tidegate_policy::{ClassId, ClientKind, QuotaId, Rules, Timestamp, Units};

/// Hours with requests, in order.
pub(super) struct Hours {
    classes: usize,
    quotas: usize,
    hours: Vec<Hour>,
}

struct Hour {
    /// Hours since 1970.
    number: u64,
    classes: Box<[ClassHour]>,
    /// By class, then by quota.
    units: Box<[Units]>,
    verified_bots: AdmitCount,
}

#[derive(Clone, Copy, Default)]
struct ClassHour {
    requests: u64,
    admitted: u64,
    admit_count: AdmitCount,
}

/// Counts of requests with a cost.
#[derive(Clone, Copy, Default)]
struct AdmitCount {
    costly: u64,
    admitted: u64,
}

impl Hours {
    pub(super) fn new(classes: usize, quotas: usize) -> Self {
        Self { classes, quotas, hours: Vec::new() }
    }

    pub(super) fn add(&mut self, decision: &ReplayedDecision) {
        let Some(hour) = self.hour_at(decision.at) else { return };
        let (admitted, costly) = (decision.refusal_reason.is_none(), decision.is_costly());
        let class = &mut hour.classes[decision.classification.class.index()];
        class.requests += 1;
        class.admitted += u64::from(admitted);
        class.admit_count.add(costly, admitted);
        if decision.classification.kind == ClientKind::VerifiedBot {
            hour.verified_bots.add(costly, admitted);
        }
    }

    pub(super) fn charge(&mut self, class: ClassId, quota: QuotaId, units: Units, now: Timestamp) {
        let quotas = self.quotas;
        let Some(hour) = self.hour_at(now) else { return };
        let charged = &mut hour.units[class.index() * quotas + quota.index()];
        *charged = charged.saturating_add(units);
    }

    /// Returns the hour of `time`; `None` if there are too many. Time seldom goes back, and never far.
    fn hour_at(&mut self, time: Timestamp) -> Option<&mut Hour> {
        let number = time.seconds() / 3600;
        let index = match self.hours.iter().rposition(|hour| hour.number <= number) {
            Some(index) if self.hours[index].number == number => return self.hours.get_mut(index),
            preceding => preceding.map_or(0, |index| index + 1),
        };
        if self.hours.len() >= MAX_HOURS {
            return None;
        }
        let hour = Hour {
            number,
            classes: vec![ClassHour::default(); self.classes].into(),
            units: vec![Units::ZERO; self.classes * self.quotas].into(),
            verified_bots: AdmitCount::default(),
        };
        self.hours.insert(index, hour);
        self.hours.get_mut(index)
    }

    pub(super) fn report(&self, rules: &Rules) -> Vec<HourReport> {
        let hour = |hour: &Hour| {
            let classes = rules.classes.iter().zip(&hour.classes).zip(hour.units.chunks(self.quotas.max(1)));
            let class_report = |((class, counts), units): ((&tidegate_policy::class::Class, &ClassHour), &[Units])| {
                let ClassHour { requests, admitted, admit_count } = *counts;
                let idle = requests == 0 && units.iter().all(|units| units.is_zero());
                (!idle).then(|| ClassHourReport {
                    name: class.name.clone(),
                    requests,
                    admitted,
                    refused: requests - admitted,
                    costly: admit_count.costly,
                    costly_admitted: admit_count.admitted,
                    admit_ratio: admit_count.ratio(),
                    units: by_quota(units, rules),
                })
            };
            HourReport { start: hour.start(), classes: classes.filter_map(class_report).collect() }
        };
        self.hours.iter().map(hour).collect()
    }

    /// Returns the admitted requests of verified bots, with their worst and best hour.
    pub(super) fn admit_report(&self) -> AdmitReport {
        let report = |hour: &Hour| {
            let admit_ratio =
                hour.verified_bots.ratio().filter(|_| hour.verified_bots.costly >= MIN_REQUESTS_PER_HOUR)?;
            Some(AdmitHourReport { start: hour.start(), costly: hour.verified_bots.costly, admit_ratio })
        };
        let hours = || self.hours.iter().filter_map(report);
        let sum = |count: fn(&AdmitCount) -> u64| self.hours.iter().map(|hour| count(&hour.verified_bots)).sum();
        AdmitReport {
            costly: sum(|count| count.costly),
            admitted: sum(|count| count.admitted),
            worst: hours().min_by(|one, other| one.admit_ratio.total_cmp(&other.admit_ratio)),
            // The earliest of equal hours, as above.
            best: hours().rev().max_by(|one, other| one.admit_ratio.total_cmp(&other.admit_ratio)),
        }
    }
}

impl Hour {
    fn start(&self) -> Timestamp {
        Timestamp::from_seconds(self.number * 3600)
    }
}

impl AdmitCount {
    fn add(&mut self, costly: bool, admitted: bool) {
        self.costly += u64::from(costly);
        self.admitted += u64::from(costly && admitted);
    }

    fn ratio(self) -> Option<f64> {
        (self.costly > 0).then(|| self.admitted as f64 / self.costly as f64)
    }
}

/// Two years. Later hours count only in the totals.
const MAX_HOURS: usize = 17_568;
