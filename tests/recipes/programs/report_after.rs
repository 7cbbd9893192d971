include!(concat!(env!("OUT_DIR"), "/report_after.rs"));
