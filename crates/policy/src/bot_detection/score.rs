//! Bot score of a client: points for behavior that is rare for humans, and the signals they are for.
//!
//! The usual threshold is 100 points. Every single signal stays below it, but a browser's name with none of its header fields;
//! header fields that a proxy may remove total at most 65. The weights follow from how rare each signal is for humans; docs/CLASSIFICATION.md gives reasons and figures.

use super::request::Contradiction;
use super::{ClientProfile, ExpectedBehavior, NetworkProfile, PagesBeyond};

/// A behavior that is rare for humans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Pages loaded without assets, by a graphical browser.
    NoAssets,
    /// No page has a referer of this site.
    NoLinks,
    /// Many distinct costly pages, by a client that does not both load assets and follow links.
    ManyCostlyPages,
    /// Pages at constant intervals.
    ConstantInterval,
    /// New pages faster than anyone reads, by a client that does not both load assets and follow links.
    FastPages,
    /// Forms submitted again and again to one path, without a page, an asset or a link before.
    RepeatedPosts,
    /// Requests of robots.txt.
    ReadsRobots,
    /// Requests of the honeypot.
    Honeypot,
    /// Mostly requests of pages that do not exist.
    Probing,
    /// No `Accept-Language`, which the claimed browser always sends.
    NoLanguage,
    /// No `Sec-Fetch-Mode`, which the claimed browser always sends over TLS.
    NoFetchMetadata,
    /// Client hints of a browser that has none, or no client hints of one that has them.
    ClientHintsMismatch,
    /// No `Accept` or no `Accept-Encoding`, or none of the encodings of the claimed browser.
    MissingAccept,
    /// HTTP/1.0 requests.
    Http10,
    /// Client hints of another brand or version than the claimed browser.
    HintsVersion,
    /// `Sec-Fetch-Site` that the referer rules out.
    FetchSite,
    /// None of the header fields that the claimed browser adds to every page request.
    NameOnly,
    /// Nearly all visits of the network are bare.
    Network,
    /// Many pages that were reached from no page of this site, by a client that returns no session cookie.
    Landings,
    /// More costly pages in a day than people ask for, with one session.
    BeyondPeople,
}

/// Bot score of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BotScore {
    /// Sum of the points of all signals.
    pub points: u16,
    /// Signals with the most points, strongest first.
    pub signals: [Option<Signal>; 3],
    /// Figures of [`Signal::BeyondPeople`].
    pub beyond: Option<PagesBeyond>,
}

/// What the session of a request shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedSession {
    /// True if there are sessions, and the request has none.
    pub is_lacking: bool,
    /// Costly pages of the session, if they are more than people ask for.
    pub beyond: Option<PagesBeyond>,
}

impl Signal {
    /// All signals, in declaration order.
    pub const ALL: [Self; 20] = [
        Self::NoAssets,
        Self::NoLinks,
        Self::ManyCostlyPages,
        Self::ConstantInterval,
        Self::FastPages,
        Self::RepeatedPosts,
        Self::ReadsRobots,
        Self::Honeypot,
        Self::Probing,
        Self::NoLanguage,
        Self::NoFetchMetadata,
        Self::ClientHintsMismatch,
        Self::MissingAccept,
        Self::Http10,
        Self::HintsVersion,
        Self::FetchSite,
        Self::NameOnly,
        Self::Network,
        Self::Landings,
        Self::BeyondPeople,
    ];

    /// Returns the name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoAssets => "no_assets",
            Self::NoLinks => "no_links",
            Self::ManyCostlyPages => "many_costly_pages",
            Self::ConstantInterval => "constant_interval",
            Self::FastPages => "fast_pages",
            Self::RepeatedPosts => "repeated_posts",
            Self::ReadsRobots => "reads_robots",
            Self::Honeypot => "honeypot",
            Self::Probing => "probing",
            Self::NoLanguage => "no_language",
            Self::NoFetchMetadata => "no_fetch_metadata",
            Self::ClientHintsMismatch => "client_hints_mismatch",
            Self::MissingAccept => "missing_accept",
            Self::Http10 => "http_10",
            Self::HintsVersion => "hints_version",
            Self::FetchSite => "fetch_site",
            Self::NameOnly => "browser_name_only",
            Self::Network => "network",
            Self::Landings => "landings",
            Self::BeyondPeople => "beyond_people",
        }
    }

    /// Returns what the client does, as the end of a sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Self::NoAssets => "loads pages without their images, styles and scripts",
            Self::NoLinks => "reaches no page from another page of the site",
            Self::ManyCostlyPages => "loads many different pages that cost units",
            Self::ConstantInterval => "loads pages at constant intervals",
            Self::FastPages => "loads pages faster than anyone reads them",
            Self::RepeatedPosts => "submits forms again and again",
            Self::ReadsRobots => "claims to be a browser and reads robots.txt",
            Self::Honeypot => "loads the honeypot, to which no page links",
            Self::Probing => "asks mostly for pages that do not exist",
            Self::NoLanguage => "sends no Accept-Language, unlike the browser that it claims to be",
            Self::NoFetchMetadata => "sends no Sec-Fetch-Mode, unlike the browser that it claims to be",
            Self::ClientHintsMismatch => "sends other client hints than the browser that it claims to be",
            Self::MissingAccept => "sends no Accept, or not the Accept-Encoding of the browser that it claims to be",
            Self::Http10 => "uses HTTP/1.0",
            Self::HintsVersion => "sends Sec-CH-UA of another brand or version than the browser that it claims to be",
            Self::FetchSite => "sends a Sec-Fetch-Site that its Referer rules out",
            Self::NameOnly => {
                "sends the name of a browser, and none of the header fields that it adds to each page request"
            }
            Self::Network => "is in a network whose visits load nothing but pages, and follow no links",
            Self::Landings => {
                "reaches more pages from no page of the site than its people do, and returns no session cookie"
            }
            Self::BeyondPeople => "asks for more costly pages a day with one session than people of the site do",
        }
    }

    /// Returns the signal of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// Returns the maximum points of the signal.
    pub const fn max_points(self) -> u16 {
        match self {
            Self::NameOnly | Self::BeyondPeople => 100,
            Self::Honeypot => 80,
            Self::RepeatedPosts => 75,
            Self::Landings => 70,
            Self::Probing | Self::Network | Self::HintsVersion | Self::FetchSite => 60,
            Self::NoAssets => 48,
            Self::NoLinks => 44,
            Self::ConstantInterval | Self::NoFetchMetadata => 35,
            Self::ManyCostlyPages => 90,
            Self::NoLanguage => 30,
            Self::FastPages | Self::ReadsRobots | Self::ClientHintsMismatch => 25,
            Self::Http10 => 20,
            Self::MissingAccept => 15,
        }
    }
}

/// Scores a decayed client profile, and the session of the request. `graphical` is true if the claimed browser displays images; `network_profile` is
/// called only if the network's profile can matter.
pub fn score(
    profile: &ClientProfile,
    graphical: bool,
    expected: ExpectedBehavior,
    network_profile: impl FnOnce() -> Option<NetworkProfile>,
    observed: ObservedSession,
) -> BotScore {
    let ClientProfile {
        pages,
        served_pages: served,
        not_found_pages: missing,
        costly_pages: costly,
        assets,
        robots_reads,
        honeypot_hits,
        mean_interval,
        interval_variance,
        page_count: views,
        ..
    } = *profile;
    let mut points = ScoreBuilder::default();
    let ratio = |contradiction| profile.contradictions.ratio(contradiction);
    let lacks_assets = graphical && !profile.loads_assets();
    let proxy_signals = [
        (Signal::NoLanguage, ratio(Contradiction::NoLanguage)),
        (Signal::NoFetchMetadata, ratio(Contradiction::NoFetch)),
        (Signal::ClientHintsMismatch, ratio(Contradiction::Hints)),
        (Signal::MissingAccept, ratio(Contradiction::MissingAccept)),
        (Signal::NoAssets, if lacks_assets { expected.assets * saturation(served, 1.5) } else { 0.0 }),
    ];
    // A client that follows links behind a header-stripping proxy may get its images from the proxy, too.
    let (capped, separate) = proxy_signals.split_at(if profile.follows_links() { 5 } else { 4 });
    points.add_capped(capped);
    separate.iter().for_each(|(signal, share)| points.add(*signal, *share));
    let no_links = if profile.follows_links() { 0.0 } else { expected.links * saturation(pages, 1.5) };
    points.add(Signal::NoLinks, no_links);
    // A client that loads assets and follows links reads like a human, even if many pages are costly.
    if !(profile.loads_assets() && profile.follows_links()) {
        let first = MANY_COSTLY_POINTS * ((costly - 15.0) / 15.0).clamp(0.0, 1.0);
        // Who hides referers still loads assets: for neither, there is no reader of a hundred pages.
        let beyond = match profile.shows_human_traits() {
            true => 0.0,
            // Pages whose assets may still be loading say nothing.
            false => expected.links * MANY_COSTLY_POINTS / 2.0 * (costly.min(served) / 30.0).max(1.0).log2(),
        };
        points.add(Signal::ManyCostlyPages, (first + beyond) / f32::from(Signal::ManyCostlyPages.max_points()));
        if views > MIN_FAST_PAGES {
            points.add(Signal::FastPages, (2.0 - mean_interval) / 1.5);
        }
    }
    // A browser without cookies follows links, and one that hides referers returns the cookie.
    if observed.is_lacking && profile.returns_no_cookie() && expected.landings > 0.0 {
        points.add(Signal::Landings, expected.links * (profile.landings / expected.landings).floor());
    }
    points.add(Signal::BeyondPeople, f32::from(u8::from(observed.beyond.is_some())));
    if !profile.reads_between_posts() {
        points.add(Signal::RepeatedPosts, expected.links * (profile.repeated_posts - 10.0) / 10.0);
    }
    if views > MIN_INTERVALS && mean_interval >= 1.0 {
        points.add(Signal::ConstantInterval, (0.5 - interval_variance.sqrt() / mean_interval) / 0.4);
    }
    points.add(Signal::ReadsRobots, robots_reads);
    points.add(Signal::Honeypot, honeypot_hits);
    if missing >= 5.0 && missing >= pages * 0.7 && assets < 1.0 {
        points.add(Signal::Probing, saturation(missing, 4.0));
    }
    points.add(Signal::Http10, ratio(Contradiction::Http10));
    points.add(Signal::HintsVersion, ratio(Contradiction::HintsVersion));
    let other_site = ratio(Contradiction::FetchSite);
    if other_site <= MISSING_REFERER_SHARE {
        // One missing referer is one fact, which `NoLinks` has counted, too. A site may forbid referers.
        let share = expected.links * other_site - no_links * NO_LINKS_PER_FETCH_SITE;
        points.add(Signal::FetchSite, share);
    } else {
        points.add(Signal::FetchSite, other_site);
    }
    if !profile.shows_human_traits() {
        points.add(Signal::NameOnly, ratio(Contradiction::NameOnly));
    }
    if views > 0 && !profile.shows_human_traits() && points.sum > 0.0 {
        let is_automated = network_profile().is_some_and(|network| network.looks_automated(profile.bare_visits));
        // Without assets and links of people, bare visits say nothing.
        points.add(Signal::Network, if is_automated { expected.assets.max(expected.links) } else { 0.0 });
    }
    BotScore { beyond: observed.beyond, ..points.into_score() }
}

/// Returns the confidence after `count` observations: one half after `half` of them.
fn saturation(count: f32, half: f32) -> f32 {
    1.0 - (-count / half).exp2()
}

#[derive(Default)]
struct ScoreBuilder {
    sum: f32,
    /// Signals with the most points, strongest first.
    strongest: [(f32, Option<Signal>); 3],
}

impl ScoreBuilder {
    fn add(&mut self, signal: Signal, share: f32) {
        self.add_points(signal, f32::from(signal.max_points()) * share.clamp(0.0, 1.0));
    }

    /// Adds signals that one proxy can cause together, with a common maximum.
    fn add_capped(&mut self, signals: &[(Signal, f32)]) {
        let sum: f32 = signals.iter().map(|(signal, share)| f32::from(signal.max_points()) * share).sum();
        let scale = if sum > MAX_HEADER_POINTS { MAX_HEADER_POINTS / sum } else { 1.0 };
        for &(signal, share) in signals {
            self.add_points(signal, f32::from(signal.max_points()) * share * scale);
        }
    }

    fn add_points(&mut self, signal: Signal, points: f32) {
        if points < 1.0 {
            return;
        }
        self.sum += points;
        let mut entry = (points, Some(signal));
        for slot in &mut self.strongest {
            if entry.0 > slot.0 {
                std::mem::swap(slot, &mut entry);
            }
        }
    }

    fn into_score(self) -> BotScore {
        BotScore { points: self.sum as u16, signals: self.strongest.map(|(_, signal)| signal), beyond: None }
    }
}

/// Points for 30 costly pages of one client; half as many for each doubling beyond, if it loads no assets and follows no links.
const MANY_COSTLY_POINTS: f32 = 30.0;

/// Minimum number of intervals for [`Signal::ConstantInterval`].
const MIN_INTERVALS: u8 = 8;

/// Minimum number of pages for [`Signal::FastPages`]; a person may open fewer at once in tabs.
const MIN_FAST_PAGES: u8 = 40;

/// Largest ratio of [`Contradiction::FetchSite`] that missing referers alone explain, with a margin for rounding.
const MISSING_REFERER_SHARE: f32 = 0.34;

/// Points of [`Signal::NoLinks`] for each of [`Signal::FetchSite`].
const NO_LINKS_PER_FETCH_SITE: f32 = Signal::NoLinks.max_points() as f32 / Signal::FetchSite.max_points() as f32;

/// Maximum points of signals that one proxy can cause; with many costly pages it stays below the threshold.
const MAX_HEADER_POINTS: f32 = 65.0;
