//! Sets the cfg under which the crate's mutexes, condition variables, atomics, threads and clocks are those of the explorer.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=dlock_shuttle");
    // What the models leave out.
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"metrics\", \"tls\"))");
}
