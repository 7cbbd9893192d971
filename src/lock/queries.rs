//! The queries that a guard with its own handle and a hold have in common.

macro_rules! queries {
    ($type:ident) => {
        impl $type {
            /// Returns the lock that is held.
            #[must_use]
            pub fn lock(&self) -> &DistributedReentrantLock {
                &self.lock
            }

            /// Returns the fencing token of this hold. See [`DLockGuard::fencing_token`](crate::DLockGuard::fencing_token).
            #[must_use]
            pub fn fencing_token(&self) -> u64 {
                self.token
            }

            /// Returns `true` if the lease is certainly still valid. Once `false`, it stays `false`. Does not block.
            #[must_use]
            pub fn is_valid(&self) -> bool {
                self.lock.handle.holds_validly(self.token)
            }

            /// Returns for how long the lease is certainly valid if it is not extended again; zero if it is lost. Does not block.
            #[must_use]
            pub fn remaining(&self) -> Duration {
                self.lock.handle.remaining_of(self.token)
            }

            /// Returns for how long this hold has lasted. See [`DLockGuard::held_for`](crate::DLockGuard::held_for).
            #[must_use]
            pub fn held_for(&self) -> Duration {
                self.lock.handle.held_for(self.token)
            }

            /// Fails unless the lease is certainly still valid. Call it before each step that must not run beside another holder. Does not block.
            ///
            /// # Errors
            ///
            /// As [`DLockGuard::ensure_valid`](crate::DLockGuard::ensure_valid).
            pub fn ensure_valid(&self) -> Result<(), Error> {
                self.lock.handle.ensure_valid_hold(self.token)
            }

            /// Returns a channel that receives one message when the lease is lost. See [`DLockGuard::lost`](crate::DLockGuard::lost). Does
            /// not block.
            #[must_use]
            pub fn lost(&self) -> Receiver<()> {
                self.lock.handle.key.watch(self.token)
            }

            /// Returns how the lease was lost. See [`DLockGuard::loss`](crate::DLockGuard::loss). Does not block.
            #[must_use]
            pub fn loss(&self) -> Option<LeaseLoss> {
                self.lock.handle.loss_of(self.token)
            }
        }
    };
}
