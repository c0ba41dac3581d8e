//! How far a client's habits are from a person's: points, and what they are for.
//!
//! A hundred points are the usual threshold, and no signal has as many; headers together have at most 65. The weights
//! follow from how rare each is among people; docs/CLASSIFICATION.md gives the reasons and the figures.

use super::{ClientProfile, ExpectedBehavior, NetworkProfile};

/// One thing that people seldom do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Pages were loaded without what belongs to them, by a browser that shows it.
    NoAssets,
    /// No page of the site ever led to another.
    NoLinks,
    /// Many costly pages, each counted once, by somebody who does not read as people do.
    ManyCostlyPages,
    /// One page after the other, at an even pace.
    EvenPace,
    /// It read robots.txt.
    ReadsRobots,
    /// It went where robots.txt forbids to and nothing links to.
    Honeypot,
    /// Most of what it asked for is not there.
    Probes,
    /// No `Accept-Language`, which its browser always sends.
    NoLanguage,
    /// No `Sec-Fetch-Mode`, which its browser always sends over TLS.
    NoFetchMetadata,
    /// Client hints that its browser does not have, or none where it has them.
    WrongHints,
    /// No `Accept` or no `Accept-Encoding`.
    BareHeaders,
    /// HTTP/1.0.
    OldHttp,
    /// Its whole network loads pages and nothing else.
    Network,
}

/// Why a client is suspected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BotScore {
    /// All points together.
    pub points: u16,
    /// What most of them are for, strongest first.
    pub signals: [Option<Signal>; 3],
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::NoAssets,
        Self::NoLinks,
        Self::ManyCostlyPages,
        Self::EvenPace,
        Self::ReadsRobots,
        Self::Honeypot,
        Self::Probes,
        Self::NoLanguage,
        Self::NoFetchMetadata,
        Self::WrongHints,
        Self::BareHeaders,
        Self::OldHttp,
        Self::Network,
    ];

    /// Its name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoAssets => "no_assets",
            Self::NoLinks => "no_links",
            Self::ManyCostlyPages => "many_costly_pages",
            Self::EvenPace => "even_pace",
            Self::ReadsRobots => "reads_robots",
            Self::Honeypot => "trapped",
            Self::Probes => "probes",
            Self::NoLanguage => "no_language",
            Self::NoFetchMetadata => "no_fetch_metadata",
            Self::WrongHints => "wrong_hints",
            Self::BareHeaders => "bare_headers",
            Self::OldHttp => "old_http",
            Self::Network => "neighbours",
        }
    }

    /// The most points that it can have.
    pub const fn max_points(self) -> u16 {
        match self {
            Self::Honeypot => 80,
            Self::Probes | Self::Network => 60,
            Self::NoAssets => 48,
            Self::NoLinks => 44,
            Self::EvenPace | Self::NoFetchMetadata => 35,
            Self::ManyCostlyPages | Self::NoLanguage => 30,
            Self::ReadsRobots | Self::WrongHints => 25,
            Self::OldHttp => 20,
            Self::BareHeaders => 15,
        }
    }
}

/// Weighs `habits`, as they are now, of a client that shows pictures if it is `graphical`. `neighbourhood` is asked for
/// only where it could tell something.
pub fn score(
    habits: &ClientProfile,
    graphical: bool,
    expected: ExpectedBehavior,
    neighbourhood: impl FnOnce() -> Option<NetworkProfile>,
) -> BotScore {
    let ClientProfile {
        pages,
        served,
        missing,
        costly,
        assets,
        robots_reads: robots,
        honeypot_hits: traps,
        mean_interval: gap,
        interval_variance: gap_variance,
        views,
        ..
    } = *habits;
    let mut points = ScoreBuilder::default();
    let lacks_assets = graphical && !habits.loads_assets();
    let of_a_proxy = [
        (Signal::NoLanguage, habits.no_language.ratio()),
        (Signal::NoFetchMetadata, habits.no_fetch.ratio()),
        (Signal::WrongHints, habits.wrong_hints.ratio()),
        (Signal::BareHeaders, habits.bare.ratio()),
        (Signal::NoAssets, if lacks_assets { expected.assets * saturation(served, 1.5) } else { 0.0 }),
    ];
    // Whoever reads on behind a proxy that takes headers away may have the pictures from it, too.
    let (together, apart) = of_a_proxy.split_at(if habits.follows_links() { 5 } else { 4 });
    points.add_together(together);
    apart.iter().for_each(|(signal, share)| points.add(*signal, *share));
    if !habits.follows_links() {
        points.add(Signal::NoLinks, expected.links * saturation(pages, 1.5));
    }
    // Whoever does both reads, however much.
    if !(habits.loads_assets() && habits.follows_links()) {
        points.add(Signal::ManyCostlyPages, (costly - 15.0) / 15.0);
    }
    if views > MIN_INTERVALS && gap >= 1.0 {
        points.add(Signal::EvenPace, (0.5 - gap_variance.sqrt() / gap) / 0.4);
    }
    points.add(Signal::ReadsRobots, robots);
    points.add(Signal::Honeypot, traps);
    if missing >= 5.0 && missing >= pages * 0.7 && assets < 1.0 {
        points.add(Signal::Probes, saturation(missing, 4.0));
    }
    points.add(Signal::OldHttp, habits.old_http.ratio());
    if views > 0 && !habits.shows_human_traits() && points.sum > 0.0 {
        let alone = neighbourhood().filter(NetworkProfile::looks_automated);
        points.add(Signal::Network, alone.map_or(0.0, |network| saturation(network.pages, 6.0)));
    }
    points.into_suspicion()
}

/// How sure something is that was seen `count` times: half after `half` of them.
fn saturation(count: f32, half: f32) -> f32 {
    1.0 - (-count / half).exp2()
}

#[derive(Default)]
struct ScoreBuilder {
    sum: f32,
    /// Strongest first.
    strongest: [(f32, Option<Signal>); 3],
}

impl ScoreBuilder {
    fn add(&mut self, signal: Signal, share: f32) {
        self.add_points(signal, f32::from(signal.max_points()) * share.clamp(0.0, 1.0));
    }

    /// What one proxy can take away all at once is one reason.
    fn add_together(&mut self, signals: &[(Signal, f32)]) {
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
        for place in &mut self.strongest {
            if entry.0 > place.0 {
                std::mem::swap(place, &mut entry);
            }
        }
    }

    fn into_suspicion(self) -> BotScore {
        BotScore { points: self.sum as u16, signals: self.strongest.map(|(_, signal)| signal) }
    }
}

/// Fewer steps have no pace.
const MIN_INTERVALS: u8 = 8;

/// What one proxy can take away, together: with many costly pages it is not enough.
const MAX_HEADER_POINTS: f32 = 65.0;
