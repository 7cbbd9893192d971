include!(concat!(env!("OUT_DIR"), "/report_before.rs"));
