//! Content codings that the gateway applies, and the choice of one for a client (RFC 9110 sections 8.4.1 and 12.5.3).

use super::fields::FieldLines;

/// Content coding that the gateway applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// Returns the name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

/// Returns one of the distinct `codings`, the preferred one first, for a client: of those with its greatest weight, the
/// preferred one. `None` if it accepts none of them, or prefers none.
pub fn choose(codings: &[Coding], request: &impl FieldLines) -> Option<Coding> {
    let (mut weights, mut any, mut identity) = ([None; 3], None, 0);
    for member in request.members("accept-encoding") {
        let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(thousandths).unwrap_or(1000);
        match name {
            b"*" => any = Some(weight),
            _ if name.eq_ignore_ascii_case(b"identity") => identity = weight,
            _ => {
                let name = if name.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { name };
                let coding = codings.iter().position(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()));
                coding.into_iter().for_each(|index| weights[index] = Some(weight));
            }
        }
    }
    let weight = |index: usize| weights[index].or(any).unwrap_or(0);
    let best = (0..codings.len()).rev().max_by_key(|&index| weight(index))?;
    (weight(best) > 0 && weight(best) >= identity).then(|| codings[best])
}

/// Returns the weight that a parameter is, in thousandths.
fn thousandths(parameter: &[u8]) -> Option<u32> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let weight: f32 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    Some((weight.clamp(0.0, 1.0) * 1000.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    #[test]
    fn client_gets_the_coding_that_it_prefers() {
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, br", Some(Coding::Brotli)),
            ("GZIP", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("gzip;q=1.0, br;q=0.8", Some(Coding::Gzip)),
            ("gzip; q=0.5 , identity; q=0.8", None),
            ("gzip;q=0.5, identity;q=0.5", Some(Coding::Gzip)),
            ("*", Some(Coding::Zstd)),
            ("zstd;q=0, *;q=0.1", Some(Coding::Brotli)),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("identity", None),
            ("deflate", None),
            ("", None),
            ("gzip;q=nonsense", Some(Coding::Gzip)),
        ] {
            assert_eq!(choose(&ALL, &[("accept-encoding", accepted)]), expected, "{accepted}");
        }
        assert_eq!(choose(&ALL, &[("accept", "gzip")]), None, "without the field");
    }

    proptest! {
        #[test]
        fn chosen_coding_is_one_that_the_client_names(accepted in "[a-z0-9*;=., -]{0,60}") {
            if let Some(coding) = choose(&ALL, &[("accept-encoding", accepted.as_str())]) {
                prop_assert!(accepted.contains('*') || accepted.contains(coding.name()));
            }
        }
    }
}
