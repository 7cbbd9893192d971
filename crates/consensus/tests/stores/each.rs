//! Tests that run on each store.

/// Makes of each function a test on etcd and one on Consul.
macro_rules! on_each_store {
    ($($name:ident),+ $(,)?) => {
        mod etcd {
            $(#[test]
            fn $name() {
                super::$name::<crate::consensus::Etcd>();
            })+
        }
        mod consul {
            $(#[test]
            fn $name() {
                super::$name::<crate::consensus::Consul>();
            })+
        }
    };
}
