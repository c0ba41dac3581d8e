//! Cache on disk: the last valid copy of each fetched list, so that a restart does not depend on the publisher's
//! server.

use super::fetch::Validators;
use super::range_source::parse_cidr;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use tidegate_engine::files;

/// Three times the size of the longest list that is accepted.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Directory of copies, one file per list.
#[derive(Debug)]
pub(super) struct RangeCache(PathBuf);

/// A list as last fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CachedRanges {
    /// Time of the last successful fetch or revalidation, in seconds since 1970.
    pub(super) fetched_at: u64,
    pub(super) validators: Validators,
    pub(super) networks: Vec<IpNet>,
}

#[derive(Serialize, Deserialize)]
struct CacheFile {
    url: String,
    #[serde(rename = "fetched")]
    fetched_at: u64,
    etag: Option<String>,
    last_modified: Option<String>,
    prefixes: Vec<String>,
}

impl RangeCache {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join("ranges"))
    }

    /// Returns the copy of the list at `url`, or `None`; an error if a copy exists but is invalid.
    pub(super) fn load(&self, url: &str) -> Result<Option<CachedRanges>, String> {
        let path = self.path(url);
        let bytes = files::read_if_exists(&path, MAX_FILE_BYTES);
        let Some(bytes) = bytes.map_err(|error| format!("{}: {error}", path.display()))? else { return Ok(None) };
        let contents: CacheFile =
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        // Two URLs may have the same file name; the later one replaces the file.
        if contents.url != url {
            return Ok(None);
        }
        let networks = contents.prefixes.iter().map(|text| parse_cidr(text)).collect::<Option<Vec<IpNet>>>();
        let networks = networks.ok_or_else(|| format!("{}: invalid prefix", path.display()))?;
        let validators = Validators { etag: contents.etag, last_modified: contents.last_modified };
        Ok(Some(CachedRanges { fetched_at: contents.fetched_at, validators, networks }))
    }

    /// Replaces the copy.
    pub(super) fn store(&self, url: &str, copy: &CachedRanges) -> io::Result<()> {
        let contents = CacheFile {
            url: url.to_owned(),
            fetched_at: copy.fetched_at,
            etag: copy.validators.etag.clone(),
            last_modified: copy.validators.last_modified.clone(),
            prefixes: copy.networks.iter().map(ToString::to_string).collect(),
        };
        files::create_dir(&self.0)?;
        files::replace(&self.path(url), &serde_json::to_vec_pretty(&contents)?)
    }

    fn path(&self, url: &str) -> PathBuf {
        self.0.join(format!("{:08x}.json", crc32fast::hash(url.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://example.com/bots.json";

    fn cached_ranges() -> CachedRanges {
        CachedRanges {
            fetched_at: 1_800_000_000,
            validators: Validators { etag: Some("\"1\"".into()), last_modified: None },
            networks: ["192.0.2.0/24", "2001:db8::/32"].map(|text| text.parse().expect("a network")).into(),
        }
    }

    #[test]
    fn cached_ranges_round_trip_by_url() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = RangeCache::new(directory.path());
        assert_eq!(cache.load(URL), Ok(None));
        cache.store(URL, &cached_ranges()).expect("room on the disk");
        assert_eq!(cache.load(URL), Ok(Some(cached_ranges())));
        assert_eq!(cache.load("https://example.com/others.json"), Ok(None));
    }

    #[test]
    fn corrupt_cache_file_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = RangeCache::new(directory.path());
        cache.store(URL, &cached_ranges()).expect("room on the disk");
        std::fs::write(cache.path(URL), "{").expect("room on the disk");
        assert!(cache.load(URL).is_err());
    }
}
