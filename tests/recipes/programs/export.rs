include!(concat!(env!("OUT_DIR"), "/export.rs"));
