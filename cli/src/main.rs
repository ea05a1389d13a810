//! The binary `thermocline`.

fn main() {}
