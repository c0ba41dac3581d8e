//! Validates the partitioning of scopes: `partition_by` and `max_partitions`.

use super::diagnostics::Diagnostics;
use super::spelling::check_header_name;
use crate::raw::partition::{PartitionBy, PartitionSource};
use crate::raw::scopes as raw;
use crate::setting_path::SettingPath;
use std::num::NonZeroUsize;
use tidegate_policy::route::Route;
use tidegate_policy::throttle::Scope;
use tidegate_policy::throttle::partition::{PartitionKey, Partitioning};

/// Default and maximum of `max_partitions`. At about 0.5 KiB each, they take up to 5 MB and 0.5 GB.
const DEFAULT_MAX_PARTITIONS: u32 = 10_000;
const MAX_PARTITIONS: u32 = 1_000_000;

/// Headers with secrets. `status` shows the values of partition keys.
const SECRET_HEADERS: [http::HeaderName; 3] =
    [http::header::AUTHORIZATION, http::header::PROXY_AUTHORIZATION, http::header::COOKIE];

const EXAMPLE: &str = "write host, route, { query: tenant }, { header: X-Tenant } or { path: 1 }";

pub(super) fn partitioning(raw: &raw::Scope, name: &str, report: &mut Diagnostics) -> Option<Partitioning> {
    let path = SettingPath::of_scope(name);
    let Some(partition_by) = &raw.partition_by else {
        if raw.max_partitions.is_some() {
            let path = path.max_partitions();
            report.error(&path, "max_partitions requires partition_by", "add partition_by, or leave it out");
        }
        return None;
    };
    let from_path = path.partition_by();
    if name == Scope::DEFAULT {
        let message = "the scope default applies to all routes that name no scope";
        report.error(&from_path, message, "use another name, and name it in the routes");
    }
    let max_partitions = report.nonzero_count(&path.max_partitions(), raw.max_partitions, DEFAULT_MAX_PARTITIONS);
    if max_partitions > MAX_PARTITIONS {
        report.error(
            &path.max_partitions(),
            format!("found {max_partitions}, maximum {MAX_PARTITIONS}"),
            "write a lower number",
        );
    }
    let max_partitions = usize::try_from(max_partitions).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN);
    Some(Partitioning { key: partition_key(partition_by, &from_path, report), max_partitions })
}

/// Checks that each partitioned scope has a limit, and that a route refers to it.
pub(super) fn check_use(scopes: &[Scope], routes: &[Route], report: &mut Diagnostics) {
    for (index, scope) in scopes.iter().enumerate().filter(|(_, scope)| scope.partitioning.is_some()) {
        let path = SettingPath::of_scope(&scope.name);
        let is_named = routes.iter().flat_map(|route| &route.scopes).any(|id| id.index() == index);
        if scope.throttle.is_none() && !report.has_error_at(&path) {
            let hint = "add concurrency, delay, autothrottle or backoff";
            report.error(&path.partition_by(), "this scope has no limit", hint);
        } else if !is_named && !report.has_error_at(&SettingPath::ROOT.routes()) {
            let hint = format!("write scopes: [default, {}] at its routes", scope.name);
            report.error(&path.partition_by(), "no route refers to this scope", hint);
        }
    }
}

fn partition_key(raw: &PartitionBy, path: &SettingPath, report: &mut Diagnostics) -> PartitionKey {
    match raw {
        PartitionBy::Host => PartitionKey::Host,
        PartitionBy::Route => PartitionKey::Route,
        PartitionBy::Source(named) => self::key_from_source(named, path, report),
    }
}

fn key_from_source(raw: &PartitionSource, path: &SettingPath, report: &mut Diagnostics) -> PartitionKey {
    match raw {
        PartitionSource { query: Some(name), header: None, path: None } => {
            if name.is_empty() {
                report.error(&path.query(), "is empty", "write a parameter name such as tenant");
            }
            PartitionKey::Query(name.clone())
        }
        PartitionSource { query: None, header: Some(name), path: None } => {
            if SECRET_HEADERS.contains(&name.0) {
                let message = format!("{:?} contains secrets, and status shows the values", name.0.as_str());
                report.error(&path.header(), message, "use a header that identifies the tenant, such as X-Tenant");
            }
            check_header_name(name.0.as_str(), &path.header(), report);
            PartitionKey::Header(name.0.clone())
        }
        PartitionSource { query: None, header: None, path: Some(number) } => {
            let number = report.nonzero_count(&path.path(), Some(*number), 1);
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
