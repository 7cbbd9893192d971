//! Takes the programs from the manual's page.

mod page;

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=page.rs");
    println!("cargo::rerun-if-changed=../../src/manual/recipes.md");
    let out = env::var_os("OUT_DIR").expect("the directory for what is made");
    for program in
        ["orders.rs", "report_before.rs", "report_after.rs", "stock_before.rs", "stock_after.rs", "export.rs"]
    {
        let text = page::file(&format!("// {program}"));
        fs::write(Path::new(&out).join(program), text).expect("the file");
    }
}
