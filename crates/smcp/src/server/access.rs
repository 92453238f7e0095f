//! Authentication of clients and the roles and rooms that a token allows.

use std::fmt;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use crate::wire::{Role, request::JoinRequest};

/// The clients that may connect.
#[derive(Clone)]
pub enum Access {
    /// Every client, with or without a token.
    Any,
    /// Clients that present one of these tokens.
    Tokens(Vec<Token>),
}

/// A secret and the joins it permits.
#[derive(Clone)]
pub struct Token {
    /// The value that a client must present.
    pub secret: SecretString,
    /// The role its holder may join with; `None` for any.
    pub role: Option<Role>,
    /// The rooms its holder may join; `None` for all.
    pub rooms: Option<Vec<String>>,
}

impl Token {
    /// A token without restrictions on role and room.
    #[must_use]
    pub fn shared(secret: impl Into<String>) -> Self {
        Self { secret: SecretString::from(secret.into()), role: None, rooms: None }
    }
}

/// The restrictions of a connection's token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant {
    role: Option<Role>,
    rooms: Option<Vec<String>>,
}

impl Access {
    /// Checks the `auth` value of a connection and returns its grant.
    pub(crate) fn admit(&self, auth: Option<&Value>) -> Result<Grant, Fault> {
        let Self::Tokens(tokens) = self else { return Ok(Grant::default()) };
        let presented = auth.and_then(|auth| auth.get("token")).and_then(Value::as_str);
        self.find(tokens, presented).ok_or_else(|| {
            let reason = if presented.is_some() {
                "auth.token is not valid"
            } else {
                "auth.token is missing"
            };
            Fault::new(Kind::NotAuthenticated, Operation::Authenticate).with(Fact::Reason, reason)
        })
    }

    fn find(&self, tokens: &[Token], presented: Option<&str>) -> Option<Grant> {
        let presented = presented?.as_bytes();
        // All tokens are compared, so that the duration reveals nothing.
        let mut found = None;
        for token in tokens {
            if bool::from(token.secret.expose_secret().as_bytes().ct_eq(presented)) {
                found = Some(Grant { role: token.role, rooms: token.rooms.clone() });
            }
        }
        found
    }

    /// Whether a client with this bearer token may read the counters.
    pub(crate) fn admits_to_counters(&self, presented: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Tokens(tokens) => self
                .find(tokens, presented)
                .is_some_and(|grant| grant.role.is_none() && grant.rooms.is_none()),
        }
    }

    /// All token secrets, for the scrubber.
    pub(crate) fn secrets(&self) -> Vec<String> {
        match self {
            Self::Any => Vec::new(),
            Self::Tokens(tokens) => {
                tokens.iter().map(|token| token.secret.expose_secret().to_owned()).collect()
            }
        }
    }
}

impl Grant {
    /// Checks a join against the grant.
    pub(crate) fn allows(&self, join: &JoinRequest) -> Result<(), Fault> {
        let no = |reason: &'static str| {
            Err(Fault::new(Kind::NotAllowed, Operation::JoinRoom).with(Fact::Reason, reason))
        };
        if self.role.is_some_and(|role| role != join.role) {
            return no("the token is for another role");
        }
        if self.rooms.as_ref().is_some_and(|rooms| !rooms.contains(&join.room)) {
            return no("the token is for other rooms");
        }
        Ok(())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("Any"),
            Self::Tokens(tokens) => write!(f, "Tokens({})", tokens.len()),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("role", &self.role)
            .field("rooms", &self.rooms)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::codes::smcp_code;
    use serde_json::json;

    use super::*;

    fn join(role: Role, room: &str) -> JoinRequest {
        JoinRequest { role, name: "n".into(), room: room.into() }
    }

    #[test]
    fn a_token_admits_only_to_its_role_and_rooms() {
        let narrow = Token {
            role: Some(Role::Computer),
            rooms: Some(vec!["a".into()]),
            ..Token::shared("narrow")
        };
        let access = Access::Tokens(vec![Token::shared("wide"), narrow]);
        let admit = |auth: Value| access.admit(Some(&auth));
        assert_eq!(smcp_code(access.admit(None).unwrap_err().kind()), 401);
        for bad in [
            json!({}),
            json!({ "token": "wid" }),
            json!({ "token": 1 }),
            json!("wide"),
            json!({"token": ""}),
        ] {
            assert_eq!(smcp_code(admit(bad.clone()).unwrap_err().kind()), 401, "{bad}");
        }
        let wide = admit(json!({ "token": "wide" })).unwrap();
        assert!(wide.allows(&join(Role::Agent, "z")).is_ok());
        let narrow = admit(json!({ "token": "narrow" })).unwrap();
        assert!(narrow.allows(&join(Role::Computer, "a")).is_ok());
        assert_eq!(smcp_code(narrow.allows(&join(Role::Agent, "a")).unwrap_err().kind()), 403);
        assert_eq!(smcp_code(narrow.allows(&join(Role::Computer, "b")).unwrap_err().kind()), 403);
        assert!(
            access.admits_to_counters(Some("wide")) && !access.admits_to_counters(Some("narrow"))
        );
        assert!(!format!("{access:?} {:?}", Token::shared("wide")).contains("wide"));
    }
}
