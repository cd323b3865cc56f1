//! Tokens of a file, as kube-apiserver's `--token-auth-file` has them: lines of `token,user,uid,"group,group"`.

use super::user::RequestUser;

/// The token of a user.
#[derive(Clone, PartialEq, Eq)]
pub struct StaticToken {
    /// The token.
    pub token: String,
    /// The user.
    pub user: RequestUser,
}

impl std::fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret.
        f.debug_struct("StaticToken")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl StaticToken {
    /// The tokens of a file.
    ///
    /// # Errors
    /// Names the first line that is wrong.
    pub fn read(text: &str) -> Result<Vec<Self>, String> {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        lines
            .map(|(at, line)| {
                Self::of_line(line).ok_or_else(|| {
                    format!(
                        "line {} is not token,user,uid with optional groups in quotation marks",
                        at + 1
                    )
                })
            })
            .collect()
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut fields = fields(line)?.into_iter();
        let (token, name, uid) = (fields.next()?, fields.next()?, fields.next()?);
        if token.is_empty() || name.is_empty() {
            return None;
        }
        let groups = fields.next().unwrap_or_default();
        let mut groups: Vec<String> = groups
            .split(',')
            .map(|group| group.trim().to_owned())
            .filter(|group| !group.is_empty())
            .collect();
        groups.push("system:authenticated".to_owned());
        let user = RequestUser {
            name,
            uid,
            groups,
            ..RequestUser::default()
        };
        Some(Self { token, user })
    }
}

/// The fields of a line of comma-separated values; `None` when a quotation mark is not closed.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match (c, fields.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            (',', _) if !is_quoted => fields.push(String::new()),
            (c, Some(field)) => field.push(c),
            _ => {}
        }
    }
    let trimmed = fields.iter().map(|field| field.trim().to_owned());
    (!is_quoted).then(|| trimmed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_tokens_with_users_and_groups() {
        let text = "# a comment\n\nabc,admin,7,\"system:masters,ops\"\nxyz, bob ,8\n";
        let read = StaticToken::read(text).expect("valid");
        let shown: Vec<_> = read
            .iter()
            .map(|t| {
                let RequestUser {
                    name, uid, groups, ..
                } = &t.user;
                (
                    t.token.as_str(),
                    name.as_str(),
                    uid.as_str(),
                    groups.join(" "),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                (
                    "abc",
                    "admin",
                    "7",
                    "system:masters ops system:authenticated".to_owned()
                ),
                ("xyz", "bob", "8", "system:authenticated".to_owned()),
            ]
        );
    }

    #[test]
    fn the_line_of_a_fault_is_named() {
        for line in [
            "abc",
            "abc,admin",
            ",admin,7",
            "abc,,7",
            "abc,admin,7,\"ops",
        ] {
            let error = StaticToken::read(&format!("a,b,c\n{line}\n")).expect_err(line);
            assert!(error.starts_with("line 2 "), "{error}");
        }
    }
}
