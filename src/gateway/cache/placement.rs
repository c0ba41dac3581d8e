//! The place of a response among those of its URL.

use super::ResponseCache;
use super::entry::CacheEntry;
use super::field_lines::MessageFields;
use super::key::{CacheKey, SelectedValues};
use super::saving::Saving;
use super::store::CacheStore;
use super::stored_response::{CopyUsage, ResponseHead, StoredBody, StoredResponse};
use super::variants::{FieldSet, Selection, Variants};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_http_cache::ReuseTerms;
use tidegate_http_cache::vary::SelectingFields;
use tidegate_http1::Fields;
use tidegate_policy::Timestamp;

/// Where a response is stored.
pub(in crate::gateway) struct StorageTarget {
    /// Key of the URL, and of the fields that are keyed by their values.
    pub(super) url_key: CacheKey,
    /// What selected among the responses of the URL when the origin was asked.
    pub(super) variants: Option<Arc<Variants>>,
    /// What selects the response.
    pub(super) selection: Selection,
    /// URL, as far as it is part of the key.
    pub(super) url: Box<str>,
    /// Key of the URL alone.
    pub(super) plain_url: CacheKey,
    /// Lines of the request fields that select the response; `None` if the gateway cannot send them itself.
    pub(super) selecting: Option<Box<[u8]>>,
    /// What the response saves: as much as the one that it replaces, at least.
    pub(in crate::gateway) saving: Saving,
    /// Use of the response that this one replaces.
    pub(in crate::gateway) usage: CopyUsage,
    /// Time at which the origin was asked.
    pub(super) requested_at: Timestamp,
}

impl StorageTarget {
    /// Returns the response to store.
    pub(in crate::gateway) fn response(
        &mut self,
        version: u64,
        terms: ReuseTerms,
        head: ResponseHead,
        body: StoredBody,
    ) -> StoredResponse {
        StoredResponse {
            version,
            terms,
            is_invalidated: AtomicBool::new(false),
            head,
            body,
            requested_at: self.requested_at,
            url: self.url.clone(),
            selecting: self.selecting.take(),
            saving: self.saving,
            usage: std::mem::take(&mut self.usage),
        }
    }
}

impl ResponseCache {
    /// Stores a response that was fetched. Returns false if a write or an administrator has removed it since it was
    /// requested, or if it has no place.
    ///
    /// It saves what the copy that it replaces saved, if that is more: an origin that has cached the page itself reports a
    /// lower cost, and a client that reloads the page for less than others paid makes no copy of theirs worthless.
    pub(super) fn insert_fetched(&self, target: &StorageTarget, mut response: StoredResponse) -> bool {
        self.insert_unless_removed(target.plain_url, target.requested_at, |store| {
            let key = self.place(target, &response)?;
            let replaced = store.get(key).map_or(Saving::NOTHING, |replaced| replaced.saving());
            response.saving = response.saving.max(replaced);
            store.insert_new(key, Arc::new(response));
            Some(key)
        })
    }

    /// Stores `response`: `copy`, which has `key`, with the head that the origin confirmed it with. Returns false like
    /// [`Self::insert_fetched`]. If the origin was sent fields that do not select the copy, that stays for the other requests;
    /// if it named other fields than before, it does not.
    pub(in crate::gateway) fn insert_confirmed(
        &self,
        (key, copy): (CacheKey, &StoredResponse),
        target: &StorageTarget,
        response: Arc<StoredResponse>,
    ) -> bool {
        self.insert_unless_removed(target.plain_url, target.requested_at, |store| {
            if vary(copy) != vary(&response) {
                store.remove(key);
            }
            let place = self.place(target, &response)?;
            match place == key {
                true => store.insert_validated(key, response),
                false => store.insert_new(place, response),
            }
            Some(place)
        })
    }

    /// Returns the key of a response that is to be stored, after the others of its URL were made to stay reachable beside
    /// it. Returns `None` if there are too many fields by which they differ.
    fn place(&self, target: &StorageTarget, response: &StoredResponse) -> Option<CacheKey> {
        let StorageTarget { url_key, selection, url, requested_at: now, .. } = target;
        // Two responses of one URL must not forget the fields of each other.
        let _placing = self.placing.lock();
        let current = self.store.get(*url_key);
        let known = match &current {
            Some(CacheEntry::Variants(variants)) => Some(variants),
            _ => target.variants.as_ref(),
        };
        if known.is_none() && selection.fields.is_empty() {
            return Some(*url_key);
        }
        let salt = known.map_or_else(|| self.store.next_salt(), |known| known.salt);
        let new = || Variants::new(url, salt);
        let times = (*now, fresh_until(response));
        let mut variants = Variants::with(known.map(|known| &**known), selection, times, new)?;
        if let Some(CacheEntry::Response(plain)) = current {
            self.keep_plain(*url_key, &mut variants, plain, *now);
        }
        variants.saving = variants.saving.max(response.saving);
        let key = variants.key(*url_key, &selection.values);
        self.store.insert(*url_key, CacheEntry::Variants(Arc::new(variants)));
        Some(key)
    }

    /// Keeps the response that no field selected reachable beside others.
    fn keep_plain(&self, url_key: CacheKey, variants: &mut Variants, plain: Arc<StoredResponse>, now: Timestamp) {
        let fields = SelectingFields::default();
        if variants.sets.iter().any(|set| set.fields == fields) {
            return;
        }
        let key = variants.key(url_key, &SelectedValues::read(&fields, &Default::default()));
        variants.saving = variants.saving.max(plain.saving);
        variants.sets.push(FieldSet { fields, fresh_until: fresh_until(&plain) });
        if plain.terms().is_invalidated {
            // The new response was requested after the write.
            variants.written_at.fetch_max(now.0, Ordering::AcqRel);
        }
        self.store.insert_new(key, plain);
    }
}

impl Variants {
    /// Returns the response to a request with `fields` among those of the URL, with its key: a fresh one, else that of the
    /// latest set; or the entry that records that there is none. `get` returns the entry of a key, or fails.
    pub(in crate::gateway) fn find<E>(
        &self,
        url: CacheKey,
        fields: &Fields,
        now: Timestamp,
        get: impl Fn(CacheKey) -> Result<Option<CacheEntry>, E>,
    ) -> Result<Option<(CacheKey, CacheEntry)>, E> {
        let mut found = None;
        for key in self.keys(url, fields) {
            match (get(key)?, &found) {
                (Some(CacheEntry::Response(copy)), _) if self.is_fresh(&copy, now) => {
                    return Ok(Some((key, CacheEntry::Response(copy))));
                }
                (Some(entry), None) | (Some(entry @ CacheEntry::Response(_)), Some((_, CacheEntry::Pass { .. }))) => {
                    found = Some((key, entry));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn is_fresh(&self, copy: &StoredResponse, now: Timestamp) -> bool {
        copy.terms().is_fresh(now) && !self.is_written_since(copy.requested_at)
    }
}

impl CacheStore {
    /// Stores a response under a key that it did not have before.
    fn insert_new(&self, key: CacheKey, response: Arc<StoredResponse>) {
        if response.body.parts().is_none() {
            // Its body stays in the file, which the record of another key has: none of this key may take it for its own.
            self.remove(key);
        }
        self.insert(key, CacheEntry::Response(response));
    }
}

/// Returns the fields that the response itself names.
fn vary(response: &StoredResponse) -> Option<SelectingFields> {
    SelectingFields::read(&MessageFields(&response.head.fields()), false)
}

/// Returns the end of the freshness of a response.
fn fresh_until(response: &StoredResponse) -> Timestamp {
    let terms = &response.terms;
    terms.generated_at + terms.lifetime()
}

#[cfg(test)]
mod tests {
    use super::super::fetch_lock::FetchLocks;
    use super::super::{FillQueue, Invalidations, RecordingBudget, WriteRate};
    use super::*;
    use bytes::Bytes;
    use http::StatusCode;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::convert::Infallible;
    use std::time::Duration;
    use tidegate_engine::clock::Clock;
    use tidegate_policy::Units;

    const URL: &str = "http://example.com/page";
    const NAMES: [&str; 3] = ["accept-language", "user-agent", "x-tenant"];
    const LIFETIME_S: u32 = 7200;

    /// Values of [`NAMES`]; 0 for an absent field.
    type Values = [u8; 3];

    /// A response of the origin.
    #[derive(Clone, Debug)]
    struct Step {
        request: Values,
        /// Which of [`NAMES`] it names.
        vary: [bool; 3],
        /// Time since the one before.
        wait_s: u64,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let wait_s = prop_oneof![4 => 1..60u64, 1 => 1000..5000u64];
        let values = [0..3u8, 0..3u8, 0..3u8];
        let step = (values, any::<[bool; 3]>(), wait_s);
        prop::collection::vec(step.prop_map(|(request, vary, wait_s)| Step { request, vary, wait_s }), 1..40)
    }

    fn all_requests() -> impl Iterator<Item = Values> {
        (0..27u8).map(|number| [number % 3, number / 3 % 3, number / 9])
    }

    fn fields(values: Values) -> Fields {
        let digits = ["0", "1", "2"];
        let present = NAMES.into_iter().zip(values).filter(|(_, value)| *value > 0);
        present.map(|(name, value)| (name, digits[usize::from(value)])).collect()
    }

    fn cache() -> ResponseCache {
        ResponseCache {
            clock: Clock::manual(Timestamp(0)),
            store: CacheStore::new(1 << 20, 64 * 1024, None, 0),
            fetches: FetchLocks::default(),
            loads: FetchLocks::default(),
            placing: Default::default(),
            recording: RecordingBudget::new(0),
            invalidations: Invalidations::default(),
            fetched: Default::default(),
            write_rate: WriteRate::new(),
            crowds: Default::default(),
            fills: FillQueue::new(),
            is_making_form: Default::default(),
        }
    }

    impl ResponseCache {
        fn variants(&self, url: CacheKey) -> Option<Arc<Variants>> {
            match self.store.get(url) {
                Some(CacheEntry::Variants(variants)) => Some(variants),
                _ => None,
            }
        }

        /// Returns the response for a request, as the handler finds it.
        fn find(&self, url: CacheKey, request: Values, now: Timestamp) -> Option<Arc<StoredResponse>> {
            let get = |key| Ok::<_, Infallible>(self.store.get(key));
            let entry = match self.variants(url) {
                Some(variants) => {
                    let Ok(found) = variants.find(url, &fields(request), now, get);
                    found.map(|(_, entry)| entry)
                }
                None => self.store.get(url),
            };
            match entry {
                Some(CacheEntry::Response(response)) => Some(response),
                _ => None,
            }
        }

        /// Stores the response to `request`, of which the origin was sent what other responses had named.
        fn store(&self, url: CacheKey, step: &Step, version: u64, now: Timestamp) -> Option<Values> {
            self.store_saving(url, step, version, now, Saving::NOTHING)
        }

        /// Like [`Self::store`], of a response with this saving.
        fn store_saving(
            &self,
            url: CacheKey,
            step: &Step,
            version: u64,
            now: Timestamp,
            saving: Saving,
        ) -> Option<Values> {
            let variants = self.variants(url);
            let is_sent = |name: &str| variants.iter().any(|known| known.names().any(|known| known == name));
            let sent = std::array::from_fn(|at| if is_sent(NAMES[at]) { step.request[at] } else { 0 });
            let named = NAMES.into_iter().zip(step.vary).filter(|(_, is_named)| *is_named).map(|(name, _)| name);
            let named = SelectingFields::from_names(named.map(str::to_owned));
            let of_others = variants.iter().flat_map(|known| known.names());
            let selecting = SelectingFields::from_names(named.names().chain(of_others).map(str::to_owned));
            let values = SelectedValues::read(&selecting, &fields(sent));
            let mut target = StorageTarget {
                url_key: url,
                variants: variants.clone(),
                selection: Selection { named, fields: selecting, values },
                url: URL.into(),
                plain_url: url,
                selecting: None,
                saving,
                usage: CopyUsage::default(),
                requested_at: now,
            };
            let (head, body) = (ResponseHead::new(StatusCode::OK, &Fields::new(), b""), Bytes::new());
            let terms = ReuseTerms::of_lifetime(now, LIFETIME_S);
            let response = target.response(version, terms, head, StoredBody::from_parts(vec![body]));
            self.insert_fetched(&target, response).then_some(sent)
        }
    }

    fn check(steps: &[Step]) -> Result<(), TestCaseError> {
        let (cache, url) = (cache(), CacheKey::of_url(URL));
        let mut now = Timestamp::from_seconds(1_000_000);
        let mut origins = HashMap::new();
        for (version, step) in steps.iter().enumerate() {
            now += Duration::from_secs(step.wait_s);
            let is_hit = |request: &Values| {
                let found = cache.find(url, *request, now);
                found.is_some_and(|copy| copy.terms().is_fresh(now))
            };
            let hits: Vec<Values> = all_requests().filter(is_hit).collect();
            if let Some(sent) = cache.store(url, step, version as u64, now) {
                origins.insert(version as u64, (sent, step.vary));
            }
            for request in hits {
                prop_assert!(is_hit(&request), "{:?} after {:?}", request, step);
            }
            for request in all_requests() {
                let Some(copy) = cache.find(url, request, now) else { continue };
                let (sent, vary) = origins[&copy.version];
                for at in 0..NAMES.len() {
                    prop_assert!(sent[at] == 0 || sent[at] == request[at], "{:?} gets that of {:?}", request, sent);
                    prop_assert!(!vary[at] || sent[at] == request[at], "{:?} gets that of {:?}", request, sent);
                }
            }
            if let Some(variants) = cache.variants(url) {
                prop_assert!(variants.sets.len() <= super::super::variants::MAX_SETS + 1);
                prop_assert!(variants.names.len() <= NAMES.len());
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn no_response_makes_that_of_another_request_unreachable(steps in steps()) {
            check(&steps)?;
        }
    }

    #[test]
    fn stale_response_of_the_latest_fields_hides_no_fresh_one() -> Result<(), TestCaseError> {
        let step = |tenant, vary, wait_s| Step { request: [0, 0, tenant], vary, wait_s };
        let (none, both, language) = ([false; 3], [false, true, true], [true, false, false]);
        check(&[step(0, both, 1), step(0, language, 1630), step(0, none, 1711), step(0, both, 3857), step(1, none, 2)])
    }

    #[test]
    fn response_keeps_the_larger_saving_of_the_one_that_it_replaces() {
        let unit = |count: u64| Saving::of(Units::from_milli(count * 1000), Units::from_milli(1_000_000));
        let now = Timestamp::from_seconds(1_000_000);
        // Also among several responses of one URL.
        for vary in [[false; 3], [true, false, false]] {
            let (cache, url) = (cache(), CacheKey::of_url(URL));
            let step = Step { request: [0; 3], vary, wait_s: 0 };
            for (version, saving, expected) in
                [(0, unit(1), unit(1)), (1, Saving::NOTHING, unit(1)), (2, unit(3), unit(3)), (3, unit(2), unit(3))]
            {
                assert!(cache.store_saving(url, &step, version, now, saving).is_some());
                let stored = cache.find(url, step.request, now).expect("a response");
                assert_eq!((stored.version, stored.saving), (version, expected));
            }
        }
    }

    #[test]
    fn name_is_forgotten_an_hour_after_the_last_response_that_had_it() {
        let (cache, url) = (cache(), CacheKey::of_url(URL));
        let at = |seconds: u64| Timestamp::from_seconds(1_000_000 + seconds);
        let step = |vary| Step { request: [1, 1, 0], vary, wait_s: 0 };
        let names = || cache.variants(url).map_or(0, |variants| variants.names.len());
        assert!(cache.store(url, &step([true, true, false]), 0, at(0)).is_some());
        assert!(cache.store(url, &step([true, false, false]), 1, at(3599)).is_some());
        assert_eq!(names(), 2);
        assert!(cache.store(url, &step([true, false, false]), 2, at(3600)).is_some());
        assert_eq!(names(), 1);
        assert!(cache.store(url, &step([false, false, false]), 3, at(7200)).is_some());
        assert_eq!(names(), 0);
    }
}
