//! The `tidegate` command. Everything it does lives in the library.

fn main() {}
