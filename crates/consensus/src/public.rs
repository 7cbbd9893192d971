//! What the public types of these stores have in common.

/// Implements for a store with the field `store: Arc<RaftStore>` what programs and the client see of it.
macro_rules! forward_to_raft_store {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).field("store", &self.store).finish()
            }
        }

        impl LockProcessor for $name {
            fn acquire(&self, claim: &Claim<'_>, limit: Duration) -> Result<AcquireOutcome, Error> {
                self.store.acquire(claim, limit)
            }

            fn extend(&self, claim: &Claim<'_>, limit: Duration) -> Result<ExtendOutcome, Error> {
                self.store.extend(claim, limit)
            }

            fn release(&self, claim: &Claim<'_>, limit: Duration) -> Result<ReleaseOutcome, Error> {
                self.store.release(claim, limit)
            }

            fn inspect(&self, key: &str, limit: Duration) -> Result<Inspection, Error> {
                self.store.inspect(key, limit)
            }

            fn poll(&self, claim: &Claim<'_>, limit: Duration) -> Result<PollOutcome, Error> {
                self.store.poll(claim, limit)
            }

            fn probe(&self, claim: &Claim<'_>, limit: Duration) -> Result<ProbeOutcome, Error> {
                self.store.probe(claim, limit)
            }

            fn limits(&self) -> StoreLimits {
                self.store.limits()
            }

            fn status(&self) -> Status {
                self.store.status()
            }

            fn queue(&self) -> Option<&dyn WaitQueue> {
                self.store.queue()
            }

            fn numbers(&self) -> Option<&dyn Numbers> {
                self.store.numbers()
            }

            fn settling(&self) -> Option<&dyn Settling> {
                self.store.settling()
            }

            fn close(&self) {
                self.store.close();
            }
        }
    };
}

/// Implements the certificates for a builder with the field `settings: Settings`.
macro_rules! certificates {
    ($builder:ident) => {
        #[cfg(feature = "tls")]
        impl $builder {
            /// Sets the root certificates, as PEM text, that the servers are checked against. Defaults to the platform's.
            #[must_use]
            pub fn tls_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
                self.settings.tls = self.settings.tls.with_root_certificates(pem);
                self
            }

            /// Sets the certificate chain and its private key, as PEM texts, that this client presents to the servers. Defaults to none.
            #[must_use]
            pub fn tls_client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
                self.settings.tls = self.settings.tls.with_client_certificate(chain, key);
                self
            }
        }
    };
}

pub(super) use {certificates, forward_to_raft_store};
