//! The crawl policy: a public description of the rules for crawlers, as JSON or as an HTML page.

mod document;
mod page;

pub(in crate::gateway) use document::PolicyDocument;

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tidegate_crawlers::robots::{CachedRobots, RobotsDocument};
use tidegate_policy::Timestamp;

/// Minimum interval between renderings: the policy is not rate-limited, so its work must be bounded.
const RENDER_INTERVAL: Duration = Duration::from_secs(10);

/// Time for which clients may cache the policy.
const MAX_AGE: Duration = Duration::from_secs(300);

const JSON: &[u8] = b"application/json";
const HTML: &[u8] = b"text/html; charset=utf-8";

/// Cache of the rendered policy of one configuration.
#[derive(Default)]
pub(in crate::gateway) struct CrawlPolicy(Mutex<Option<RenderedPolicy>>);

struct RenderedPolicy {
    rendered_at: Timestamp,
    document: Arc<RobotsDocument>,
    page: Arc<RobotsDocument>,
}

impl CrawlPolicy {
    /// Returns the page or the document. Renders it from the result of `gather` if the cached one is too old.
    pub(in crate::gateway) fn render<'a>(
        &self,
        page: bool,
        now: Timestamp,
        gather: impl FnOnce() -> PolicyDocument<'a>,
    ) -> CachedRobots {
        let mut rendered = self.0.lock();
        let rendered = match &mut *rendered {
            Some(rendered) if now.saturating_duration_since(rendered.rendered_at) < RENDER_INTERVAL => rendered,
            old => old.insert(RenderedPolicy::new(&gather(), now)),
        };
        let document = Arc::clone(if page { &rendered.page } else { &rendered.document });
        CachedRobots { document, age: now.saturating_duration_since(rendered.rendered_at), ttl: MAX_AGE }
    }
}

impl RenderedPolicy {
    fn new(policy: &PolicyDocument<'_>, rendered_at: Timestamp) -> Self {
        let document =
            |content_type, text| Arc::new(RobotsDocument::from_parts(200, Bytes::from_static(content_type), text));
        let json = serde_json::to_vec_pretty(policy).expect("serializable document");
        Self { rendered_at, document: document(JSON, json.into()), page: document(HTML, page::render(policy).into()) }
    }
}
