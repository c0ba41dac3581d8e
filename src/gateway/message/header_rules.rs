//! Changes of header fields by route (`request_headers`, `response_headers`).

use super::headers::retain_trailers;
use tidegate_config::settings::{FieldChanges, HeaderField};
use tidegate_http1::Fields;
use tidegate_policy::request_fields::eq_as_cgi;

/// Changes the fields of a request to the origin in all spellings that CGI, WSGI and others read as the same name. Trailers that a change replaces or removes are no longer announced, so they are not forwarded.
pub(in crate::gateway) fn change_request(fields: &mut Fields, changes: &FieldChanges) {
    let stays = |name: &[u8]| !changes.replaced_names().any(|replaced| eq_as_cgi(name, replaced.as_bytes()));
    fields.retain(|field| stays(field.text));
    retain_trailers(fields, stays);
    append(fields, changes.new_fields());
}

/// Changes the fields of a response of the origin, fetched now or stored, for the client.
pub(in crate::gateway) fn change_response(fields: &mut Fields, changes: &FieldChanges) {
    let is_replaced =
        |name: &[u8]| changes.replaced_names().any(|replaced| name.eq_ignore_ascii_case(replaced.as_bytes()));
    fields.retain(|field| !is_replaced(field.text));
    append(fields, changes.new_fields());
}

/// Appends the new fields that a response of the gateway itself does not have: a rule for pages must not make a refusal
/// cacheable, or change its type.
pub(in crate::gateway) fn complete_response(fields: &mut Fields, changes: &FieldChanges) {
    let is_missing = |field: &&HeaderField| fields.get_all_by_text(&field.name).next().is_none();
    let missing: Vec<&HeaderField> = changes.new_fields().filter(is_missing).collect();
    append(fields, missing.into_iter());
}

fn append<'a>(fields: &mut Fields, new: impl Iterator<Item = &'a HeaderField>) {
    new.for_each(|field| fields.append_text(&field.name, field.value.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]) -> FieldChanges {
        let fields = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(name, value)| HeaderField { name: name.into(), value: value.into() }).collect()
        };
        FieldChanges { set: fields(set), add: fields(add), remove: remove.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn fields_are_replaced_in_every_spelling() {
        let sent = [("x-role", "admin"), ("X_Role", "admin"), ("X.ROLE", "admin"), ("x_tag", "1"), ("x-other", "1")];
        let mut fields: Fields = sent.into_iter().chain([("trailer", "X_Role, x-sum, x-tag")]).collect();
        change_request(&mut fields, &changes(&[("X-Role", "none")], &[("x-other", "2")], &["x-tag"]));
        let expected = [("x-other", "1"), ("trailer", "x-sum"), ("X-Role", "none"), ("x-other", "2")];
        assert_eq!(fields, expected.into_iter().collect());
    }

    #[test]
    fn response_of_the_gateway_keeps_its_fields() {
        let own = [("cache-control", "no-store"), ("content-type", "text/html")];
        let mut fields: Fields = own.into_iter().collect();
        let rules = changes(
            &[("Cache-Control", "public"), ("X-Frame-Options", "DENY")],
            &[("Link", "</a>")],
            &["content-type"],
        );
        complete_response(&mut fields, &rules);
        assert_eq!(fields, own.into_iter().chain([("x-frame-options", "DENY"), ("link", "</a>")]).collect());
        let mut fields: Fields = own.into_iter().collect();
        change_response(&mut fields, &rules);
        let expected = [("cache-control", "public"), ("x-frame-options", "DENY"), ("link", "</a>")];
        assert_eq!(fields, expected.into_iter().collect());
    }
}
