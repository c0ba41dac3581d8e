//! Fields of the JSON documents of the admin API, from the types that are served.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::collections::BTreeMap;
use tidegate::admin::fields::DocumentField;

/// A field of a JSON document.
pub(super) struct Field {
    /// Path from the top of the document. `[]` stands for the items of a list.
    pub(super) path: String,
    /// JSON type of the value.
    pub(super) form: String,
    /// Meaning of the value, as sentences.
    pub(super) meaning: String,
    /// Path of the object in the value that has the fields of `like`.
    pub(super) object: String,
    /// Path of an object that has the same fields, and whose fields are listed.
    pub(super) like: Option<String>,
}

impl From<&DocumentField> for Field {
    fn from(field: &DocumentField) -> Self {
        let [path, form, meaning] = [field.path, field.json_type, field.meaning].map(str::to_owned);
        Self { path, form, meaning, object: String::new(), like: None }
    }
}

/// Returns the fields of a type, in order. The fields of the type `elsewhere` are listed elsewhere.
pub(super) fn fields_of<T: JsonSchema>(elsewhere: &str) -> Vec<Field> {
    let schema = SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>().to_value();
    let mut list = FieldList { definitions: &schema["$defs"], elsewhere, fields: Vec::new(), listed: BTreeMap::new() };
    list.add("", &schema);
    list.fields
}

struct FieldList<'a> {
    definitions: &'a Value,
    elsewhere: &'a str,
    fields: Vec<Field>,
    /// Path of the first object of each definition.
    listed: BTreeMap<&'a str, String>,
}

impl<'a> FieldList<'a> {
    /// Adds the fields of an object.
    fn add(&mut self, prefix: &str, object: &'a Value) {
        let properties = object["properties"].as_object().expect("an object has fields");
        // The properties of a schema are sorted; those that are always present are required in the order of the type.
        let required: Vec<&str> =
            object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let others = properties.keys().map(String::as_str).filter(|key| !required.contains(key));
        for key in required.iter().copied().chain(others) {
            let property = &properties[key];
            let path = format!("{prefix}{key}");
            let description = property["description"].as_str().unwrap_or_else(|| panic!("{path} has no description"));
            let meaning = description.split_whitespace().collect::<Vec<_>>().join(" ");
            let mut field = Field { form: form(property), object: String::new(), like: None, meaning, path };
            let Some((name, suffix)) = nested(property).filter(|(name, _)| *name != self.elsewhere) else {
                self.fields.push(field);
                continue;
            };
            field.object = format!("{}{suffix}", field.path);
            if let Some(listed) = self.listed.get(name) {
                field.meaning += &format!(" Fields as of `{listed}`.");
                field.like = Some(listed.clone());
                self.fields.push(field);
                continue;
            }
            let object = field.object.clone();
            self.listed.insert(name, object.clone());
            self.fields.push(field);
            self.add(&format!("{object}."), &self.definitions[name]);
        }
    }
}

/// Returns the definition of the object in a value, and the end of its path.
fn nested(schema: &Value) -> Option<(&str, &'static str)> {
    let forms = schema["anyOf"].as_array().into_iter().flatten();
    let object = forms.chain([schema]).find_map(definition).map(|name| (name, ""));
    object.or_else(|| Some((definition(&schema["items"])?, "[]")))
}

/// Returns the JSON type of a value.
fn form(schema: &Value) -> String {
    if schema.get("$ref").is_some() {
        return "object".to_owned();
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        return forms.iter().map(form).collect::<Vec<_>>().join(" or ");
    }
    let word = |name: &Value| match name.as_str().expect("a type") {
        "array" => format!("list of {}", form(&schema["items"])),
        "object" => format!("object of {}", form(&schema["additionalProperties"])),
        "string" if schema["format"] == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::Array(names) => names.iter().map(word).collect::<Vec<_>>().join(" or "),
        name => word(name),
    }
}

fn definition(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}
