//! Profile of a client's requests: decayed counts, in 88 bytes.

use super::request::{ContradictionRatios, Contradictions};
use super::visit::Visit;
use super::{
    BareChange, BaselineSample, HeadersSeen, Referer, RequestFeatures, ResourceKind, ResponseOutcome, VisitChanges,
    decay_since,
};
use crate::Timestamp;
use crate::session::Session;
use std::time::Duration;

/// Profile of a client. Counts decay exponentially: a request one half-life ago counts half.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientProfile {
    /// Second to which the counts are decayed.
    updated_s: u32,
    /// Time of the last new page, in hundredths of a second; wraps after 497 days.
    last_page_cs: u32,
    /// Hashes of the last pages, latest first.
    recent_pages: [u16; 3],
    /// Hash of the path that a form was last submitted to.
    last_post: u16,
    /// Number of pages whose assets may still be loading, and the second of the first of them, modulo 256.
    pending_pages: u8,
    pending_since: u8,
    /// Page requests.
    pub(super) pages: f32,
    /// Pages that were served at least `ASSET_GRACE_S` ago, so that their assets could be loaded.
    pub(super) served_pages: f32,
    /// Pages with a referer of this site.
    pub(super) linked_pages: f32,
    /// Pages that do not exist, without immediate repetitions.
    pub(super) not_found_pages: f32,
    /// Pages that cost quota units, without immediate repetitions.
    pub(super) costly_pages: f32,
    /// Forms submitted to the path of the one before, without a referer.
    pub(super) repeated_posts: f32,
    /// Assets of pages.
    pub(super) assets: f32,
    /// Requests of robots.txt.
    pub(super) robots_reads: f32,
    /// Requests of the honeypot.
    pub(super) honeypot_hits: f32,
    /// Recent mean and variance of the interval between new pages, in seconds.
    pub(super) mean_interval: f32,
    pub(super) interval_variance: f32,
    /// Number of pages, saturating at 255.
    pub(super) page_count: u8,
    /// Baseline aspects that this client was sampled for, and whether it has returned a session cookie, as bits.
    sampled_aspects: u8,
    /// Pages whose headers contradict the claimed browser.
    pub(super) contradictions: ContradictionRatios,
    /// Current visit.
    visit: Visit,
    /// Visits without an asset or a followed link.
    pub(super) bare_visits: f32,
    /// Pages that were reached from no page of this site, without immediate repetitions.
    pub(super) landings: f32,
}

/// What a request adds to the profiles of site and network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Baseline sample of the client, if it provides one now.
    pub sample: Option<BaselineSample>,
    /// Changes of the client's visit.
    pub visit: VisitChanges,
    /// Landings of the client, if it is one of the people who show how many are usual.
    pub landings: Option<f32>,
}

impl ClientProfile {
    /// Records a request and its outcome. Returns what it adds to the profiles of site and network.
    #[must_use]
    pub fn record(&mut self, features: &RequestFeatures, outcome: ResponseOutcome, half_life: Duration) -> Recorded {
        if !features.is_informative(outcome) {
            return Recorded::default();
        }
        self.decay(features.at, half_life);
        let visit = self.record_visit(features);
        self.note_session(features);
        let sample = self.record_counts(features, outcome);
        Recorded { sample, visit, landings: visit.is_of_reader.then_some(self.landings) }
    }

    fn record_visit(&mut self, features: &RequestFeatures) -> VisitChanges {
        let RequestFeatures { at, referer, session, .. } = *features;
        let changes = match features.resource_kind {
            ResourceKind::Asset => self.visit.record_asset(at, session),
            ResourceKind::Page(_) if !(features.is_background_fetch() && self.loads_assets()) => {
                self.visit.record_page(at, referer, session)
            }
            _ => VisitChanges::default(),
        };
        self.bare_visits += match changes.bare {
            Some(BareChange::Begun) => 1.0,
            Some(BareChange::Refuted) => -1.0,
            None => return changes,
        };
        self.bare_visits = self.bare_visits.max(0.0);
        changes
    }

    fn record_counts(&mut self, features: &RequestFeatures, outcome: ResponseOutcome) -> Option<BaselineSample> {
        match features.resource_kind {
            ResourceKind::Robots => self.robots_reads += 1.0,
            // Another site may have linked the honeypot in its pages, so that humans request it.
            ResourceKind::Honeypot if features.referer != Referer::External => self.honeypot_hits += 1.0,
            ResourceKind::Asset => {
                self.assets += 1.0;
                // A single asset may be an image embedded by another site. The threshold of 1.5 allows for decay.
                let is_repeated = self.page_count > 0 && self.assets > 1.5 && !features.lacks_session();
                return is_repeated.then(|| self.sample_once(ASSETS_ASPECT, BaselineSample::LoadsAssets)).flatten();
            }
            ResourceKind::Page(_) if features.is_background_fetch() && self.loads_assets() => {}
            ResourceKind::Page(page) => return self.record_page(page, features, outcome),
            ResourceKind::Form(path) => self.record_post(path, features),
            ResourceKind::Honeypot | ResourceKind::Other => {}
        }
        None
    }

    /// Returns the profile, decayed to `now`.
    #[must_use]
    pub fn decayed(mut self, now: Timestamp, half_life: Duration) -> Self {
        self.decay(now, half_life);
        self
    }

    /// Returns the profile with the headers of a request that is not recorded yet; `None` if it is that of a new client, which
    /// contradicts nothing. Of a client with many pages, one more says little.
    #[must_use]
    pub fn with_request(profile: Option<Self>, features: &RequestFeatures) -> Option<Self> {
        let is_page = || matches!(features.resource_kind, ResourceKind::Page(_)) && !features.is_background_fetch();
        match profile {
            Some(known) if i16::from(known.page_count) >= MAX_HEADER_DIVISOR => profile,
            _ if !is_page() => profile,
            None if !Contradictions::of(features).any() => None,
            known => {
                let mut profile = known.unwrap_or_default();
                profile.record_headers(features);
                Some(profile)
            }
        }
    }

    /// Notes that the client returns a session cookie, if it does.
    pub fn note_session(&mut self, features: &RequestFeatures) {
        if matches!(features.session, Some(Session::New | Session::Known)) {
            self.sampled_aspects |= HAS_SESSION;
        }
    }

    /// Returns true if the client has never returned a session cookie.
    pub(super) fn returns_no_cookie(&self) -> bool {
        self.sampled_aspects & HAS_SESSION == 0
    }

    /// Returns true if the client does something rare for programs: it loads assets or follows links.
    pub fn shows_human_traits(&self) -> bool {
        self.loads_assets() || self.follows_links()
    }

    /// Returns true if the client has loaded three assets, or one and followed a link, or followed two links. The counts decay,
    /// so that a half is enough for the last of them.
    pub fn has_visit_of_person(&self) -> bool {
        self.assets > 2.5 || (self.assets > 0.5 && self.linked_pages > 0.5) || self.linked_pages > 1.5
    }

    /// Returns true if the client loads assets or follows links about as often as it submits forms.
    pub(super) fn reads_between_posts(&self) -> bool {
        self.assets.max(self.linked_pages) * RARE_RATIO > self.pages + self.repeated_posts
    }

    /// Returns the second of the last request.
    pub fn last_seen_s(&self) -> u32 {
        self.updated_s
    }

    pub(super) fn loads_assets(&self) -> bool {
        self.assets * RARE_RATIO > self.pages
    }

    pub(super) fn follows_links(&self) -> bool {
        self.linked_pages * RARE_RATIO > self.pages
    }

    fn decay(&mut self, now: Timestamp, half_life: Duration) {
        let Some(factor) = decay_since(&mut self.updated_s, now, half_life) else { return };
        if (self.updated_s as u8).wrapping_sub(self.pending_since) >= ASSET_GRACE_S {
            self.served_pages += f32::from(std::mem::take(&mut self.pending_pages));
        }
        for count in [
            &mut self.pages,
            &mut self.served_pages,
            &mut self.linked_pages,
            &mut self.not_found_pages,
            &mut self.costly_pages,
            &mut self.repeated_posts,
            &mut self.assets,
            &mut self.robots_reads,
            &mut self.honeypot_hits,
            &mut self.bare_visits,
            &mut self.landings,
        ] {
            *count *= factor;
        }
    }

    fn record_page(
        &mut self,
        page: u16,
        features: &RequestFeatures,
        outcome: ResponseOutcome,
    ) -> Option<BaselineSample> {
        let is_new = !self.recent_pages.contains(&page);
        if is_new {
            self.record_interval(features.at);
            self.recent_pages.rotate_right(1);
            self.recent_pages[0] = page;
        }
        self.record_headers(features);
        // Before this page is added, since its assets cannot have been requested yet.
        let sample = if features.lacks_session() { None } else { self.baseline_sample(features.referer) };
        let count_if = |condition: bool| f32::from(u8::from(condition));
        self.page_count = self.page_count.saturating_add(1);
        self.pages += 1.0;
        if outcome == ResponseOutcome::Served {
            self.count_settled_page();
        }
        // An unknown referer counts in favor of the client.
        self.linked_pages += count_if(matches!(features.referer, Referer::Internal | Referer::Unknown));
        self.not_found_pages += count_if(is_new && outcome == ResponseOutcome::NotFound);
        self.costly_pages += count_if(is_new && features.is_costly);
        self.landings += count_if(is_new && matches!(features.referer, Referer::Absent | Referer::External));
        sample
    }

    /// Records a submitted form. A page of this site, or one of another site with a form for this one, sends a referer,
    /// unless the site forbids it; then the baseline excludes the signal.
    fn record_post(&mut self, path: u16, features: &RequestFeatures) {
        let is_repeated = std::mem::replace(&mut self.last_post, path) == path;
        if is_repeated && features.referer == Referer::Absent {
            self.record_interval(features.at);
            self.record_headers(features);
            self.page_count = self.page_count.saturating_add(1);
            self.repeated_posts += 1.0;
        }
    }

    /// Counts a served page as pending; it counts in full once its assets could be loaded.
    fn count_settled_page(&mut self) {
        if self.pending_pages == 0 {
            self.pending_since = self.updated_s as u8;
        }
        match self.pending_pages.checked_add(1) {
            Some(pending_pages) => self.pending_pages = pending_pages,
            None => self.served_pages += 1.0,
        }
    }

    /// Returns the baseline sample that one more page provides, if any.
    fn baseline_sample(&mut self, referer: Referer) -> Option<BaselineSample> {
        match (self.page_count, referer) {
            (1.., Referer::Internal) if self.sampled_aspects & LINKS_ASPECT == 0 => {
                self.sample_once(LINKS_ASPECT, BaselineSample::SendsReferer)
            }
            (MIN_SAMPLE_PAGES.., _) if self.follows_links() => {
                self.sample_once(ASSETS_ASPECT, BaselineSample::NoAssets)
            }
            (MIN_SAMPLE_PAGES.., _) if self.loads_assets() => self.sample_once(LINKS_ASPECT, BaselineSample::NoReferer),
            _ => None,
        }
    }

    /// Returns the sample unless the client was already sampled for `aspect`.
    fn sample_once(&mut self, aspect: u8, sample: BaselineSample) -> Option<BaselineSample> {
        let already_sampled = self.sampled_aspects & aspect != 0;
        self.sampled_aspects |= aspect;
        (!already_sampled).then_some(sample)
    }

    /// Updates the interval statistics. Callers skip repetitions: a repeated page refreshes itself.
    fn record_interval(&mut self, at: Timestamp) {
        let now = (at.0 / 10_000_000) as u32;
        let interval = now.wrapping_sub(self.last_page_cs);
        self.last_page_cs = now;
        // At least half the range means that the clock was set back.
        if self.page_count == 0 || interval > u32::MAX / 2 {
            return;
        }
        let gap = interval as f32 / 100.0;
        if self.page_count > 4 && gap > self.mean_interval * PAUSE_RATIO {
            return;
        }
        let weight = (1.0 / f32::from(self.page_count)).max(1.0 / 16.0);
        let deviation = gap - self.mean_interval;
        self.mean_interval += deviation * weight;
        self.interval_variance = (1.0 - weight) * (self.interval_variance + weight * deviation * deviation);
    }

    fn record_headers(&mut self, features: &RequestFeatures) {
        let is_inspected = features.headers.contains(HeadersSeen::INSPECTED);
        let divisor = i16::from(self.page_count).saturating_add(1).min(MAX_HEADER_DIVISOR);
        self.contradictions.record(Contradictions::of(features), is_inspected, divisor);
    }
}

/// Weight of the headers of one page at least, as a divisor.
const MAX_HEADER_DIVISOR: i16 = 8;

/// Ratio below which a behavior counts as absent, as a divisor: an asset or a copied link may occur by accident.
const RARE_RATIO: f32 = 20.0;

/// Seconds from the first pending page until pending pages count. Several users behind one address with one browser may
/// request all pages before the first asset.
const ASSET_GRACE_S: u8 = 4;

/// Number of pages after which the next one provides a sample of absent behavior.
const MIN_SAMPLE_PAGES: u8 = 2;

/// Baseline aspects, as bits.
const ASSETS_ASPECT: u8 = 1;
const LINKS_ASPECT: u8 = 2;

/// Bit of a client that has returned a session cookie.
const HAS_SESSION: u8 = 4;

/// Multiple of the mean interval from which on an interval is a pause and is ignored.
const PAUSE_RATIO: f32 = 8.0;
