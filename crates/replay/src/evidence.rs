//! Evidence about the client of a log line: as a gateway logged it, else as the current tables show.

use super::request::ReplayRequest;
use tidegate_access_log::read::LoggedEvidence;
use tidegate_crawlers::network_databases::NetworkDatabases;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::address_lists::{AddressLists, ListSet};
use tidegate_policy::api_keys::ListedKey;
use tidegate_policy::bot_detection::BotScore;
use tidegate_policy::budget::CustomerSource;
use tidegate_policy::network_origin::NetworkOrigin;
use tidegate_policy::purpose::Purpose;
use tidegate_policy::session::Session;
use tidegate_policy::{Claim, ClassId, ClientEvidence, OperatorId, Proof, Rules, Signature, Timestamp};

/// Evidence about the client of a log line. Logged evidence has precedence over the current tables.
pub(super) struct LineEvidence<'a, S> {
    pub(super) request: &'a ReplayRequest<'a>,
    /// Claim of the user agent.
    pub(super) claim: Claim,
    /// Evidence that a gateway logged; `None` in a log of another server.
    pub(super) logged: Option<LoggedEvidence>,
    pub(super) rules: &'a Rules,
    pub(super) operators: &'a OperatorTable,
    pub(super) lists: &'a AddressLists,
    pub(super) network_databases: &'a NetworkDatabases,
    /// True if behavior is observed also where its score was logged.
    pub(super) observes_all: bool,
    /// True if the observed score counts also where one was logged.
    pub(super) reclassifies: bool,
    /// Observes the request. Returns the bot score of a client whose score was not logged.
    pub(super) bot_score: S,
}

impl<S: FnMut() -> Option<BotScore>> ClientEvidence for LineEvidence<'_, S> {
    fn claim(&mut self) -> Claim {
        self.claim
    }

    fn signature(&mut self) -> Signature {
        self.logged.as_ref().map_or(Signature::Absent, |logged| logged.signature)
    }

    fn proof(&mut self, claimed: Option<OperatorId>) -> Proof {
        // A host name in place of the address proves nothing.
        let claimed = claimed.filter(|_| !self.request.is_host_name);
        let verify = |operator| self.operators.verify(operator, self.request.client, Timestamp::default());
        let logged = self.logged.as_ref().and_then(|logged| logged.proof);
        logged.unwrap_or_else(|| claimed.map_or(Proof::Unknown, verify))
    }

    fn address_lists(&mut self) -> ListSet {
        match self.rules.address_list_names.is_empty() {
            true => ListSet::default(),
            false => self.lists.lookup(self.request.client),
        }
    }

    fn api_key(&mut self) -> Option<ListedKey> {
        let logged = self.logged.as_ref().filter(|_| self.rules.customer == Some(CustomerSource::ApiKey))?;
        Some(ListedKey { class: logged.class?, customer: logged.customer? })
    }

    fn api_key_classes(&mut self) -> Vec<ClassId> {
        self.logged.iter().filter_map(|logged| logged.api_key_class).collect()
    }

    fn certificate_classes(&mut self) -> Vec<ClassId> {
        self.logged.iter().filter_map(|logged| logged.certificate_class).collect()
    }

    fn purpose(&mut self, operator: OperatorId) -> Option<Purpose> {
        self.operators.purpose(operator)
    }

    fn field_classes(&mut self) -> Vec<ClassId> {
        self.logged.iter().flat_map(|logged| logged.field_classes.iter().copied()).collect()
    }

    /// A log without sessions says nothing of who would have one: nobody is taken for a stranger.
    fn session(&mut self) -> Session {
        self.logged.as_ref().and_then(|logged| logged.session).unwrap_or(Session::Known)
    }

    fn network_origin(&mut self) -> NetworkOrigin {
        let logged = self.logged.as_ref().map(|logged| logged.network_origin).unwrap_or_default();
        let current = self.network_databases.lookup(self.request.client);
        NetworkOrigin { asn: logged.asn.or(current.asn), country: logged.country.or(current.country) }
    }

    fn bot_score(&mut self) -> Option<BotScore> {
        let logged = self.logged.as_ref().filter(|_| !self.reclassifies);
        let observed = if logged.is_none() || self.observes_all { (self.bot_score)() } else { None };
        logged.map_or(observed, |logged| logged.bot_score)
    }
}
