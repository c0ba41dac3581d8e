//! `tidegate schema`: the JSON Schema of the YAML file, for editors.

/// The schema, as indented JSON.
pub fn schema() -> String {
    format!("{:#}", crate::config::schema())
}
