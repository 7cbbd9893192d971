//! Mutexes and atomics. In the build of the unit tests, the scheduler of the model (`tests/white_box`) may switch threads at each mutex. So other
//! threads of the process act between two looks at the known sessions.
//!
//! # Atomics
//!
//! | where | what | written by | read by | why no mutex |
//! |---|---|---|---|---|
//! | `consensus/src/http` `preferred`, `has_answered`, `is_closed` | the server to ask first; whether one has ever answered; whether the store is closed | a request that had an answer or none; `close` | each request | hints, but for the last, which only rises |
//! | `consensus/src/consul/client` `is_on_agents` | whether a session had to be created on the node of an agent or server | the thread that created the first one, and warns | the end of a session after a request without an answer, and each move of holds | it only rises; requests share no mutex |
//! | `consensus/src/consul/client` `sees_without_token` | whether requests without a token are known to see entries | the thread that has asked for one entry | each look without a token | it only rises; at worst the question is asked twice |
//! | `consensus/src/consul/client` `is_placed` | whether Consul has accepted the namespace and partition | the thread that has asked | each request | it only rises; at worst the question is asked twice |

#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;
#[cfg(test)]
pub(crate) use shim::Mutex;
pub(crate) use std::sync::atomic;

#[cfg(test)]
mod shim {
    use std::fmt;
    use std::sync::PoisonError;

    /// A mutex of `shuttle` with the methods of `parking_lot`.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T> fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Mutex { .. }")
        }
    }
}
