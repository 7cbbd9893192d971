include!(concat!(env!("OUT_DIR"), "/stock_after.rs"));
