//! Tells a customer what it has used of its budgets.

use super::head::prepare_own_response;
use super::refusal::respond_with_problem;
use crate::gateway::exchange::journal::Journal;
use crate::gateway::message::problem::{self, Problem};
use crate::gateway::message::response_body::ResponseBody;
use tidegate_crawlers::verify::api_key::listed_key;
use tidegate_http1::Response;

/// Responds with the usage of the customer whose key the request has; with 401 if it has none that is listed and valid.
pub(in crate::gateway) fn serve_usage(journal: Box<Journal>) -> Response<ResponseBody> {
    let (known, now) = (&journal.known, journal.origin.decided_at);
    let fields = &known.request.head.fields;
    let key = listed_key(&known.rules().api_keys, |name| fields.get_all_by_text(name), now);
    let Some(key) = key else { return respond_with_problem(journal, Problem::unauthorized()) };
    let admission = &known.config.admission;
    // A quota that is not enforced is not announced.
    let budgets = admission.customer_budgets().filter(|quota| known.rules()[*quota].enforce).filter_map(|quota| {
        let usage = admission.budget_usage(quota, key.class, key.customer, now)?;
        Some((known.rules()[quota].name.as_str(), usage))
    });
    let (mut response, bytes) = problem::customer_usage(&known.rules()[key.class].name, budgets, known.id);
    prepare_own_response(&journal, response.status, &mut response.fields);
    journal.finish_local_response(response.status, bytes);
    response
}
