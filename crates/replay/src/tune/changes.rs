//! Distance of a candidate from the present file.

/// Difference between two candidates. The derived order compares priority inversions, then changed values, then
/// distances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Changes {
    /// Number of pairs of classes whose weights contradict their priorities, except pairs of the present file.
    pub(super) priority_inversions: u32,
    /// Number of thresholds, shed ratios, modes and weights that differ.
    pub(super) changed_values: u32,
    /// Distance in millionths: of the limit for thresholds, of all requests for shed ratios. Another pacing mode adds
    /// 1,000,000, and a weight 10,000 for each unit of difference.
    pub(super) distance: u64,
}

impl Changes {
    pub(super) fn add(self, other: Self) -> Self {
        Self {
            priority_inversions: self.priority_inversions + other.priority_inversions,
            changed_values: self.changed_values + other.changed_values,
            distance: self.distance + other.distance,
        }
    }
}
