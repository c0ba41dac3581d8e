//! Explanation input from a replay, which has applied all lines before the request.

use super::copy_use::CopyUse;
use super::environment::Environment;
use super::input::{ExplainInput, ReplayedState, RequestAttributes};
use super::logged_outcome::LoggedOutcome;
use crate as replay;
use tidegate_access_log::read::NativeFields;
use tidegate_engine::{DryRun, QuotaView};
use tidegate_policy::Facts;

/// Returns the explanation input of a pending request: its dry run, and the state of all quotas on its arrival.
pub fn input_from_replay<'a>(
    pending: &replay::PendingRequest<'_, '_>,
    dry_run: DryRun<'a>,
    environment: Environment<'a>,
    quotas: &'a [QuotaView],
) -> ExplainInput<'a> {
    let Facts { request, client } = *pending.facts;
    let attributes = RequestAttributes::from_log(&request, pending.line, client.address);
    let input = ExplainInput::new(environment, attributes, client.clone(), pending.at).with_quotas(quotas);
    let class = input.classification().class;
    ExplainInput {
        bucket_state: dry_run.bucket_state,
        quota_snapshots: dry_run.by_class[class.index()].clone(),
        replayed: Some(ReplayedState { class, by_class: dry_run.by_class }),
        spread: pending.spread,
        switch: pending.line.native.as_deref().and_then(NativeFields::logged_switch),
        copy: CopyUse::from_role(pending.role),
        logged: Some(LoggedOutcome::from_line(pending.line)),
        ..input
    }
}
