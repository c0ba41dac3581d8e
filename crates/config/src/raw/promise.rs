//! Raw section `promise`.

use crate::scalars::Percent;
use crate::section::{any, section};
use tidegate_policy::tier::Share;

section! {
    /// Figures that the policy keeps in each window of the first quota without `per`. A page is a request with a cost.
    pub(crate) struct Promise {
        /// Largest share of people's pages (class `person`) that is refused, other than those of clients that have used their
        /// share (`per_client`). Default none.
        people_refused: Option<Share> = None => Percent, any;
        /// Smallest share of their pages that verified search engines (class `search`) are served in each hour with ten of them.
        /// Default none.
        search_served: Option<Share> = None => Percent, any;
        /// Largest share of the limit that is left over in a window in which pages were refused to save units. Default none.
        left_over: Option<Share> = None => Percent, any;
    }
}
