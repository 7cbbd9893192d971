include!(concat!(env!("OUT_DIR"), "/stock_before.rs"));
