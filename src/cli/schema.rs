//! `tidegate schema`: prints the JSON Schema of the configuration file, for editors.

/// Returns the schema as indented JSON.
pub fn schema() -> String {
    format!("{:#}", tidegate_config::schema())
}
