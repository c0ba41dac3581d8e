//! Profile of all browsers of one network: rented addresses appear by the hundred, with few requests each.

use super::{Referer, RequestFeatures, ResourceKind, ResponseOutcome, decay_since};
use crate::Timestamp;
use std::time::Duration;

/// Profile of a network, in decayed counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkProfile {
    updated_s: u32,
    pub(super) pages: f32,
    assets: f32,
    linked_pages: f32,
    /// Bitmap of the clients, hashed to 32 bits.
    client_bitmap: u32,
}

impl NetworkProfile {
    /// Records a request of the client with `hash`.
    pub fn record(&mut self, hash: u64, features: &RequestFeatures, outcome: ResponseOutcome, half_life: Duration) {
        if !features.is_informative(outcome) {
            return;
        }
        self.decay(features.at, half_life);
        match features.resource_kind {
            ResourceKind::Asset => self.assets += 1.0,
            ResourceKind::Page(_) => {
                self.pages += 1.0;
                self.linked_pages +=
                    f32::from(u8::from(matches!(features.referer, Referer::Internal | Referer::Unknown)));
                self.client_bitmap |= 1 << (hash >> 59);
            }
            _ => {}
        }
    }

    /// Returns the profile, decayed to `now`.
    #[must_use]
    pub fn decayed(mut self, now: Timestamp, half_life: Duration) -> Self {
        self.decay(now, half_life);
        self
    }

    /// Returns the second of the last request.
    pub fn last_seen_s(&self) -> u32 {
        self.updated_s
    }

    /// Returns true if several clients requested many pages, almost without assets and links.
    pub(super) fn looks_automated(&self) -> bool {
        let is_rare = |count: f32| count * 20.0 < self.pages;
        self.pages >= MIN_PAGES
            && self.client_bitmap.count_ones() >= MIN_CLIENTS
            && is_rare(self.assets + self.linked_pages)
    }

    fn decay(&mut self, now: Timestamp, half_life: Duration) {
        let Some(factor) = decay_since(&mut self.updated_s, now, half_life) else { return };
        for count in [&mut self.pages, &mut self.assets, &mut self.linked_pages] {
            *count *= factor;
        }
        if self.pages < 1.0 {
            self.client_bitmap = 0;
        }
    }
}

/// Minimum pages and clients; fewer may be coincidence.
const MIN_PAGES: f32 = 8.0;
const MIN_CLIENTS: u32 = 3;
