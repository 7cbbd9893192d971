//! What the public types of these stores have in common.
//!
//! Each store has a public type of its own, whose documentation names its limits, rights and builder. Both types contain a
//! [`ConsensusStore`](super::store::ConsensusStore), and these macros hand every call on to it.

/// Implements the traits and methods that programs and the client use, for a type with the field `store: Arc<ConsensusStore>`.
macro_rules! forward_to_store {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).field("store", &self.store).finish()
            }
        }

        impl LockProcessor for $name {
            fn run(&self, requests: &[Request<'_>], limit: Limit) -> Vec<Result<Outcome, Error>> {
                self.store.run(requests, limit)
            }

            fn between_rounds(&self, limit: std::time::Duration) {
                self.store.between_rounds(limit);
            }

            fn limits(&self) -> StoreLimits {
                self.store.limits()
            }

            fn has_answered(&self) -> bool {
                self.store.has_answered()
            }

            fn queue(&self) -> Option<&dyn WaitQueue> {
                self.store.queue()
            }

            fn directory(&self) -> Option<&dyn Directory> {
                self.store.directory()
            }

            /// The store's `Arc` closes it only if no other clone is left.
            fn close(&self) {
                self.store.close();
            }
        }
    };
}

/// Implements the setters of certificates for a builder with the field `settings: StoreSettings`.
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

pub(super) use {certificates, forward_to_store};
