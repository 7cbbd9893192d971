//! Where in Consul the locks are: datacenter, namespace, admin partition.
//!
//! Each request names the scope by parameters of its URL. In a transaction each operation names it, too. Only Consul Enterprise has namespaces and
//! partitions. Another Consul refuses these parameters, except in transactions: there it silently uses the default ones. So a client with one of them
//! first makes a request that another Consul refuses.
//!
//! The client sends nothing else until that request was answered, so it takes no lock in the default namespace by mistake. (The answer tells nothing
//! about the other servers of the URL if only some of them are Consul Enterprise.)
//!
//! The datacenter is a parameter alone. Each operation of a transaction goes to the datacenter of its request, and the sessions, the node
//! `dlock` and the entries of a lock are all in that one: an entry cannot be held by a session of another datacenter.

use crate::url::is_name;
use redis_dlock::Error;
use serde_json::Value;

/// The scope of the locks. `None` leaves the choice to Consul.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// `dc`. By default, that of the agent or server that answers.
    pub(super) datacenter: Option<String>,
    /// `ns`. By default, that of the token.
    pub(super) namespace: Option<String>,
    /// `partition`. By default, that of the token, or of the agent.
    pub(super) partition: Option<String>,
}

impl Scope {
    /// The names of the parameters, in the URL of a store and in that of a request.
    pub(super) const PARAMETERS: [&'static str; 3] = ["dc", "ns", "partition"];

    /// Reads the parameters of a URL.
    pub(super) fn of(parameters: &[(String, String)]) -> Self {
        let [datacenter, namespace, partition] = Self::PARAMETERS
            .map(|name| parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone()));
        Self { datacenter, namespace, partition }
    }

    /// The values in the order of their [names](Self::PARAMETERS).
    fn values(&self) -> [Option<&str>; 3] {
        [self.datacenter.as_deref(), self.namespace.as_deref(), self.partition.as_deref()]
    }

    /// Checks that the names are valid, because they stand in the URLs of requests.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.values().into_iter().flatten().find(|name| !is_name(name)) {
            Some(name) => {
                let hint = "a datacenter, namespace or partition has letters, digits, - and _";
                Err(Error::invalid_config("place in Consul", name, hint))
            }
            None => Ok(()),
        }
    }

    /// Whether only Consul Enterprise can have this scope.
    pub(super) const fn is_of_enterprise(&self) -> bool {
        self.namespace.is_some() || self.partition.is_some()
    }

    /// The path of a request with the scope. The path may have parameters of its own already.
    /// Nothing is encoded, because [`check`](Self::check) lets no name pass that would need it.
    pub(super) fn in_path(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for (name, value) in Self::PARAMETERS.iter().zip(self.values()) {
            if let Some(value) = value {
                path.push(if path.contains('?') { '&' } else { '?' });
                path.extend([name, "=", value]);
            }
        }
        path
    }

    /// Has each operation of a transaction name the scope.
    pub(super) fn in_transaction(&self, mut operations: Value) -> Value {
        let names = [("Namespace", &self.namespace), ("Partition", &self.partition)];
        for operation in operations.as_array_mut().into_iter().flatten() {
            for (name, value) in names {
                if let Some(value) = value {
                    operation["KV"][name] = value.as_str().into();
                }
            }
        }
        operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_request_names_the_place() {
        let given = [("ns", "n"), ("dc", "d"), ("partition", "p")].map(|(name, value)| (name.into(), value.into()));
        let scope = Scope::of(&given);
        assert_eq!(scope.in_path("/v1/txn"), "/v1/txn?dc=d&ns=n&partition=p");
        assert_eq!(scope.in_path("/v1/kv/a?recurse"), "/v1/kv/a?recurse&dc=d&ns=n&partition=p");
        let operation = json!([{ "KV": { "Verb": "get", "Key": "k" } }]);
        let placed = json!([{ "KV": { "Verb": "get", "Key": "k", "Namespace": "n", "Partition": "p" } }]);
        assert_eq!(scope.in_transaction(operation.clone()), placed);
        assert_eq!(Scope::default().in_transaction(operation.clone()), operation);
        assert_eq!(Scope::default().in_path("/v1/txn"), "/v1/txn");
        assert!(scope.check().is_ok() && Scope { namespace: Some("a&b".into()), ..scope }.check().is_err());
    }
}
