//! Looks at requests as the gate does until it knows what kind of client asks, without a gate: days go by in seconds.

use super::combined_log::Line;
use foldhash::fast::RandomState;
use std::path::Path;
use std::sync::Arc;
use tidegate::agents::{Agents, ClaimCache};
use tidegate::config;
use tidegate::engine::{Admission, Engine, Supply};
use tidegate::policy::behaviour::{Aim, Outcome, Referer, Seen, Sight};
use tidegate::policy::lists::Listed;
use tidegate::policy::route::normalise;
use tidegate::policy::{Claim, Classified, Facts, Proof, Signature, Timestamp};
use tidegate::verify::Operators;

/// Somebody who remembers everybody.
pub struct Lookout {
    admission: Admission,
    agents: Agents,
    operators: Operators,
    claims: ClaimCache,
}

impl Lookout {
    /// Judges by `rules` in YAML.
    pub fn with(rules: &str) -> Self {
        let operators = Operators::builtin();
        let names: Vec<&str> = operators.names().collect();
        let yaml = format!("origin: {{ url: 'http://127.0.0.1:1' }}\n{rules}");
        let settings = config::load(Path::new("lookout.yaml"), &yaml, &[], &[], &names);
        let settings = settings.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let engine = Engine::new(Supply::Whole, settings.limits.max_clients);
        Self {
            admission: engine.admission(Arc::clone(&settings.rules), Timestamp::default()),
            agents: Agents::builtin(operators.tokens()),
            claims: ClaimCache::new(RandomState::default()),
            operators,
        }
    }

    /// What kind of client sends this, and then what there is to learn from it. Of headers the log knows nothing.
    pub fn see(&mut self, line: &Line) -> Classified {
        let seen = Seen::default().and(Seen::OLD_HTTP, line.http10);
        self.see_with(line, "", seen)
    }

    /// The same with the host and the headers known.
    pub fn see_with(&mut self, line: &Line, host: &str, seen: Seen) -> Classified {
        let Line { at, status, visit, .. } = line;
        let (path, query) =
            visit.target.split_once('?').map_or((&*visit.target, None), |(path, query)| (path, Some(query)));
        let path = normalise(path).unwrap_or_default();
        let method = visit.method.parse().expect("a method");
        let user_agent = visit.user_agent.as_bytes();
        let (claim, browser) = self.claims.claim(&self.agents, user_agent);
        let proof = match claim {
            Claim::Bot { operator: Some(operator), .. } => self.operators.proof(operator, visit.client, *at),
            _ => Proof::Unknown,
        };
        let rules = Arc::clone(self.admission.rules());
        let trap = rules.behaviour.as_ref().and_then(|behaviour| behaviour.trap.as_deref());
        let track = self.admission.track(rules.trust.key(visit.client), user_agent);
        let names_no_bot = !matches!(claim, Claim::Bot { .. });
        let facts = Facts {
            method: &method,
            host,
            path: &path,
            query,
            client: visit.client,
            listed: Listed::default(),
            user_agent,
            claim,
            proof,
            signature: Signature::Absent,
            holds_key_of: &[],
            suspicion: self.admission.suspicion(track, browser.graphical, *at).filter(|_| names_no_bot),
        };
        let classified = rules.classify(&facts);
        let sight = Sight {
            at: *at,
            browser,
            aim: Aim::of(&method, &path, query, trap),
            costly: !rules.routes[rules.route(&facts)].is_free(),
            referer: Referer::of(visit.referer.as_deref().map(str::as_bytes), host),
            seen,
        };
        if names_no_bot {
            self.admission.learn(track, &sight, Outcome::of_status(*status));
        }
        classified
    }
}
