//! Results of each class.

use crate::decision::ReplayedDecision;
use crate::report::ClassReport;
use std::collections::BTreeMap;
use tidegate_policy::{ClassId, QuotaId, Reason, Rules, Units};

/// Classes, by index.
pub(super) struct Classes(Vec<ClassStats>);

#[derive(Clone)]
struct ClassStats {
    requests: u64,
    admitted: u64,
    costly: u64,
    costly_admitted: u64,
    refused: [u64; REASONS],
    shadow: [u64; REASONS],
    units: Box<[Units]>,
}

const REASONS: usize = Reason::ALL.len();

impl Classes {
    pub(super) fn new(classes: usize, quotas: usize) -> Self {
        let empty = ClassStats {
            requests: 0,
            admitted: 0,
            costly: 0,
            costly_admitted: 0,
            refused: [0; REASONS],
            shadow: [0; REASONS],
            units: vec![Units::ZERO; quotas].into(),
        };
        Self(vec![empty; classes])
    }

    pub(super) fn add(&mut self, decision: &ReplayedDecision) {
        let class = &mut self.0[decision.classification.class.index()];
        let (admitted, costly) = (decision.refusal_reason.is_none(), decision.is_costly());
        class.requests += 1;
        class.admitted += u64::from(admitted);
        class.costly += u64::from(costly);
        class.costly_admitted += u64::from(costly && admitted);
        for (reason, counts) in [(decision.refusal_reason, &mut class.refused), (decision.shadow, &mut class.shadow)] {
            if let Some(reason) = reason {
                counts[reason as usize] += 1;
            }
        }
    }

    pub(super) fn charge(&mut self, class: ClassId, quota: QuotaId, units: Units) {
        let charged = &mut self.0[class.index()].units[quota.index()];
        *charged = charged.saturating_add(units);
    }

    /// Returns the number of all requests and of the admitted ones.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(all, admitted), class| (all + class.requests, admitted + class.admitted))
    }

    pub(super) fn report(&self, rules: &Rules) -> Vec<ClassReport> {
        let report = |(class, rule): (&ClassStats, &tidegate_policy::class::Class)| ClassReport {
            name: rule.name.clone(),
            requests: class.requests,
            admitted: class.admitted,
            refused: by_reason(&class.refused),
            shadow: by_reason(&class.shadow),
            costly: class.costly,
            costly_admitted: class.costly_admitted,
            units: by_quota(&class.units, rules),
        };
        self.0.iter().zip(&rules.classes).map(report).collect()
    }
}

fn by_reason(counts: &[u64; REASONS]) -> BTreeMap<&'static str, u64> {
    let named = Reason::ALL.into_iter().map(|reason| (reason.name(), counts[reason as usize]));
    named.filter(|(_, count)| *count > 0).collect()
}

/// Returns units by the name of the quota, without quotas that were never charged.
pub(super) fn by_quota(units: &[Units], rules: &Rules) -> BTreeMap<String, Units> {
    let charged = rules.quotas.iter().zip(units).filter(|(_, units)| !units.is_zero());
    charged.map(|(quota, units)| (quota.name.clone(), *units)).collect()
}
