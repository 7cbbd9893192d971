include!(concat!(env!("OUT_DIR"), "/orders.rs"));
