//! Scopes by value: what the value is, and how many of them there may be.

use super::diagnostics::Diagnostics;
use super::scopes::DEFAULT;
use crate::config::raw::partition::{PartitionBy, PartitionSource};
use crate::config::raw::scopes as raw;
use crate::policy::route::Route;
use crate::policy::throttle::Scope;
use crate::policy::throttle::partition::{PartitionKey, Partitioning};
use std::num::NonZeroUsize;

/// Each takes about half a kilobyte: the default bounds them to 5 MB, the most that can be written to half a gigabyte.
const DEFAULT_MAX_PARTITIONS: u32 = 10_000;
const MAX_PARTITIONS: u32 = 1_000_000;

/// Their values would be read in `status` by people who must not know them.
const SECRETS: [http::HeaderName; 3] =
    [http::header::AUTHORIZATION, http::header::PROXY_AUTHORIZATION, http::header::COOKIE];

const EXAMPLE: &str = "write host, route, { query: tenant }, { header: X-Tenant } or { path: 1 }";

pub(super) fn partitioning(raw: &raw::Scope, name: &str, path: &str, report: &mut Diagnostics) -> Option<Partitioning> {
    let Some(written) = &raw.scope_from else {
        if raw.max_values.is_some() {
            let path = format!("{path}.max_values");
            report.error(&path, "the scope is there once, not for each value", "add scope_from, or leave it out");
        }
        return None;
    };
    let from_path = format!("{path}.scope_from");
    if name == DEFAULT {
        let wrong = "default is the scope of every route that names none";
        report.error(&from_path, wrong, "give it a name of its own, and name it in the routes it is for");
    }
    let most = report.nonzero_count(&format!("{path}.max_values"), raw.max_values, DEFAULT_MAX_PARTITIONS);
    if most > MAX_PARTITIONS {
        report.error(
            &format!("{path}.max_values"),
            format!("found {most}, at most {MAX_PARTITIONS} fit"),
            "write a lower number",
        );
    }
    let most = usize::try_from(most).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN);
    Some(Partitioning { from: partition_key(written, &from_path, report), max_partitions: most })
}

/// A scope by value has a purpose only where it makes somebody wait.
pub(super) fn check_use(scopes: &[Scope], routes: &[Route], report: &mut Diagnostics) {
    for (place, scope) in scopes.iter().enumerate().filter(|(_, scope)| scope.partitioning.is_some()) {
        let path = format!("scopes.{}.scope_from", scope.name);
        let is_named = routes.iter().flat_map(|route| &route.scopes).any(|id| usize::from(id.0) == place);
        if scope.throttle.is_none() && !report.has_error_at(&format!("scopes.{}", scope.name)) {
            let remedy = "write concurrency, delay, autothrottle or backoff beside it";
            report.error(&path, "nothing in this scope makes anybody wait", remedy);
        } else if !is_named && !report.has_error_at("routes") {
            let remedy = format!("write scopes: [default, {}] at the routes it is for", scope.name);
            report.error(&path, "no route names this scope", remedy);
        }
    }
}

fn partition_key(raw: &PartitionBy, path: &str, report: &mut Diagnostics) -> PartitionKey {
    match raw {
        PartitionBy::Host => PartitionKey::Host,
        PartitionBy::Route => PartitionKey::Route,
        PartitionBy::Named(named) => self::named(named, path, report),
    }
}

fn named(raw: &PartitionSource, path: &str, report: &mut Diagnostics) -> PartitionKey {
    match raw {
        PartitionSource { query: Some(name), header: None, path: None } => {
            if name.is_empty() {
                report.error(&format!("{path}.query"), "names no parameter", "write it like tenant");
            }
            PartitionKey::Query(name.clone())
        }
        PartitionSource { query: None, header: Some(name), path: None } => {
            if SECRETS.contains(&name.0) {
                let wrong = format!("{:?} holds secrets, and values are shown to operators", name.0.as_str());
                report.error(
                    &format!("{path}.header"),
                    wrong,
                    "name a header that says whom it is for, such as X-Tenant",
                );
            }
            PartitionKey::Header(name.0.clone())
        }
        PartitionSource { query: None, header: None, path: Some(number) } => {
            let number = report.nonzero_count(&format!("{path}.path"), Some(*number), 1);
            PartitionKey::Path(usize::try_from(number).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN))
        }
        PartitionSource { query, header, path: segment } => {
            let given = [("query", query.is_some()), ("header", header.is_some()), ("path", segment.is_some())];
            let given: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect();
            match given.is_empty() {
                true if report.has_error_at(path) => {}
                true => report.error(path, "found none of query, header and path", EXAMPLE),
                false => report.error(path, format!("found {} at once", given.join(" and ")), "keep one of them"),
            }
            PartitionKey::Host
        }
    }
}
