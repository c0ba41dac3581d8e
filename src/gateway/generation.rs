//! All that follows from one reading of the settings. A reload makes a new one; requests under way keep theirs.

use super::announce::Announcements;
use crate::config::Settings;
use crate::engine::{Admission, Engine};
use crate::policy::Timestamp;
use http::HeaderValue;
use std::sync::Arc;

/// The settings, and what is made of them once so that no request has to.
pub(super) struct Generation {
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) announcements: Announcements,
    /// Each class's name as the origin is told it.
    pub(super) class_names: Vec<HeaderValue>,
}

impl Generation {
    pub(super) fn new(settings: Settings, engine: &Arc<Engine>, now: Timestamp) -> Self {
        let rules = Arc::clone(&settings.rules);
        let name = |name: &str| HeaderValue::from_str(name).expect("checked by config: class names are plain words");
        Self {
            admission: engine.admission(Arc::clone(&rules), now),
            announcements: Announcements::new(&settings.headers, &rules),
            class_names: rules.classes.iter().map(|class| name(&class.name)).collect(),
            settings,
        }
    }
}
