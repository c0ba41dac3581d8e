//! What pages may be used for, as the classes of purposes say.

use super::class::Class;
use super::purpose::Purpose;

/// Permissions to use pages, by purpose; `None` if no class is for the purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTerms {
    /// For an index of a search engine.
    pub search: Option<bool>,
    /// For the answer of a program to a user.
    pub agent: Option<bool>,
    /// For the training of models.
    pub training: Option<bool>,
}

impl UsageTerms {
    /// Returns the permissions that `classes` give: a purpose is forbidden if the first class for it blocks, and allowed
    /// otherwise. A class with further conditions but the kind says nothing of the purpose as a whole.
    pub fn of_classes(classes: &[Class]) -> Self {
        let permission = |purpose| {
            let class = classes.iter().find(|class| class.matcher.is_for(purpose))?;
            Some(!(class.blocked && class.enforce))
        };
        Self {
            search: permission(Purpose::Search),
            agent: permission(Purpose::Agent),
            training: permission(Purpose::Training),
        }
    }

    /// Returns true if nothing is said.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{ClassMatcher, ClientKind};
    use crate::fixtures;

    #[test]
    fn first_class_for_a_purpose_decides() {
        let class = |purposes: &[Purpose], blocked| Class {
            matcher: ClassMatcher { purposes: purposes.to_vec(), ..ClassMatcher::default() },
            blocked,
            ..fixtures::class("a")
        };
        let narrow = Class {
            matcher: ClassMatcher { methods: vec![http::Method::GET], ..class(&[Purpose::Training], false).matcher },
            ..fixtures::class("narrow")
        };
        let verified = Class {
            matcher: ClassMatcher { kinds: vec![ClientKind::VerifiedBot], ..class(&[Purpose::Search], false).matcher },
            ..fixtures::class("verified")
        };
        let training = class(&[Purpose::Training, Purpose::Agent], true);
        let classes = [narrow, training, class(&[Purpose::Agent], false), verified, fixtures::class("rest")];
        let expected = UsageTerms { search: Some(true), agent: Some(false), training: Some(false) };
        assert_eq!(UsageTerms::of_classes(&classes), expected);
        let shadow = Class { enforce: false, ..class(&[Purpose::Training], true) };
        assert_eq!(UsageTerms::of_classes(&[shadow]).training, Some(true), "it refuses nothing");
        assert!(UsageTerms::of_classes(&[fixtures::class("rest")]).is_empty());
    }
}
